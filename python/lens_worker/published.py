"""The published weights, kept while training moves on.

The driver may explore the next batch with the published student while the optimizer steps (`train.overlap`).
Scores and targets of that batch must come from the published weights, not from the ones being trained. Each
rank keeps a copy of its own shards; to answer, copy and training weights change places, and change back
afterwards. FSDP gathers from the same storage as ever and notices nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from .model import Student


class Published:
    """At most one copy of the trained parameters; what is frozen needs none."""

    def __init__(self, student: Student) -> None:
        self._trained = student.trained()
        self._copies: dict[str, DTensor] = {}
        self.version: int | None = None
        """Of the copy; `None` without one."""

    @torch.no_grad()
    def keep(self, version: int) -> None:
        """Copies the weights of this moment."""
        self.reserve()
        for name, weight in self._trained.items():
            self._copies[name].copy_(weight)
        self.version = version

    def reserve(self) -> dict[str, DTensor]:
        """Allocates the copy where there is none; until it is filled, it is of no version."""
        self.version = None
        if not self._copies:
            empty = {name: torch.empty_like(weight.detach()) for name, weight in self._trained.items()}
            self._copies = cast(dict[str, DTensor], empty)
        return self._copies

    def drop(self) -> None:
        """Frees the copy."""
        self.version = None
        self._copies = {}

    def copies(self) -> dict[str, DTensor]:
        """The copy, by the parameters' names."""
        return self._copies

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts the copy where the trained weights are, and puts them back."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        # Three exclusive ors need no memory, so nothing can fail halfway; bits, not numbers, so NaN survives too.
        for name, weight in self._trained.items():
            ours, theirs = _bits(weight), _bits(self._copies[name])
            ours ^= theirs
            theirs ^= ours
            ours ^= theirs


def _bits(weight: DTensor) -> Tensor:
    return cast(DTensor, weight.detach()).to_local().view(torch.int32)
