"""Hands commands from the HTTP threads to the main thread, one at a time.

All collectives run on the main thread, in the same order on every rank. A command that was accepted always
runs to its end, whether or not the client still waits for the answer.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field

from .errors import BusyError, WorkerError
from .worker import Reply


@dataclass
class Command:
    """An accepted command and, once it has run, its reply."""

    name: str
    body: bytes
    started: float = field(default_factory=time.monotonic)
    reply: Reply | WorkerError | None = None
    finished: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)
    """Set when the reply was written to the client, or could not be."""


class CommandQueue:
    """Accepts one command at a time; refuses others with `BusyError`."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Command] = queue.Queue()
        self._lock = threading.Lock()
        self._current: Command | None = None
        self._closed: str | None = None

    @property
    def current(self) -> Command | None:
        """The command that is running."""
        return self._current

    def submit(self, name: str, body: bytes) -> Command:
        """Queues a command and blocks until it has finished."""
        with self._lock:
            if self._closed is not None:
                raise BusyError(self._closed)
            if self._current is not None:
                raise BusyError(f"busy with {self._current.name}; one command at a time")
            command = self._current = Command(name, body)
        self._queue.put(command)
        command.finished.wait()
        return command

    def next(self, timeout: float) -> Command | None:
        """Returns the next command, or `None` after `timeout` seconds."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def finish(self, command: Command, reply: Reply | WorkerError) -> None:
        """Stores the reply and accepts the next command."""
        with self._lock:
            self._current = None
        command.reply = reply
        command.finished.set()

    def close(self, reason: str) -> None:
        """Refuses all further commands; a running command fails with `reason`."""
        with self._lock:
            self._closed = reason
            command = self._current
        if command is not None:
            self.finish(command, WorkerError(reason))
            command.answered.wait(timeout=5.0)
