"""Computes the targets of guidance internalization.

The student scores each response after the hinted prompt and after the plain prompt. Its distributions under
the hint are kept as the target; the mean `KL(hinted || plain)` is the internalization gap.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import protocol
from .head import chunks, log_probabilities
from .model import Student
from .packing import Row, assign, pack
from .ranks import Ranks
from .requests import CrossContext
from .targets import Target, Targets, top_of


class Internalizer:
    """Computes targets on all ranks and keeps them on every rank."""

    def __init__(self, student: Student, ranks: Ranks, *, real_vocab: int, chunk: int, exact: bool, top_k: int) -> None:
        self.student, self.ranks = student, ranks
        self.real_vocab, self.chunk, self.exact, self.top_k = real_vocab, chunk, exact, top_k

    def targets(self, batch: CrossContext, version: int, kept: Targets) -> tuple[Tensor, Tensor]:
        """Returns each row's gap and the key of its target."""
        sides = [self._rows(prompts, batch.responses) for prompts in (batch.hinted, batch.plain)]
        lengths = [hinted.length + plain.length for hinted, plain in zip(*sides, strict=True)]
        mine: dict[str, Tensor] = {}
        for chosen in assign(lengths, self.ranks.world, batch.token_budget)[self.ranks.rank]:
            self._micro_batch(sides, chosen, version, mine, kept)
        found: dict[str, Tensor] = {}
        for part in self.ranks.gather(protocol.write_tensors(mine, {})):
            found |= protocol.read_tensors(part).all()
        keys = []
        for row in range(len(batch.responses)):
            names = ("hidden",) if self.exact else ("ids", "logprobs")
            keys.append(kept.keep(Target(version, **{name: found[f"{row}.{name}"] for name in names})))
        gaps = torch.stack([found[f"{row}.gap"] for row in range(len(batch.responses))])
        return gaps, torch.tensor(keys)

    def _rows(self, prompts: list[Tensor], responses: list[Tensor]) -> list[Row]:
        return [
            Row(torch.cat([prompt, response]), len(prompt), torch.arange(len(response)))
            for prompt, response in zip(prompts, responses, strict=True)
        ]

    def _micro_batch(
        self, sides: list[list[Row]], chosen: list[int], version: int, mine: dict[str, Tensor], kept: Targets
    ) -> None:
        """Runs both contexts of some rows in one pass."""
        hinted, plain = ([side[row] for row in chosen] for side in sides)
        sizes = [len(row.asked) for row in hinted]
        total = sum(sizes)

        def read(hidden: Tensor, weight: Tensor) -> None:
            real = weight[: self.real_vocab]
            if self.exact and version not in kept.heads:
                kept.heads[version] = real.detach().cpu().clone()
            gaps: list[Tensor] = [torch.zeros(0, dtype=torch.float64)]
            tops: list[tuple[Tensor, Tensor]] = []
            for part in chunks(total, self.chunk):
                with_hint = log_probabilities(hidden[:total][part], real)
                if not self.exact:
                    ids, logprobs = top_of(with_hint, self.top_k)
                    tops.append((ids.cpu(), logprobs.cpu()))
                without = log_probabilities(hidden[total:][part], real)
                kl = torch.linalg.vecdot(with_hint.exp(), with_hint - without)
                gaps.append(kl.double().cpu())
            if not chosen:
                return
            self._store(chosen, sizes, "gap", torch.cat(gaps), mine)
            if self.exact:
                self._store(chosen, sizes, "hidden", hidden[:total].cpu(), mine)
            else:
                self._store(chosen, sizes, "ids", torch.cat([top[0] for top in tops]), mine)
                self._store(chosen, sizes, "logprobs", torch.cat([top[1] for top in tops]), mine)

        self.student.infer(pack(hinted + plain).to(self.ranks.device), read)

    def _store(self, chosen: list[int], sizes: list[int], name: str, values: Tensor, mine: dict[str, Tensor]) -> None:
        for row, part in zip(chosen, values.split(sizes), strict=True):
            mine[f"{row}.{name}"] = part.mean() if name == "gap" else part.contiguous()
