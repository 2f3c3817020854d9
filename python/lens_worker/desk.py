"""Between the threads that answer HTTP and the one thread that works: one command at a time."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field

from .errors import BusyError, WorkerError
from .worker import Reply


@dataclass
class Job:
    """A command under way."""

    command: str
    body: bytes
    started: float = field(default_factory=time.monotonic)
    reply: Reply | WorkerError | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)


class Desk:
    """Takes one command at a time and refuses the others."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Job] = queue.Queue()
        self._lock = threading.Lock()
        self._current: Job | None = None
        self._closed: str | None = None

    @property
    def current(self) -> Job | None:
        """The command under way."""
        return self._current

    def submit(self, command: str, body: bytes) -> Job:
        """Hands in a command and waits until it is done. It is done even if nobody waits any more."""
        with self._lock:
            if self._closed is not None:
                raise BusyError(self._closed)
            if self._current is not None:
                raise BusyError(f"busy with {self._current.command}; one command at a time")
            job = self._current = Job(command, body)
        self._queue.put(job)
        job.ready.wait()
        return job

    def next(self, timeout: float) -> Job | None:
        """The next command, or nothing within `timeout` seconds."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def finish(self, job: Job, reply: Reply | WorkerError) -> None:
        """Answers a command; the next one may come."""
        with self._lock:
            self._current = None
        job.reply = reply
        job.ready.set()

    def close(self, reason: str) -> None:
        """Refuses everything from now on; a command under way gets the reason as its answer."""
        with self._lock:
            self._closed = reason
            job = self._current
        if job is not None:
            self.finish(job, WorkerError(reason))
            job.answered.wait(timeout=5.0)
