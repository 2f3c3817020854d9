"""A driver's side of the protocol, on plain sockets, and workers started by torchrun."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

HEADERS = {"Authorization": "Bearer open sesame", "X-Lens-Protocol": "1"}


class Client:
    def __init__(self, address: str) -> None:
        self.host, port = address.removeprefix("http://").split(":")
        self.port = int(port)

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            connection.request(method, path, body, HEADERS if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def post(self, command: str, body: bytes | Mapping[str, object] = b"") -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer, _ = self.raw("POST", f"/v1/{command}", data)
        return status, answer

    def json(self, command: str, body: bytes | Mapping[str, object] = b"") -> dict[str, Any]:
        status, answer = self.post(command, body)
        assert status == 200, answer
        found: dict[str, Any] = json.loads(answer)
        return found

    def get(self, name: str) -> tuple[int, dict[str, Any]]:
        status, answer, _ = self.raw("GET", f"/v1/{name}")
        return status, json.loads(answer)


class Torchrun:
    """A worker of several ranks."""

    def __init__(self, ranks: int, *arguments: str) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
            "-m", "lens_worker", "--port", "0", "--device", "cpu", *arguments,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        self.client = Client(self._address())
        self._wait_until_ready()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.append(line)

    def _address(self) -> str:
        for _ in range(1200):
            for line in self.lines:
                if line.startswith('{"listening"'):
                    address: str = json.loads(line)["listening"]
                    return address
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError("the worker did not start:\n" + "".join(self.lines))

    def _wait_until_ready(self) -> None:
        for _ in range(1200):
            if self.client.get("health")[0] == 200:
                return
            time.sleep(0.1)
        raise AssertionError("the worker did not get ready:\n" + "".join(self.lines))

    def children(self) -> list[int]:
        """The ranks' process ids, in the order they were started."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in path.read_text().split()]

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                self.process.kill()


@contextmanager
def torchrun(ranks: int, *arguments: str) -> Iterator[Torchrun]:
    run = Torchrun(ranks, *arguments)
    try:
        yield run
    finally:
        run.kill()
