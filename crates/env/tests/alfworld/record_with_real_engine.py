"""Plays game files in TextWorld's own engine, writes down everything it answers, and compares.

Needs: pip install textworld==1.7.0 fast-downward-textworld==20.6.4 alfworld==0.4.2

    lens data alfworld export --template GAME_OR_PACKAGE --out games --split valid_unseen
    python record_with_real_engine.py games --out recorded.jsonl --lens lens

Each game is played three times: along its stored walkthrough, at random with a preference for rare
verbs and some nonsense in between, and by picking things up and doing everything possible with them.
With --lens the recording is replayed at once by "lens env replay alfworld", which exits with 1 on any
difference. Recordings name each game by its folders and carry the MD5 sum of its problem text, so that
games made from a seed can be checked without files. With --time it reports the engine's CPU time.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("ALFWORLD_DATA", "/nonexistent")

import textworld  # noqa: E402
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler  # noqa: E402

NONSENSE = ["", "  ", "look around", "LOOK", "go to nowhere 1", "take everything", "open  drawer 1", "xyzzy"]


class Clock:
    """CPU seconds spent in each kind of call."""

    def __init__(self):
        self.spent = {}

    def time(self, name, call):
        start = time.process_time()
        result = call()
        self.spent.setdefault(name, []).append(time.process_time() - start)
        return result

    def report(self):
        for name, spent in self.spent.items():
            mean = sum(spent) / len(spent)
            print(f"{name}: {len(spent)} calls, {1000 * mean:.1f} ms CPU each", file=sys.stderr)


def disturb(command, rng):
    """A command as a careless player might type it."""
    return rng.choice(
        [command.upper(), f"  {command}\t", command.replace(" ", "  "), command + ".", rng.choice(NONSENSE)]
    )


def by_verb(admissible, rng):
    """A verb first, then one of its commands, so that rare verbs are not drowned by `go to`."""
    verbs = sorted({command.split()[0] for command in admissible})
    verb = rng.choice(verbs)
    return rng.choice([command for command in admissible if command.split()[0] == verb])


def handle(admissible, rng):
    """Prefers doing things with what is held, and sharp things and devices over others."""
    weights = []
    for command in admissible:
        verb = command.split()[0]
        weight = {"go": 0.4, "close": 0.2, "inventory": 0.3, "help": 0.1, "look": 2.0}.get(verb, 3.0)
        if verb in ("clean", "heat", "cool", "slice", "use"):
            weight = 8.0
        if verb == "take" and "knife" in command:
            weight = 9.0
        if verb == "go" and any(word in command for word in ("sinkbasin", "microwave", "fridge")):
            weight = 2.0
        weights.append(weight)
    return rng.choices(admissible, weights)[0]


def play(env, choose, steps, rng, clock):
    state = clock.time("reset", env.reset)
    admissible = state["admissible_commands"]
    record = {"init": {"obs": state.feedback, "admissible": admissible, "won": state["won"]}, "steps": []}
    for index in range(steps):
        command = choose(index, admissible)
        if command is None:
            break
        state, reward, done = clock.time("step", lambda: env.step(command))
        after = state["admissible_commands"]
        record["steps"].append(
            {
                "cmd": command,
                "obs": state.feedback,
                "reward": reward,
                "done": done,
                "won": state["won"],
                "admissible": "=" if after == admissible else after,
            }
        )
        admissible = after
    return record


def record_game(path, steps, clock):
    data = json.loads(path.read_text())
    name = "/".join(path.parts[-4:-1])
    digest = hashlib.md5(data["pddl_problem"].encode()).hexdigest()
    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    env = clock.time("load", lambda: textworld.start(str(path), infos, wrappers=[AlfredDemangler]))
    walkthrough = data["walkthrough"]
    rng = random.Random(name)

    def follow(index, _):
        return walkthrough[index] if index < len(walkthrough) else None

    def biased(_, admissible):
        command = by_verb(admissible, rng)
        return disturb(command, rng) if rng.random() < 0.06 else command

    def handling(_, admissible):
        return handle(admissible, rng)

    for kind, choose in [("walkthrough", follow), ("biased", biased), ("handling", handling)]:
        record = play(env, choose, steps, rng, clock)
        if kind == "walkthrough" and not record["steps"][-1]["won"]:
            sys.exit(f"{path}: the walkthrough does not win in the real engine")
        yield {"game": name, "play": kind, "problem_md5": digest, **record}
    env.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", type=Path, help="a folder with game.tw-pddl files")
    parser.add_argument("--out", type=Path, required=True, help="the .jsonl file to write")
    parser.add_argument("--steps", type=int, default=40, help="steps of each random play")
    parser.add_argument("--limit", type=int, help="record only the first so many games, by path")
    parser.add_argument("--lens", help="the lens program, to compare at once")
    parser.add_argument("--data", type=Path, help="compare against these files instead of the built-in games")
    parser.add_argument("--time", action="store_true", help="report the engine's CPU time")
    arguments = parser.parse_args()

    clock = Clock()
    games = sorted(arguments.games.rglob("game.tw-pddl"))[: arguments.limit]
    with arguments.out.open("w") as out:
        for number, path in enumerate(games, 1):
            for record in record_game(path, arguments.steps, clock):
                out.write(json.dumps(record) + "\n")
            print(f"{number}/{len(games)} {path}", file=sys.stderr)
    if arguments.time:
        clock.report()
    if arguments.lens:
        command = [arguments.lens, "env", "replay", "alfworld", "--golden", str(arguments.out)]
        command += ["--data", str(arguments.data)] if arguments.data else []
        sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
