"""The loop of every rank: wait for a command, run it together, agree on how it went."""

from __future__ import annotations

import traceback

from .errors import WorkerError, packed, unpacked
from .ranks import Ranks
from .server import Door
from .worker import Reply, Worker

IDLE_SECONDS = 30.0
IDLE, SHUTDOWN = "idle", "shutdown"


def lead(worker: Worker, ranks: Ranks, door: Door) -> None:
    """Rank 0: takes commands from the desk and sends them to all."""
    door.info = worker.info()
    while True:
        job = door.desk.next(IDLE_SECONDS)
        if job is None:
            ranks.tell(IDLE.encode() + b"\n")
            continue
        ranks.tell(job.command.encode() + b"\n" + job.body)
        if job.command == SHUTDOWN:
            door.desk.finish(job, Reply.json({"stopping": True}))
            job.answered.wait(timeout=5.0)
            return
        reply = _run(worker, ranks, job.command, job.body)
        door.info = worker.info()
        door.desk.finish(job, reply)


def follow(worker: Worker, ranks: Ranks) -> None:
    """All other ranks: run what rank 0 sends."""
    while True:
        command, _, body = ranks.tell(None).partition(b"\n")
        if command.decode() == SHUTDOWN:
            return
        if command.decode() != IDLE:
            _run(worker, ranks, command.decode(), body)


def _run(worker: Worker, ranks: Ranks, command: str, body: bytes) -> Reply | WorkerError:
    """Runs a command; the answer is the first error of any rank, if there is one."""
    reply: Reply | WorkerError
    try:
        reply = worker.run(command, body)
    except WorkerError as error:
        reply = error
    except Exception as error:
        traceback.print_exc()
        reply = WorkerError(f"{type(error).__name__}: {error}")
    failures = ranks.gather(packed(reply) if isinstance(reply, WorkerError) else b"")
    for failure in failures:
        if failure:
            return unpacked(failure)
    return reply
