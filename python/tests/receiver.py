"""Stands for an inference server that takes weights over a process group, the way SGLang does.

It knows nothing of the worker's code. Run as a program it listens for two HTTP calls with SGLang's bodies,
`/init_weights_update_group` and `/update_weights_from_distributed`, loads what it receives into a transformers
model and saves that model after each call: `python receiver.py MODEL OUTPUT`.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous
from transformers import AutoModelForCausalLM

LIMIT = timedelta(seconds=60)


class Receiver:
    def __init__(self, model: Path, output: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        self.model = cast(Any, AutoModelForCausalLM.from_pretrained(model, dtype=dtype, local_files_only=True))
        self.output = output
        self.groups: dict[str, dist.ProcessGroup] = {}

    def join(self, body: dict[str, Any]) -> None:
        name = body["group_name"]
        meeting = rendezvous(
            f"tcp://{body['master_address']}:{body['master_port']}", body["rank_offset"], body["world_size"],
            timeout=LIMIT,
        )  # fmt: skip
        store, rank, world_size = next(cast(Any, meeting))
        group, _ = cast(Any, c10d)._new_process_group_helper(
            world_size, rank, [], dist.Backend(body["backend"]), PrefixStore(name, store),
            group_name=name, timeout=LIMIT,
        )  # fmt: skip
        self.groups[name] = group

    def receive(self, body: dict[str, Any]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, dtype, shape in zip(body["names"], body["dtypes"], body["shapes"], strict=True):
            found[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            cast(Any, self.groups[body["group_name"]]).broadcast(found[name], 0).wait()
        unknown = self.model.load_state_dict(found, strict=False).unexpected_keys
        assert not unknown, unknown
        self.model.save_pretrained(self.output)
        return found


def main() -> None:
    receiver = Receiver(Path(sys.argv[1]), Path(sys.argv[2]))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer: dict[str, object] = {"success": True, "message": ""}
            try:
                if self.path == "/init_weights_update_group":
                    receiver.join(body)
                else:
                    receiver.receive(body)
            except Exception as error:
                answer = {"success": False, "message": f"{type(error).__name__}: {error}"}
            data = json.dumps(answer).encode()
            self.send_response(200 if answer["success"] else 400)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"listening": f"http://127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
