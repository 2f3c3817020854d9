"""The simulator's own Python client, timed: reads one request a line, answers one line of JSON."""
import json
import sys
import threading
import time

from scienceworld import ScienceWorldEnv

environments = []


def reset(environment, course):
    environment.load(course["task"], course["variation"], "easy", generateGoldPath=False)
    environment.reset()
    environment.get_possible_actions()
    environment.get_possible_objects()


def step(environment, action):
    environment.step(action)
    environment.get_possible_actions()
    environment.get_possible_objects()


def start(request):
    """A fresh environment, up to its first observation."""
    environment = ScienceWorldEnv("", envStepLimit=100)
    environments.append(environment)
    reset(environment, request["course"])


def resets(request):
    for course in request["courses"]:
        reset(environments[0], course)


def steps(request):
    """Only the steps are timed."""
    total = 0.0
    for course in request["courses"]:
        reset(environments[0], course)
        begin = time.perf_counter()
        for action in course["actions"]:
            step(environments[0], action)
        total += time.perf_counter() - begin
    return total


def restore(request):
    """A state is put back by playing again what led to it."""
    for course in request["courses"]:
        reset(environments[0], course)
        for action in course["actions"]:
            step(environments[0], action)


def together(request):
    def play(environment, course):
        reset(environment, course)
        for action in course["actions"]:
            step(environment, action)

    pairs = zip(environments, request["courses"])
    threads = [threading.Thread(target=play, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


for line in sys.stdin:
    request = json.loads(line)
    begin = time.perf_counter()
    seconds = globals()[request["do"]](request)
    if seconds is None:
        seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds}), flush=True)
