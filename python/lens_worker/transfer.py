"""Sends the student's weights into the memory of its servers.

The driver asks for a group (`open_transfer`), lets the servers join it while the worker does
(`join_transfer`), and from then on has each version sent (`transfer`) while the servers receive it. All ranks
gather a tensor, rank 0 sends it.
"""

from __future__ import annotations

import time
from datetime import timedelta

from torch import Tensor

from . import protocol
from .channels import Channel, StoreChannel, UniqueIdChannel
from .errors import RequestError, StateError
from .export import DTYPES, Exporter
from .ranks import Ranks

IN_FLIGHT_BYTES = 1_000_000_000
"""Gathered tensors that may wait for the servers at a time."""


class Transfer:
    """The group with the servers, if there is one."""

    def __init__(self, exporter: Exporter, ranks: Ranks, limit: timedelta) -> None:
        self.exporter, self.ranks, self.limit = exporter, ranks, limit
        self._channel: Channel | None = None
        self._dtype = "bf16"
        self._joined = False

    def open(self, body: bytes) -> dict[str, object]:
        """Prepares a group; the answer says how servers join it, and what they will receive."""
        values = protocol.read_json(body)
        way = protocol.take(values, "rendezvous", str)
        world_size = protocol.take(values, "world_size", int)
        dtype = protocol.take(values, "dtype", str, "bf16")
        group = protocol.take(values, "group", str, "lens")
        address = protocol.take(values, "address", str, "127.0.0.1")
        protocol.nothing_left(values)
        if way not in ("unique_id", "store"):
            raise RequestError(f"field `rendezvous` is {way!r}, expected unique_id or store")
        if world_size < 2:
            raise RequestError(f"field `world_size` is {world_size}: the worker and at least one server make 2")
        if dtype not in DTYPES:
            raise RequestError(f"field `dtype` is {dtype!r}, expected {' or '.join(DTYPES)}")
        self.close()

        def prepare() -> None:
            device = self.ranks.device
            if way == "unique_id":
                self._channel = UniqueIdChannel(world_size, device, self.limit)
            else:
                self._channel = StoreChannel(world_size, group, address, device, self.limit)

        self.ranks.on_first(prepare)
        self._dtype = dtype
        layout = self.exporter.layout()
        answer: dict[str, object] = {
            "dtype": str(DTYPES[dtype]).removeprefix("torch."),
            "names": list(layout),
            "shapes": list(layout.values()),
        }
        if self._channel is not None:
            answer |= {"backend": self._channel.backend, "rendezvous": self._channel.rendezvous()}
        return answer

    def join(self) -> None:
        """Waits for the servers. Collective."""

        def meet() -> None:
            if self._channel is None:
                raise StateError("there is no group to join: open_transfer comes first")
            self._channel.join()

        try:
            self.ranks.on_first(meet)
        except Exception:
            self.close()
            raise
        self._joined = True

    def send(self) -> dict[str, object]:
        """Sends all weights of this moment, in the order the servers were told. Collective."""
        if not self._joined:
            raise StateError("no servers have joined: open_transfer and join_transfer come first")
        started = time.monotonic()
        # Gathering is collective: servers that are gone must not leave the other ranks waiting.
        failure: list[Exception] = []
        held = sent = 0
        for _, tensor in self.exporter.tensors(DTYPES[self._dtype]):
            if not failure:
                try:
                    held = self._send(tensor, held)
                    sent += _bytes(tensor)
                except Exception as error:
                    failure.append(error)

        def finish() -> None:
            if failure:
                raise failure[0]
            if self._channel is not None:
                self._channel.finish()

        try:
            self.ranks.on_first(finish)
        except Exception:
            self.close()
            raise
        return {"bytes": sent, "seconds": round(time.monotonic() - started, 6)}

    def _send(self, tensor: Tensor, held: int) -> int:
        """Sends a tensor; returns the bytes that are still under way."""
        if self._channel is None:
            raise StateError("the group is gone")
        self._channel.send(tensor.contiguous())
        held += _bytes(tensor)
        if held < IN_FLIGHT_BYTES:
            return held
        self._channel.finish()
        return 0

    def close(self) -> None:
        """Leaves the group."""
        channel, self._channel, self._joined = self._channel, None, False
        if channel is not None:
            channel.close()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
