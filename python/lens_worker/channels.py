"""Groups that rank 0 forms with inference servers, to send them tensors without a disk between.

Rank 0 of the worker is rank 0 of the group; the servers' processes are the others, all of them waiting for the
same tensors in the same order. vLLM makes a bare NCCL communicator from a unique id that someone hands it.
SGLang makes a process group of torch over a store whose address it is given.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.cuda import nccl
from torch.distributed import distributed_c10d as c10d

from .errors import RequestError, StateError

POLL_SECONDS = 0.01
Answer = TypeVar("Answer")


class Channel(Protocol):
    """A group with the servers."""

    backend: str

    def rendezvous(self) -> dict[str, object]:
        """What the servers must be told to join."""

    def join(self) -> None:
        """Waits until every server has joined."""

    def send(self, tensor: Tensor) -> None:
        """Sends a tensor to all servers; it must stay as it is until `finish`."""

    def finish(self) -> None:
        """Waits until all that was sent has left."""

    def close(self) -> None:
        """Leaves the group."""


class UniqueIdChannel:
    """A bare NCCL communicator, as vLLM's `nccl` backend makes it."""

    backend = "nccl"

    def __init__(self, world_size: int, device: torch.device, limit: timedelta) -> None:
        if device.type != "cuda":
            raise RequestError(
                "field `rendezvous` is 'unique_id', which needs NCCL, and this worker runs on the CPU: "
                "start it on GPUs, or publish by disk"
            )
        self._world, self._device, self._limit = world_size, device, limit
        self._id: bytes = cast(Any, nccl).unique_id()
        self._communicator: object = None

    def rendezvous(self) -> dict[str, object]:
        return {"nccl_unique_id_b64": base64.b64encode(self._id).decode()}

    def join(self) -> None:
        def meet() -> object:
            torch.cuda.set_device(self._device)
            return cast(Any, nccl).init_rank(self._world, self._id, 0)

        self._communicator = _within(self._limit, meet)
        # Every member adds up one element before anything else is sent, as vLLM's do.
        cast(Any, nccl).all_reduce([torch.zeros(1, device=self._device)], comms=[self._communicator])
        self.finish()

    def send(self, tensor: Tensor) -> None:
        cast(Any, nccl).broadcast([tensor], 0, comms=[self._communicator])

    def finish(self) -> None:
        # A server that went away would be waited for without end; the device is asked instead.
        done = torch.cuda.Event()
        done.record()
        until = time.monotonic() + self._limit.total_seconds()
        while not done.query():
            if time.monotonic() > until:
                raise _nobody(self._limit)
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        self._communicator = None


class StoreChannel:
    """A process group of torch over a store on this machine, as SGLang makes it. On the CPU it uses gloo."""

    def __init__(self, world_size: int, name: str, address: str, device: torch.device, limit: timedelta) -> None:
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        self._world, self._name, self._address, self._limit = world_size, name, address, limit
        try:
            self._store = TCPStore(address, 0, world_size, True, timeout=limit, wait_for_workers=False)
        except (RuntimeError, ValueError) as error:
            raise RequestError(f"field `address` is {address!r}: the worker cannot listen there: {error}") from error
        self._group: dist.ProcessGroup | None = None
        self._sent: list[tuple[dist.Work, Tensor]] = []

    def rendezvous(self) -> dict[str, object]:
        return {"master_address": self._address, "master_port": self._store.port, "group_name": self._name}

    def join(self) -> None:
        def meet() -> dist.ProcessGroup:
            # The same call as at the other end, so that both look for the same keys in the store.
            group, _ = cast(Any, c10d)._new_process_group_helper(
                self._world, 0, [], dist.Backend(self.backend), PrefixStore(self._name, self._store),
                group_name=self._name, timeout=self._limit,
            )  # fmt: skip
            # A group of which torch does not know these cannot be left again.
            cast(Any, c10d)._world.pg_group_ranks[group] = {rank: rank for rank in range(self._world)}
            return cast(dist.ProcessGroup, group)

        try:
            self._group = _within(self._limit, meet)
        except RuntimeError as error:
            raise StateError(f"the servers did not join: {error}") from error

    def send(self, tensor: Tensor) -> None:
        if self._group is None:
            raise StateError("the servers have not joined")
        self._sent.append((cast(Any, self._group).broadcast(tensor, 0), tensor))

    def finish(self) -> None:
        sent, self._sent = self._sent, []
        try:
            for work, _ in sent:
                work.wait()
        except RuntimeError as error:
            raise StateError(f"a server did not take a tensor: {error}") from error

    def close(self) -> None:
        self._sent = []
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None


def _nobody(limit: timedelta) -> StateError:
    return StateError(
        f"not every server was there within {limit.total_seconds():.0f} s; look at their output, restart the "
        "worker and the servers, then resume the run"
    )


def _within(limit: timedelta, act: Callable[[], Answer]) -> Answer:
    """Runs what may wait without end on a thread that can be left behind."""
    answers: list[Answer] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(act())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="rendezvous", daemon=True)
    thread.start()
    thread.join(limit.total_seconds() + 5.0)
    if errors:
        raise errors[0]
    if not answers:
        raise _nobody(limit)
    return answers[0]
