"""The process group and the control channel between ranks.

Commands and results travel over gloo as bytes; weights and gradients use FSDP's own collectives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .errors import WorkerError, packed, unpacked

CONTROL_TIMEOUT = timedelta(hours=24)
"""Other ranks wait for the next command while rank 0 alone writes a large export."""


class Ranks:
    """This process among the others."""

    def __init__(self, device: torch.device, timeout: timedelta) -> None:
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timeout)
        self.device = device
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.mesh: DeviceMesh = init_device_mesh(device.type, (self.world,))
        self._control = dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT)
        self.last_collective = time.monotonic()

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which answers HTTP and writes files."""
        return self.rank == 0

    def broadcast(self, message: bytes | None) -> bytes:
        """Sends rank 0's message to every rank and returns it."""
        size = torch.tensor([len(message) if message is not None else 0])
        dist.broadcast(size, 0, group=self._control)
        data = torch.empty(int(size), dtype=torch.uint8)
        if message is not None and message:
            data = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        if len(data):
            dist.broadcast(data, 0, group=self._control)
        self._done()
        return message if message is not None else data.numpy().tobytes()

    def gather(self, message: bytes) -> list[bytes]:
        """Returns every rank's message, on every rank."""
        sizes = torch.zeros(self.world, dtype=torch.int64)
        sizes[self.rank] = len(message)
        dist.all_reduce(sizes, group=self._control)
        longest = max(1, int(sizes.max()))
        mine = torch.zeros(longest, dtype=torch.uint8)
        if message:
            mine[: len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        parts = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(parts, mine, group=self._control)
        self._done()
        return [part[: int(size)].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]

    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks of float64 values, the same bits on every rank."""
        total = values.detach().double().cpu()
        dist.all_reduce(total, group=self._control)
        self._done()
        return total

    def on_first(self, action: Callable[[], None]) -> None:
        """Runs an action on rank 0 only; its error is raised on every rank."""
        failure = b""
        if self.first:
            try:
                action()
            except WorkerError as error:
                failure = packed(error)
            except Exception as error:
                failure = packed(WorkerError(f"{type(error).__name__}: {error}"))
        failure = self.broadcast(failure if self.first else None)
        if failure:
            raise unpacked(failure)

    def barrier(self) -> None:
        """Waits for all ranks."""
        dist.barrier(group=self._control)
        self._done()

    def _done(self) -> None:
        self.last_collective = time.monotonic()


def local_device(wanted: str) -> torch.device:
    """The device of this process: `auto` takes the GPU of its local rank where there is one."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device
