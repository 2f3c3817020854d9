"""Servers made with the openenv package: an echo, a text game and a tool environment.

usage: servers.py KIND PORT
"""
import sys
from typing import List

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Words(Action):
    words: str


class Heard(Observation):
    heard: str = ""


class Echo(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._state = State(episode_id=episode_id, step_count=0)
        return Heard(heard="Say something.")

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        return Heard(heard=action.words, reward=0.5, done=action.words == "goodbye")

    @property
    def state(self):
        return self._state


class Move(Action):
    move: str


class Board(Observation):
    text: str = ""
    legal_actions: List[str] = Field(default_factory=list)
    goal: str = ""


class Stairs(Environment):
    """Climb to a floor."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state, self.floor, self.top = State(), 0, 1

    def list_splits(self):
        return ["train", "test"]

    def num_tasks(self, split):
        return {"train": 4, "test": 2}[split]

    def get_task(self, split, index):
        return {"id": f"{split}-{index}", "kind": "stairs", "floor": index + 1}

    def list_tasks(self, split):
        return [self.get_task(split, index) for index in range(self.num_tasks(split))]

    def get_task_range(self, split, start=None, stop=None):
        return self.list_tasks(split)[start:stop]

    def board(self, **extra):
        goal = f"climb to floor {self.top}"
        return Board(text=f"You are on floor {self.floor}.", legal_actions=["up", "down"], goal=goal, **extra)

    def reset(self, seed=None, episode_id=None, split="train", index=0):
        self._state, self.floor, self.top = State(episode_id=episode_id, step_count=0), 0, index + 1
        return self.board()

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        self.floor = max(0, self.floor + {"up": 1, "down": -1}.get(action.move, 0))
        done = self.floor == self.top
        return self.board(reward=float(done), done=done, metadata={"success": done} if done else {})

    @property
    def state(self):
        return self._state


class Adder(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        mcp = FastMCP("adder")
        self.total = 0

        @mcp.tool()
        def add(number: int) -> int:
            """Add a number to the total."""
            self.total += number
            return self.total

        super().__init__(mcp)
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.total, self._state = 0, State(episode_id=episode_id, step_count=0)
        return Observation(done=False, reward=0.0, metadata={"status": "ready"})

    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation(done=False, reward=0.0)

    @property
    def state(self):
        return self._state


KINDS = {
    "echo": (Echo, Words, Heard),
    "stairs": (Stairs, Move, Board),
    "adder": (Adder, CallToolAction, CallToolObservation),
}

if __name__ == "__main__":
    environment, action, observation = KINDS[sys.argv[1]]
    app = create_app(environment, action, observation, env_name=sys.argv[1], max_concurrent_envs=16)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
