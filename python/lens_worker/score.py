"""Scores responses with both models, over the whole vocabulary."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from . import protocol
from .head import chunks, log_probabilities
from .losses import PAD
from .model import Student, Teacher
from .packing import Row, assign, pack
from .ranks import Ranks
from .requests import Score

NUMBERS = (
    "teacher_logprob", "student_logprob", "kl",
    "student_at_student", "student_at_teacher", "teacher_at_teacher", "teacher_at_student",
)  # fmt: skip
IDS = ("student_top", "teacher_top")


@dataclass(frozen=True)
class _Places:
    """Some response tokens: where they stand in the answer, and what is asked of each."""

    at: Tensor
    tokens: Tensor
    temperature: Tensor
    asked: Tensor | None

    def part(self, rows: slice) -> _Places:
        asked = None if self.asked is None else self.asked[rows]
        return _Places(self.at[rows], self.tokens[rows], self.temperature[rows], asked)


class Scorer:
    """Both models, reading packed rows."""

    def __init__(self, student: Student, teacher: Teacher | None, ranks: Ranks, *, real_vocab: int, chunk: int) -> None:
        self.student, self.teacher, self.ranks = student, teacher, ranks
        self.real_vocab, self.chunk = real_vocab, chunk

    def score(self, batch: Score) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The answer's tensors (the same on every rank) and metadata."""
        started = time.monotonic()
        rows = [
            Row(
                batch.rows.row(index),
                batch.rows.response_start[index],
                torch.arange(len(batch.rows.response(index))),
            )
            for index in range(len(batch.rows))
        ]
        plan = assign([row.length for row in rows], self.ranks.world, batch.token_budget)
        answer = self._empty(batch)
        for chosen in plan[self.ranks.rank]:
            self._micro_batch(batch, rows, chosen, answer)
        parts = self.ranks.gather(protocol.write_tensors(answer, {}))
        for rank, part in enumerate(parts):
            if rank == self.ranks.rank:
                continue
            theirs = protocol.read_tensors(part)
            places = [batch.rows.place(row) for turn in plan[rank] for row in turn]
            for name, mine in answer.items():
                found = theirs.tensor(name, mine.dtype, *mine.shape)
                for place in places:
                    mine[place] = found[place]
        divergence = "full" if self.teacher is not None and any(batch.compare) else "none"
        return answer, {"divergence": divergence, "seconds": f"{time.monotonic() - started:.6f}"}

    def _empty(self, batch: Score) -> dict[str, Tensor]:
        count = batch.rows.responses
        answer = {name: torch.full((count,), torch.nan) for name in NUMBERS}
        answer |= {name: torch.full((count,), PAD, dtype=torch.int32) for name in IDS}
        if batch.asked is not None:
            for name in ("student_at_asked", "teacher_at_asked"):
                answer[name] = torch.full(batch.asked.shape, torch.nan)
        if batch.top_k > 0:
            answer["teacher_top_ids"] = torch.full((count, batch.top_k), PAD, dtype=torch.int32)
            answer["teacher_top_logprobs"] = torch.full((count, batch.top_k), torch.nan)
        return answer

    def _micro_batch(self, batch: Score, rows: list[Row], chosen: list[int], answer: dict[str, Tensor]) -> None:
        """Rows that are compared come first; the teacher reads all of them, the student those."""
        compared = [row for row in chosen if batch.compare[row]]
        alone = [row for row in chosen if not batch.compare[row]]
        both, one = self._places(batch, compared), self._places(batch, alone)
        teacher, seen = self.teacher, None
        if teacher is not None:
            seen = teacher.infer(pack([rows[row] for row in compared + alone]).to(self.ranks.device))
            for part in chunks(len(one.at), self.chunk):
                hidden = seen[len(both.at) :][part]
                self._teacher_only(one.part(part), hidden, teacher.head, answer, batch.top_k)
        if not any(batch.compare):
            return

        def read(hidden: Tensor, weight: Tensor) -> None:
            real = weight[: self.real_vocab]
            for part in chunks(len(both.at), self.chunk):
                student = log_probabilities(hidden[part], real)
                if teacher is None or seen is None:
                    self._student_only(both.part(part), student, answer)
                    continue
                theirs = self._teacher_only(both.part(part), seen[part], teacher.head, answer, batch.top_k)
                self._student_only(both.part(part), student, answer)
                _compare(both.part(part).at, student, theirs, answer)

        self.student.infer(pack([rows[row] for row in compared]).to(self.ranks.device), read)

    def _places(self, batch: Score, chosen: list[int]) -> _Places:
        nothing = torch.zeros(0, dtype=torch.long)
        spans = [torch.arange(batch.rows.place(row).start, batch.rows.place(row).stop) for row in chosen]
        at = torch.cat([nothing, *spans])
        tokens = torch.cat([nothing, *(batch.rows.response(row) for row in chosen)])
        owners = torch.cat([nothing, *(torch.full((len(span),), row) for row, span in zip(chosen, spans, strict=True))])
        device = self.ranks.device
        asked = None if batch.asked is None else batch.asked[at].to(device)
        return _Places(at, tokens.to(device), batch.temperature[owners].to(device), asked)

    def _teacher_only(
        self, places: _Places, hidden: Tensor, head: Tensor, answer: dict[str, Tensor], top_k: int
    ) -> Tensor:
        """Fills in the teacher's own numbers; returns its log-probabilities at temperature 1."""
        plain = log_probabilities(hidden, head)
        warm = plain
        if bool((places.temperature != 1.0).any()):
            warm = log_probabilities(hidden, head, places.temperature)
        _put(answer, "teacher_logprob", places.at, _at(warm, places.tokens))
        if places.asked is not None:
            _put(answer, "teacher_at_asked", places.at, _at_lists(plain, places.asked))
        if top_k > 0:
            top = plain.topk(top_k, dim=1)
            _put(answer, "teacher_top_ids", places.at, top.indices)
            _put(answer, "teacher_top_logprobs", places.at, top.values)
        return plain

    def _student_only(self, places: _Places, student: Tensor, answer: dict[str, Tensor]) -> None:
        best = student.argmax(dim=1)
        _put(answer, "student_logprob", places.at, _at(student, places.tokens))
        _put(answer, "student_top", places.at, best)
        _put(answer, "student_at_student", places.at, _at(student, best))
        if places.asked is not None:
            _put(answer, "student_at_asked", places.at, _at_lists(student, places.asked))


def _compare(at: Tensor, student: Tensor, teacher: Tensor, answer: dict[str, Tensor]) -> None:
    """Fills in the numbers that need both models, at temperature 1. Ties go to the lowest id."""
    ours, theirs = student.argmax(dim=1), teacher.argmax(dim=1)
    _put(answer, "teacher_top", at, theirs)
    _put(answer, "student_at_teacher", at, _at(student, theirs))
    _put(answer, "teacher_at_teacher", at, _at(teacher, theirs))
    _put(answer, "teacher_at_student", at, _at(teacher, ours))
    _put(answer, "kl", at, torch.linalg.vecdot(student.exp(), student - teacher))


def _at(log_probs: Tensor, tokens: Tensor) -> Tensor:
    return log_probs.gather(1, tokens[:, None]).squeeze(1)


def _at_lists(log_probs: Tensor, ids: Tensor) -> Tensor:
    found = log_probs.gather(1, ids.clamp_min(0))
    return torch.where(ids == PAD, torch.nan, found)


def _put(answer: dict[str, Tensor], name: str, at: Tensor, values: Tensor) -> None:
    answer[name][at] = values.to(answer[name].dtype).cpu()
