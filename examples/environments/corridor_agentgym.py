#!/usr/bin/env python3
"""The corridor of corridor.py behind AgentGym's protocol: JSON over HTTP, no packages needed.

usage: corridor_agentgym.py PORT         (0 takes a free one)

An environment for `task.benchmark = "agentgym"`; the protocol is docs/reference/agentgym.md. Its task file has lines such
as {"id": "room 3", "split": "train", "reset": {"data_idx": 3}}.
"""
import itertools
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from corridor import Corridor

ROOMS, environments, numbers = 8, {}, itertools.count()


def create(_):
    environments[number := next(numbers)] = Corridor()
    return {"id": number}


def reset(body):
    if not 0 <= body["data_idx"] < ROOMS:
        raise ValueError(f"there is no task {body['data_idx']}")
    environments[body["id"]].reset({"goal": body["data_idx"] + 1})
    return answer(body["id"])


def step(body):
    environments[body["id"]].step(body["action"])
    return answer(body["id"])


def close(body):
    return environments.pop(body["id"], None) is not None


def answer(number):
    view = environments[number].view()
    return {"goal": view["task"], "observation": view["observation"], "available_actions": view["actions"],
            "reward": float(view["success"]), "done": view["done"]}


ROUTES = {"/create": create, "/reset": reset, "/step": step, "/close": close}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet per answer; two would wait for each other

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path not in ROUTES:
            return self.reply(404, {})
        try:
            self.reply(200, ROUTES[self.path](body))
        except (KeyError, TypeError, ValueError) as error:
            self.reply(200, {"error": str(error)})

    def do_GET(self):
        self.reply(200 if self.path == "/open" else 404, {"open": len(environments)})

    def reply(self, status, content):
        content = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
