"""A labyrinth in which every text leads somewhere: the next room follows from all actions so far, so two branches of a
fork that differ in one word see different rooms, and a state that is put back wrongly is noticed.

usage: labyrinth.py stdio          JSON lines on standard input and output
       labyrinth.py dice           the same without snapshots, and rooms that follow from nothing
       labyrinth.py openenv PORT   a server made with the openenv package
"""
import json
import os
import sys
import zlib

TASKS = [{"id": f"{split}-{n}", "split": split, "reset": {"door": n}} for split in ("train", "test") for n in range(6)]
THINGS = ["mug", "desk", "shelf", "lamp", "book", "sofa", "plate", "fridge"]


class Labyrinth:
    def __init__(self):
        self.door, self.path, self.turns = 0, 0, 0

    def reset(self, door):
        self.door, self.path, self.turns = door, zlib.crc32(str(door).encode()), 0

    def step(self, action):
        self.path, self.turns = zlib.crc32(action.encode(), self.path), self.turns + 1

    def text(self):
        first, second = THINGS[self.path % 8], THINGS[self.path // 8 % 8]
        return f"You are in room {self.path % 1000}. You see a {first} 1, and a {second} 2."

    def commands(self):
        return [f"go to {THINGS[self.path // k % 8]} {k % 3 + 1}" for k in (1, 8, 64)] + ["look"]

    def view(self):
        # A room with a round number is the exit.
        found = self.turns > 0 and self.path % 10 == 0
        return {"observation": self.text(), "actions": self.commands(), "done": found, "success": found,
                "task": f"find the way out behind door {self.door}."}


def answer(game, request, dice):
    kind = request["type"]
    if kind == "hello":
        return {"type": "hello", "version": 1, "snapshot": not dice, "turn_limit": 6}
    if kind == "tasks":
        return {"type": "tasks", "tasks": TASKS}
    if kind == "snapshot":
        return {"type": "snapshot", "state": vars(game)}
    if kind == "reset":
        game.reset(request["data"]["door"])
        if dice:
            game.path = zlib.crc32(os.urandom(8))
    elif kind == "step":
        game.step(os.urandom(8).hex() if dice else request["action"])
    elif kind == "restore":
        vars(game).update(request["state"])
    return {"type": "view", **game.view()}


def serve(port):
    import uvicorn
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Words(Action):
        command: str

    class Room(Observation):
        text: str = ""
        task: str = ""
        admissible_actions: list[str] = []

    class Remote(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__()
            self.game, self.episode, self.count = Labyrinth(), None, 0

        def room(self, **metadata):
            view = self.game.view()
            return Room(text=view["observation"], task=view["task"], admissible_actions=view["actions"],
                        done=view["done"], reward=float(view["success"]), metadata=metadata)

        def reset(self, seed=None, episode_id=None, door=0, injected_state=None):
            self.episode, self.count = episode_id, 0
            if injected_state is not None:
                vars(self.game).update(injected_state)
                return self.room(restored=True)
            self.game.reset(door)
            return self.room()

        def step(self, action, timeout_s=None, **kwargs):
            self.count += 1
            self.game.step(action.command)
            return self.room()

        @property
        def state(self):
            return State(episode_id=self.episode, step_count=self.count, snapshot=dict(vars(self.game)))

    app = create_app(Remote, Words, Room, env_name="labyrinth", max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    if sys.argv[1] == "openenv":
        serve(int(sys.argv[2]))
    labyrinth = Labyrinth()
    for line in sys.stdin:
        print(json.dumps(answer(labyrinth, json.loads(line), sys.argv[1] == "dice")), flush=True)
