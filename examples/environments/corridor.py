#!/usr/bin/env python3
"""A corridor of rooms: walk to the treasure and take it.

An environment for `task.benchmark = "stdio"`: JSON lines on standard input and output, no packages needed.
The protocol is docs/reference/stdio-protocol.md.
"""
import json
import sys

TASKS = [
    {"id": f"{split}-{goal}", "kind": "near" if goal < 3 else "far", "split": split, "reset": {"goal": goal}}
    for split, goals in (("train", range(1, 6)), ("test", range(2, 8)))
    for goal in goals
]


class Corridor:
    def __init__(self):
        self.goal, self.room, self.taken, self.text = 1, 0, False, ""

    def reset(self, data):
        self.goal, self.room, self.taken = data["goal"], 0, False
        self.text = "You are in room 0."

    def step(self, action):
        if action == "go east" and self.room < 9:
            self.room += 1
        elif action == "go west" and self.room > 0:
            self.room -= 1
        elif action == "take treasure" and self.room == self.goal:
            self.taken = True
        else:
            self.text = "Nothing happens."
            return
        self.text = "You take the treasure." if self.taken else f"You are in room {self.room}."
        if self.room == self.goal and not self.taken:
            self.text += " There is a treasure."

    def view(self):
        return {
            "type": "view",
            "task": f"find the treasure in room {self.goal}.",
            "observation": self.text,
            "actions": ["go east", "go west", "take treasure"],
            "done": self.taken,
            "success": self.taken,
        }


def answer(game, request):
    kind = request["type"]
    if kind == "hello":
        return {"type": "hello", "version": 1, "snapshot": True, "turn_limit": 12}
    if kind == "tasks":
        return {"type": "tasks", "tasks": TASKS}
    if kind == "snapshot":
        return {"type": "snapshot", "state": vars(game)}
    if kind == "reset":
        game.reset(request["data"])
    elif kind == "step":
        game.step(request["action"])
    elif kind == "restore":
        vars(game).update(request["state"])
    else:
        return {"type": "error", "message": f"unknown request {kind!r}"}
    return game.view()


if __name__ == "__main__":
    corridor = Corridor()
    for line in sys.stdin:
        print(json.dumps(answer(corridor, json.loads(line))), flush=True)
