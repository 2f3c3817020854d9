"""The main loop: rank 0 broadcasts each command, all ranks run it, and all agree on the outcome."""

from __future__ import annotations

import traceback

from .errors import WorkerError, packed, unpacked
from .ranks import Ranks
from .server import ServerState
from .worker import Reply, Worker

IDLE_SECONDS = 30.0
"""Without commands, rank 0 broadcasts this often, so that a dead rank is noticed."""
IDLE, SHUTDOWN = "idle", "shutdown"


def lead(worker: Worker, ranks: Ranks, state: ServerState) -> None:
    """Runs rank 0 until a `shutdown` command."""
    state.info = worker.info()
    while True:
        command = state.commands.next(IDLE_SECONDS)
        if command is None:
            ranks.broadcast(IDLE.encode() + b"\n")
            continue
        ranks.broadcast(command.name.encode() + b"\n" + command.body)
        if command.name == SHUTDOWN:
            state.commands.finish(command, Reply.json({"stopping": True}))
            command.answered.wait(timeout=5.0)
            return
        reply = _run(worker, ranks, command.name, command.body)
        state.info = worker.info()
        state.commands.finish(command, reply)


def follow(worker: Worker, ranks: Ranks) -> None:
    """Runs any other rank until a `shutdown` command."""
    while True:
        name, _, body = ranks.broadcast(None).partition(b"\n")
        if name.decode() == SHUTDOWN:
            return
        if name.decode() != IDLE:
            _run(worker, ranks, name.decode(), body)


def _run(worker: Worker, ranks: Ranks, name: str, body: bytes) -> Reply | WorkerError:
    """Runs a command and returns the reply, or the error of the lowest rank that failed."""
    reply: Reply | WorkerError
    try:
        reply = worker.run(name, body)
    except WorkerError as error:
        reply = error
    except Exception as error:
        traceback.print_exc()
        reply = WorkerError(f"{type(error).__name__}: {error}")
    failures = ranks.gather(packed(reply) if isinstance(reply, WorkerError) else b"")
    first = next((failure for failure in failures if failure), None)
    if first is None:
        return reply
    reported = unpacked(first)
    if not all(failures):
        worker.distrust(f"{name} failed on some ranks only ({reported})")
    return reported
