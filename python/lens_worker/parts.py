"""Builds micro-batches: packs rows and groups their positions by loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import RequestError
from .head import ChunkLoss, Part
from .model import Teacher
from .packing import Packed, Row, pack
from .requests import Learn
from .supervision import (
    FullForward,
    FullReverse,
    Kind,
    Likelihood,
    ListedForward,
    ListedReverse,
    PolicyGradient,
    TeacherTopReverse,
    on,
)
from .targets import Target, Targets


@dataclass(frozen=True)
class MicroBatch:
    """Rows for one pass, and what the head needs at each asked position."""

    packed: Packed
    coefficients: Tensor
    kinds: Tensor
    parts: list[Part]


def learn_rows(batch: Learn) -> list[Row]:
    """The rows with the response tokens that have a loss."""
    rows = []
    for index in range(len(batch.rows)):
        asked = batch.coefficients[batch.rows.place(index)].nonzero().squeeze(1)
        rows.append(Row(batch.rows.row(index), batch.rows.response_start[index], asked))
    return rows


def find_targets(batch: Learn, targets: Targets) -> dict[int, Target]:
    """The kept targets of a batch's rows, by row."""
    found = {}
    for row, key in enumerate(batch.target_keys):
        if key < 0:
            continue
        target = found[row] = targets.get(key, row, len(batch.rows.response(row)))
        if target.hidden is not None and target.version not in targets.heads:
            raise RequestError(f"tensor `target_key`: the head of snapshot {target.version} is no longer kept")
    return found


class Builder:
    """Makes the micro-batches of one train batch."""

    def __init__(
        self,
        batch: Learn,
        rows: list[Row],
        found: dict[int, Target],
        targets: Targets,
        teacher: Teacher | None,
        device: torch.device,
    ) -> None:
        self.batch, self.rows, self.found, self.targets = batch, rows, found, targets
        self.teacher, self.device = teacher, device
        self.asking = {row for row, kind in enumerate(batch.kinds) if self._asks_teacher(row, kind)}

    def _asks_teacher(self, row: int, kind: Kind) -> bool:
        return kind == Kind.RKL_FULL or (kind == Kind.RKL_TOPK and row not in self.batch.listed)

    def build(self, chosen: list[int]) -> MicroBatch:
        """The micro-batch of some rows. All ranks must build at the same time: the teacher's pass is collective."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for row in chosen:
            groups.setdefault(self._group(row), []).append(row)
        members = [groups[group] for group in sorted(groups)]
        ordered = [row for group in members for row in group]
        states = self._teacher_states(ordered)
        parts, start = [], 0
        for group in members:
            stop = start + sum(len(self.rows[row].asked) for row in group)
            parts.append(Part(start, stop, self._loss(group, states)))
            start = stop
        kinds = [torch.full((len(self.rows[row].asked),), int(self.batch.kinds[row])) for row in ordered]
        return MicroBatch(
            pack([self.rows[row] for row in ordered]),
            torch.cat([torch.zeros(0), *(self._coefficients(row) for row in ordered)]),
            torch.cat([torch.zeros(0, dtype=torch.long), *kinds]),
            parts,
        )

    def _group(self, row: int) -> tuple[int, ...]:
        """Rows of one group share a loss: of one kind, and kept targets of one form."""
        kind, target = int(self.batch.kinds[row]), self.found.get(row)
        if target is None:
            return (kind,)
        if target.ids is not None:
            return kind, 0, target.ids.shape[1]
        return kind, 1, target.version

    def _coefficients(self, row: int) -> Tensor:
        mine = self.batch.coefficients[self.batch.rows.place(row)][self.rows[row].asked]
        # The policy gradient carries the factor in its advantage; kept targets and tokens have none.
        if self.batch.kinds[row] in (Kind.RKL_FULL, Kind.RKL_TOPK):
            return mine * self.batch.constants.kl_coef
        return mine

    def _teacher_states(self, ordered: list[int]) -> dict[int, Tensor]:
        if not self.asking:
            return {}
        if self.teacher is None:
            raise RequestError("rows ask a teacher, but the worker was started without --teacher")
        mine = [row for row in ordered if row in self.asking]
        hidden = self.teacher.infer(pack([self.rows[row] for row in mine]).to(self.device))
        lengths = [len(self.rows[row].asked) for row in mine]
        return dict(zip(mine, hidden.split(lengths), strict=True)) if mine else {}

    def _loss(self, group: list[int], states: dict[int, Tensor]) -> ChunkLoss:
        batch, kind = self.batch, self.batch.kinds[group[0]]
        if kind in (Kind.K1_PG, Kind.NLL):
            tokens = self._asked(group, batch.rows.response)
            if kind == Kind.NLL:
                return Likelihood(tokens)
            teacher = self._asked(group, _slices(batch.teacher_logprobs, batch.sampled))
            rollout = self._asked(group, _slices(batch.rollout_logprobs, batch.sampled))
            return PolicyGradient(tokens, teacher, rollout, batch.constants)
        if kind == Kind.FORWARD_KL:
            return self._kept(group)
        if group[0] in batch.listed:
            ids = self._asked(group, _slices(batch.top_ids, batch.listed))
            logprobs = self._asked(group, _slices(batch.top_logprobs, batch.listed))
            return (ListedReverse if kind == Kind.RKL_TOPK else ListedForward)(ids, logprobs)
        if self.teacher is None:
            raise RequestError("rows ask a teacher, but the worker was started without --teacher")
        hidden = torch.cat([states[row] for row in group])
        if kind == Kind.RKL_FULL:
            return FullReverse(hidden, self.teacher.head)
        return TeacherTopReverse(hidden, self.teacher.head, batch.top_k)

    def _kept(self, group: list[int]) -> ChunkLoss:
        kept = {row: self.found[row] for row in group}
        version = kept[group[0]].version
        if kept[group[0]].hidden is not None:
            hidden = self._asked(group, lambda row: kept[row].hidden)
            return FullForward(hidden, *on(self.device, self.targets.heads[version]))
        ids = self._asked(group, lambda row: kept[row].ids)
        return ListedForward(ids, self._asked(group, lambda row: kept[row].logprobs))

    def _asked(self, group: list[int], values: Callable[[int], Tensor | None]) -> Tensor:
        """Per-token values of a group's rows at their asked positions, on the device."""
        found = []
        for row in group:
            value = values(row)
            if value is None:
                raise RequestError(f"row {row} has no target")
            found.append(value[self.rows[row].asked])
        return torch.cat(found).to(self.device)


def _slices(values: Tensor | None, places: dict[int, slice]) -> Callable[[int], Tensor | None]:
    return lambda row: None if values is None else values[places[row]]
