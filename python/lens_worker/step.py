"""One optimizer step on one train batch.

Coefficients already hold the batch's denominators, so the loss is a plain sum over rows, micro-batches and
ranks. FSDP averages gradients over ranks; the loss is multiplied by their number. A loss or a gradient that
is not finite on any rank leaves weights, moments and version as they are.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from .errors import HalfDoneError
from .head import weighted_loss
from .model import Student, Teacher
from .packing import Row, assign
from .parts import Builder, find_targets, learn_rows
from .protocol import number
from .ranks import Ranks
from .requests import Learn, Optimizer
from .supervision import INTERNALIZATION, Kind
from .targets import Targets

MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's names of the first and second moment."""


@dataclass(frozen=True)
class Report:
    """What a step did."""

    loss: float
    focus_loss: float
    internalization_loss: float
    grad_norm: float
    clipped: bool
    skipped: bool
    tokens: int
    loss_tokens: int
    version: int
    seconds: dict[str, float]

    def json(self) -> dict[str, object]:
        """As the driver reads it; a number that is not finite is null."""
        return {
            "loss": number(self.loss),
            "focus_loss": number(self.focus_loss),
            "internalization_loss": number(self.internalization_loss),
            "grad_norm": number(self.grad_norm),
            "clipped": self.clipped,
            "skipped": self.skipped,
            "tokens": self.tokens,
            "loss_tokens": self.loss_tokens,
            "version": self.version,
            "seconds": self.seconds,
        }


class Learner:
    """The student's optimizer and its count of steps."""

    def __init__(
        self,
        student: Student,
        teacher: Teacher | None,
        ranks: Ranks,
        *,
        real_vocab: int,
        chunk: int,
        sync_always: bool,
    ) -> None:
        self.student, self.teacher, self.ranks = student, teacher, ranks
        self.real_vocab, self.chunk, self.sync_always = real_vocab, chunk, sync_always
        self.version = 0
        self.trained = student.trained()
        fused = ranks.device.type == "cuda"
        # Every parameter decays, norms and biases included, as in the native engine.
        self.adam = torch.optim.AdamW(list(self.trained.values()), fused=fused or None)

    def learn(self, batch: Learn, targets: Targets) -> Report:
        """One step. On an error before the update nothing has changed."""
        started = time.monotonic()
        rows = learn_rows(batch)
        builder = Builder(batch, rows, find_targets(batch, targets), targets, self.teacher, self.ranks.device)
        plan = assign([row.length for row in rows], self.ranks.world, batch.token_budget)
        mine = plan[self.ranks.rank]
        totals = torch.zeros(len(Kind), dtype=torch.float64)
        try:
            for turn, chosen in enumerate(mine):
                self.student.fsdp.set_requires_gradient_sync(self.sync_always or turn == len(mine) - 1)
                totals += self._micro_batch(builder, chosen)
            computed = time.monotonic()
            report = self._finish(batch, rows, totals)
        finally:
            self.adam.zero_grad(set_to_none=True)
        ended = time.monotonic()
        seconds = {"gradient": computed - started, "update": ended - computed, "total": ended - started}
        return replace(report, seconds=seconds)

    def _micro_batch(self, builder: Builder, chosen: list[int]) -> Tensor:
        """Adds the gradient of some rows; returns the weighted loss of each kind."""
        micro = builder.build(chosen)
        factors = micro.coefficients.to(self.ranks.device)

        def read(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
            return weighted_loss(hidden, weight, self.real_vocab, factors, micro.parts, self.chunk)

        loss, values = self.student(micro.packed.to(self.ranks.device), read)
        (loss * self.ranks.world).backward()
        weighted = values.detach().double().cpu() * micro.coefficients.double()
        return torch.zeros(len(Kind), dtype=torch.float64).index_add_(0, micro.kinds, weighted)

    def _finish(self, batch: Learn, rows: list[Row], totals: Tensor) -> Report:
        """Clips and applies the gradient, or drops it."""
        gradients = [
            cast(DTensor, weight.grad).to_local() for weight in self.trained.values() if weight.grad is not None
        ]
        squares = sum(
            (gradient.double().square().sum().cpu() for gradient in gradients),
            start=torch.zeros((), dtype=torch.float64),
        )
        summed = self.ranks.sum(torch.cat([totals, squares[None]]))
        by_kind, norm = summed[:-1].tolist(), math.sqrt(float(summed[-1])) if summed[-1] >= 0 else math.nan
        loss = sum(by_kind)
        inner = sum(by_kind[kind] for kind in INTERNALIZATION)
        healthy = math.isfinite(loss) and math.isfinite(norm)
        clipped = healthy and norm > batch.optimizer.clip
        if healthy:
            if clipped:
                # The small term keeps the clipped norm below the bound, as PyTorch does.
                torch._foreach_mul_(gradients, batch.optimizer.clip / (norm + 1e-6))
            self._update(batch.optimizer)
            self.version += 1
        tokens, asked = sum(row.length for row in rows), sum(len(row.asked) for row in rows)
        return Report(loss, loss - inner, inner, norm, clipped, not healthy, tokens, asked, self.version, {})

    def _update(self, settings: Optimizer) -> None:
        for group in self.adam.param_groups:
            group["lr"], group["eps"] = settings.lr, settings.eps
            group["betas"] = (settings.beta1, settings.beta2)
            group["weight_decay"] = settings.weight_decay
        if not self.has_moments:
            # Allocated before the update, so that running out of memory here changes nothing.
            self.make_moments(0)
        try:
            self.adam.step()
        except Exception as error:
            raise HalfDoneError(f"the update failed halfway: {error}") from error

    @property
    def has_moments(self) -> bool:
        """Whether every trained parameter has its AdamW state."""
        return len(self.adam.state) == len(self.trained)

    def make_moments(self, steps: int) -> None:
        """Gives AdamW its state after `steps` steps, with moments of zero."""
        fused = bool(self.adam.param_groups[0]["fused"])
        for weight in self.trained.values():
            device = weight.device if fused else torch.device("cpu")
            self.adam.state[weight] = {
                "step": torch.tensor(float(steps), dtype=torch.float32, device=device),
                **{name: torch.zeros_like(weight.detach()) for name in MOMENTS},
            }
