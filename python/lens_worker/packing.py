"""Packs rows into sequences and assigns them to ranks and micro-batches.

A row's tokens after its last asked position cannot affect the result and are left out. Every rank computes
the same plan from the batch alone, so a rerun splits the batch the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """A prompt and response, and the response tokens that are asked about."""

    tokens: Tensor
    """Int64, on the CPU."""
    response_start: int
    asked: Tensor
    """Int64, increasing: indices into the response."""

    @property
    def length(self) -> int:
        """Tokens that go through the model."""
        return self.response_start + int(self.asked[-1]) if len(self.asked) else 0


@dataclass(frozen=True)
class Packed:
    """Concatenated rows, for one pass through a model."""

    tokens: Tensor
    """[1, tokens]"""
    positions: Tensor
    """[1, tokens]: restart at each row, which is how the attention finds the rows' borders"""
    picks: Tensor
    """[asked]: indices of the hidden states that predict the asked tokens, in row order"""
    borders: tuple[int, ...]
    """Where rows begin, and the number of tokens at the end."""

    def to(self, device: torch.device) -> Packed:
        """The same on another device."""
        return Packed(self.tokens.to(device), self.positions.to(device), self.picks.to(device), self.borders)


def pack(rows: Sequence[Row]) -> Packed:
    """Concatenates rows. Without rows the result has one token and no picks: every rank must run a pass."""
    tokens, positions, picks = [], [], []
    borders = [0]
    for row in rows:
        if row.length == 0:
            continue
        tokens.append(row.tokens[: row.length])
        positions.append(torch.arange(row.length))
        picks.append(row.asked + (borders[-1] + row.response_start - 1))
        borders.append(borders[-1] + row.length)
    if not tokens:
        zero = torch.zeros(1, 1, dtype=torch.long)
        return Packed(zero, zero, torch.zeros(0, dtype=torch.long), (0, 1))
    return Packed(torch.cat(tokens)[None], torch.cat(positions)[None], torch.cat(picks), tuple(borders))


Plan = list[list[list[int]]]
"""Per rank, its micro-batches: row indices in increasing order. As many on every rank."""


def assign(lengths: Sequence[int], ranks: int, budget: int) -> Plan:
    """Assigns rows to ranks and micro-batches.

    The longest row goes to the rank with the fewest tokens (the lowest such rank); each rank's rows, in the
    batch's order, are then cut into micro-batches of at most `budget` tokens, one row at least. Rows without
    tokens are left out. Every rank gets one micro-batch at least.
    """
    loads = [0] * ranks
    mine: list[list[int]] = [[] for _ in range(ranks)]
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if lengths[row] == 0:
            continue
        rank = min(range(ranks), key=lambda rank: (loads[rank], rank))
        loads[rank] += lengths[row]
        mine[rank].append(row)
    plan = [_cut(sorted(rows), lengths, budget) for rows in mine]
    most = max(1, *(len(batches) for batches in plan))
    for batches in plan:
        batches.extend([] for _ in range(most - len(batches)))
    return plan


def _cut(rows: list[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    batches: list[list[int]] = []
    tokens = 0
    for row in rows:
        if not batches or tokens + lengths[row] > budget:
            batches.append([])
            tokens = 0
        batches[-1].append(row)
        tokens += lengths[row]
    return batches
