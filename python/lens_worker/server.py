"""The HTTP server of rank 0. Each connection has its own thread, so `health` and `info` answer while a step runs."""

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
from .commands import CommandQueue
from .errors import AuthError, BusyError, NoSuchCallError, RequestError, TooLargeError, WorkerError
from .worker import Reply

COMMANDS = (
    "learn", "score", "cross_context", "publish", "open_transfer", "join_transfer", "transfer", "export", "save",
    "load", "forget", "shutdown",
)  # fmt: skip
BODIES_AT_ONCE = 4
CONTROL_BODY = 1_000_000
"""The largest JSON body, in bytes."""
BULK = ("learn", "score", "cross_context")


@dataclass
class ServerState:
    """What the HTTP threads share with the main thread."""

    token: str
    max_body: int
    commands: CommandQueue = field(default_factory=CommandQueue)
    info: dict[str, object] | None = None
    """`None` while the models load; replaced after each command."""
    last_collective: Callable[[], float] = time.monotonic
    bodies: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(BODIES_AT_ONCE))
    """Bounds the memory of request bodies that are being read."""

    def health(self) -> tuple[int, dict[str, object]]:
        """Returns status and body of `GET /v1/health`."""
        command = self.commands.current
        now = time.monotonic()
        ready = self.info is not None
        return (200 if ready else 503), {
            "status": "ok" if ready else "loading",
            "busy": command is not None,
            "command": None if command is None else command.name,
            "seconds_running": None if command is None else round(now - command.started, 3),
            "seconds_since_collective": round(now - self.last_collective(), 3),
            "version": None if self.info is None else self.info["version"],
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    state: ClassVar[ServerState]

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
        if not hmac.compare_digest(given.encode(), f"Bearer {self.state.token}".encode()):
            raise AuthError("header `Authorization` must be `Bearer` and the token of --token-file")
        if self.headers.get("X-Lens-Protocol") != str(PROTOCOL):
            raise RequestError(
                f"header `X-Lens-Protocol` is {self.headers.get('X-Lens-Protocol')!r}, this worker speaks {PROTOCOL}"
            )

    def _get(self, path: str) -> None:
        if path == "/v1/health":
            status, body = self.state.health()
            self._send(status, Reply.json(body))
        elif path == "/v1/info":
            if self.state.info is None:
                raise BusyError("the models are being loaded")
            self._send(200, Reply.json(self.state.info))
        else:
            raise NoSuchCallError(f"GET {path} is not a call of this protocol")

    def _post(self, path: str) -> None:
        name = path.removeprefix("/v1/")
        if not path.startswith("/v1/") or name not in COMMANDS:
            raise NoSuchCallError(f"POST {path} is not a call of this protocol")
        if self.state.info is None:
            raise BusyError("the models are being loaded")
        if not self.state.bodies.acquire(blocking=False):
            raise BusyError(f"{BODIES_AT_ONCE} requests are being read already")
        try:
            body = self._body(self.state.max_body if name in BULK else CONTROL_BODY)
            command = self.state.commands.submit(name, body)
        finally:
            self.state.bodies.release()
        try:
            if isinstance(command.reply, WorkerError):
                self._send(command.reply.status, Reply(protocol.JSON, command.reply.body()))
            elif command.reply is not None:
                self._send(200, command.reply)
        finally:
            command.answered.set()

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
        if self.state.info is not None:
            self.send_header("X-Lens-Version", str(self.state.info["version"]))
        if status == BusyError.status:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: ANN401
        """Prints nothing: the driver logs its own requests."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def start_server(state: ServerState, host: str, port: int) -> _Server:
    """Starts the server on its own thread and prints its address."""
    handler = type("Handler", (_Handler,), {"state": state})
    server = _Server((host, port), handler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    print(json.dumps({"listening": f"http://{host}:{server.server_port}"}), flush=True)
    return server
