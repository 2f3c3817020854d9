"""Serves ALFWorld as its own Python engine plays it, by OpenEnv's protocol: the peer of `lens env serve alfworld`.

Needs: pip install openenv==0.10.0 textworld==1.7.0 fast-downward-textworld==20.6.4 alfworld==0.4.2

    lens data alfworld export --template GAME_OR_PACKAGE --out games --split train --limit 64
    python benches/peers/alfworld_openenv.py games 9000
    lens env bench openenv --url http://127.0.0.1:9000 --sessions 1,64,512 --steps 2048 \\
        --against alfworld --data games

Both sides play the same games through the same client. TextWorld is not safe in threads, so the sessions of the Python
server take turns; under its interpreter lock they would anyway.
"""

import os
import sys
import threading
from pathlib import Path

os.environ.setdefault("ALFWORLD_DATA", "/nonexistent")

import textworld  # noqa: E402
import uvicorn  # noqa: E402
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler  # noqa: E402
from openenv.core.env_server.http_server import create_app  # noqa: E402
from openenv.core.env_server.interfaces import Environment  # noqa: E402
from openenv.core.env_server.types import Action, Observation, State  # noqa: E402

# Read once: the planner writes its own arguments into `sys.argv`.
ROOT, PORT = Path(sys.argv[1]), int(sys.argv[2])
GAMES = sorted(ROOT.rglob("game.tw-pddl"))
# TextWorld's parsers keep their state in the module: two games loaded or played at once break each other.
ENGINE = threading.Lock()
INFOS = textworld.EnvInfos(won=True, admissible_commands=True)


class Command(Action):
    command: str


class Room(Observation):
    text: str = ""
    task: str = ""
    admissible_actions: list[str] = []


class Alfworld(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.game, self._state = None, State()

    def list_splits(self):
        return ["train"]

    def num_tasks(self, split):
        return len(GAMES)

    def get_task(self, split, index):
        return {"id": str(GAMES[index].parent.relative_to(ROOT))}

    def list_tasks(self, split):
        return [self.get_task(split, index) for index in range(len(GAMES))]

    def get_task_range(self, split, start=None, stop=None):
        return self.list_tasks(split)[start:stop]

    def room(self, game, done, won):
        commands = list(game["admissible_commands"])
        return Room(text=game.feedback, admissible_actions=commands, reward=float(won), done=done)

    def reset(self, seed=None, episode_id=None, split="train", index=0):
        self._state = State(episode_id=episode_id, step_count=0)
        with ENGINE:
            if self.game is not None:
                self.game.close()
            self.game = textworld.start(str(GAMES[index]), INFOS, wrappers=[AlfredDemangler])
            return self.room(self.game.reset(), False, False)

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        with ENGINE:
            game, _, done = self.game.step(action.command)
            return self.room(game, done, game["won"])

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    app = create_app(Alfworld, Command, Room, env_name="alfworld", max_concurrent_envs=1024)
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
