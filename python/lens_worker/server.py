"""The HTTP door of rank 0. Every request has a thread; `health` and `info` answer while a step runs."""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from . import PROTOCOL, protocol
from .desk import Desk
from .errors import AuthError, BusyError, NoSuchCallError, RequestError, TooLargeError, WorkerError
from .worker import Reply

COMMANDS = (
    "learn", "score", "cross_context", "publish", "export", "save", "load", "forget", "shutdown",
)  # fmt: skip
BODIES_AT_ONCE = 4
CONTROL_BODY = 1_000_000
"""Bytes of a JSON body."""
BULK = ("learn", "score", "cross_context")


@dataclass
class Door:
    """What the threads that answer know."""

    token: str
    max_body: int
    desk: Desk = field(default_factory=Desk)
    info: dict[str, object] | None = None
    """Set once the models are loaded, and anew after each command."""
    last_collective: Callable[[], float] = time.monotonic
    bodies: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(BODIES_AT_ONCE))

    def health(self) -> tuple[int, dict[str, object]]:
        """Status and body of `GET /v1/health`."""
        job = self.desk.current
        now = time.monotonic()
        ready = self.info is not None
        return (200 if ready else 503), {
            "status": "ok" if ready else "loading",
            "busy": job is not None,
            "command": None if job is None else job.command,
            "seconds_running": None if job is None else round(now - job.started, 3),
            "seconds_since_collective": round(now - self.last_collective(), 3),
            "version": None if self.info is None else self.info["version"],
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    door: ClassVar[Door]

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, act: Callable[[str], None]) -> None:
        try:
            self._check_headers()
            act(self.path)
        except WorkerError as error:
            # The body may not have been read: the connection cannot carry another request.
            self.close_connection = True
            self._send(error.status, Reply(protocol.JSON, error.body()))
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _check_headers(self) -> None:
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.door.token}".encode()):
            raise AuthError("header `Authorization` must be `Bearer` and the token of --token-file")
        if self.headers.get("X-Lens-Protocol") != str(PROTOCOL):
            raise RequestError(
                f"header `X-Lens-Protocol` is {self.headers.get('X-Lens-Protocol')!r}, this worker speaks {PROTOCOL}"
            )

    def _get(self, path: str) -> None:
        if path == "/v1/health":
            status, body = self.door.health()
            self._send(status, Reply.json(body))
        elif path == "/v1/info":
            if self.door.info is None:
                raise BusyError("the models are being loaded")
            self._send(200, Reply.json(self.door.info))
        else:
            raise NoSuchCallError(f"GET {path} is not a call of this protocol")

    def _post(self, path: str) -> None:
        command = path.removeprefix("/v1/")
        if not path.startswith("/v1/") or command not in COMMANDS:
            raise NoSuchCallError(f"POST {path} is not a call of this protocol")
        if self.door.info is None:
            raise BusyError("the models are being loaded")
        if not self.door.bodies.acquire(blocking=False):
            raise BusyError(f"{BODIES_AT_ONCE} requests are being read already")
        try:
            body = self._body(self.door.max_body if command in BULK else CONTROL_BODY)
            job = self.door.desk.submit(command, body)
        finally:
            self.door.bodies.release()
        try:
            if isinstance(job.reply, WorkerError):
                raise job.reply
            if job.reply is not None:
                self._send(200, job.reply)
        finally:
            job.answered.set()

    def _body(self, limit: int) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise RequestError("header `Content-Length` is missing")
        if int(length) > limit:
            raise TooLargeError(f"the body has {length} bytes, at most {limit} are read here")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionError("the connection was cut within the body")
        return body

    def _send(self, status: int, reply: Reply) -> None:
        self.send_response(status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("X-Lens-Protocol", str(PROTOCOL))
        if self.door.info is not None:
            self.send_header("X-Lens-Version", str(self.door.info["version"]))
        if status == BusyError.status:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: ANN401
        """Requests are the driver's business to log."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def open_door(door: Door, host: str, port: int) -> _Server:
    """Starts answering on a thread of its own."""
    handler = type("Handler", (_Handler,), {"door": door})
    server = _Server((host, port), handler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    print(json.dumps({"listening": f"http://{host}:{server.server_port}"}), flush=True)
    return server
