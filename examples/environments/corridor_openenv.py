#!/usr/bin/env python3
"""The corridor of corridor.py as an OpenEnv server, with tasks and with snapshots by standard messages.

usage: corridor_openenv.py PORT          (needs pip install openenv==0.10.0)

An environment for `task.benchmark = "openenv"`; docs/reference/openenv.md says how forks use the token in the state.
"""
import sys

import uvicorn
from corridor import TASKS, Corridor
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Command(Action):
    command: str


class Room(Observation):
    text: str = ""
    task: str = ""
    legal_actions: list[str] = []


class CorridorEnvironment(Environment):
    """Walk to the treasure and take it."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.corridor, self.episode, self.steps = Corridor(), None, 0

    def list_splits(self):
        return ["train", "test"]

    def list_tasks(self, split):
        return [task for task in TASKS if task["split"] == split]

    def num_tasks(self, split):
        return len(self.list_tasks(split))

    def get_task(self, split, index):
        return self.list_tasks(split)[index]

    def get_task_range(self, split, start=None, stop=None):
        return self.list_tasks(split)[start:stop]

    def room(self, **metadata):
        view = self.corridor.view()
        if view["done"]:
            metadata["success"] = view["success"]
        return Room(text=view["observation"], task=view["task"], legal_actions=view["actions"],
                    reward=float(view["success"]), done=view["done"], metadata=metadata)

    def reset(self, seed=None, episode_id=None, split="train", index=0, injected_state=None):
        self.episode, self.steps = episode_id, 0
        if injected_state is not None:
            self.steps = injected_state.pop("steps")
            vars(self.corridor).update(injected_state)
            # A client must not take a new episode for the restored one.
            return self.room(restored=True)
        self.corridor.reset(self.get_task(split, index)["reset"])
        return self.room()

    def step(self, action, timeout_s=None, **kwargs):
        self.steps += 1
        self.corridor.step(action.command)
        return self.room()

    @property
    def state(self):
        return State(episode_id=self.episode, step_count=self.steps, snapshot={**vars(self.corridor), "steps": self.steps})


if __name__ == "__main__":
    app = create_app(CorridorEnvironment, Command, Room, env_name="corridor", max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
