"""The six token losses and their gradients by the student's logits, in closed form.

Each function takes the student's log-probabilities of a chunk of positions, [positions, vocabulary], and
gives the loss of each position and its derivative by each logit, before the position's coefficient. The
log-probabilities may be overwritten: a chunk is the largest thing the worker holds. They mirror
`lens-opd`'s `objective`, which is the reference for values and gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TAIL_FLOOR = 1e-9
"""The least probability of the bucket of unlisted tokens, where the listed ones round to one."""

LOG_RATIO_LIMIT = 20.0
"""Beyond this the log-ratio carries no gradient: its exponential is no longer a usable number."""

PAD = -1
"""An id that fills up a list of top tokens."""


class TokenLosses(NamedTuple):
    """Losses of a chunk of positions."""

    values: Tensor
    """[positions]"""
    gradient: Tensor
    """[positions, vocabulary], by the logits"""


@dataclass(frozen=True)
class ClipConstants:
    """Constants of the clipped policy gradient."""

    kl_coef: float
    clip_range: float
    dual_clip: float


def rkl_full(student: Tensor, teacher: Tensor) -> TokenLosses:
    """`KL(student || teacher)` over the full vocabulary."""
    mass = student.exp()
    excess = student.sub_(teacher)
    values = torch.linalg.vecdot(mass, excess)
    return TokenLosses(values, mass.mul_(excess.sub_(values[:, None])))


def forward_kl(target: Tensor, student: Tensor) -> TokenLosses:
    """`KL(target || student)` over the full vocabulary."""
    wanted = target.exp()
    values = torch.linalg.vecdot(wanted, target.sub_(student))
    return TokenLosses(values, student.exp_().sub_(wanted))


def nll(student: Tensor, tokens: Tensor) -> TokenLosses:
    """`-log p(token)`."""
    values = -_at(student, tokens)
    return TokenLosses(values, _minus_one_at(student.exp_(), tokens))


@dataclass(frozen=True)
class _Buckets:
    """The vocabulary cut into listed tokens and a bucket, the last column, for all others."""

    ids: Tensor
    valid: Tensor
    listed: Tensor
    """Log-probabilities of the buckets by the model that listed its tokens."""
    known: Tensor
    """The same by the student."""

    @classmethod
    def of(cls, ids: Tensor, logprobs: Tensor, student: Tensor) -> _Buckets:
        valid = ids != PAD
        # A pad repeats the list's first id, which is always a real one.
        ids = torch.where(valid, ids, ids[:, :1]).long()
        mass = torch.where(valid, logprobs.double().exp(), 0.0).sum(1, keepdim=True)
        rest = (1.0 - mass).clamp_min(TAIL_FLOOR).log().to(student.dtype)
        known = student.gather(1, ids)
        others = student.scatter(1, ids, -torch.inf)
        tail = torch.logsumexp(others, 1, keepdim=True)
        has_tail = tail > -torch.inf
        listed = torch.cat([logprobs.to(student.dtype), rest], dim=1)
        valid = torch.cat([valid, has_tail], dim=1)
        return cls(ids, valid, listed, torch.cat([known, tail], dim=1))

    def over(self, values: Tensor) -> Tensor:
        """`values` of the buckets that exist, zero for the others."""
        return torch.where(self.valid, values, 0.0)

    def spread(self, tail: Tensor, listed: Tensor, vocabulary: int) -> Tensor:
        """Each token's bucket's value, [positions, vocabulary]."""
        spread = tail.expand(-1, vocabulary).clone()
        # Pads point at the first id: they must carry its value, whichever write comes last.
        first = listed[:, :1].expand_as(listed)
        return spread.scatter_(1, self.ids, torch.where(self.valid[:, :-1], listed, first))


def rkl_topk(student: Tensor, ids: Tensor, logprobs: Tensor) -> TokenLosses:
    """`KL(student || teacher)` over the teacher's top tokens and one tail bucket."""
    buckets = _Buckets.of(ids, logprobs, student)
    ratio = buckets.over(buckets.known - buckets.listed)
    values = (buckets.over(buckets.known.exp()) * ratio).sum(1)
    slope = ratio - values[:, None]
    gradient = buckets.spread(slope[:, -1:], slope[:, :-1], student.shape[1])
    return TokenLosses(values, gradient.mul_(student.exp_()))


def forward_kl_topk(student: Tensor, ids: Tensor, logprobs: Tensor) -> TokenLosses:
    """`KL(target || student)` over the target's top tokens and one tail bucket."""
    buckets = _Buckets.of(ids, logprobs, student)
    wanted = buckets.over(buckets.listed.exp())
    gap = buckets.over(buckets.listed - buckets.known)
    values = (wanted * gap).sum(1)
    # Within a bucket the target says nothing: its pull is spread as the student spreads its own mass.
    pull = buckets.spread(gap[:, -1:], gap[:, :-1], student.shape[1]).add_(student).exp_()
    return TokenLosses(values, student.exp_().mul_(wanted.sum(1, keepdim=True)).sub_(pull))


def k1_pg(student: Tensor, tokens: Tensor, teacher: Tensor, rollout: Tensor, constants: ClipConstants) -> TokenLosses:
    """The clipped policy gradient on the sampled token, with the advantage `kl_coef * (log T - log mu)`."""
    advantage = constants.kl_coef * (teacher - rollout)
    log_ratio = _at(student, tokens) - rollout
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    free = -advantage * ratio
    held = -advantage * ratio.clamp(1.0 - constants.clip_range, 1.0 + constants.clip_range)
    bound = -constants.dual_clip * advantage
    bounded = (advantage < 0.0) & (torch.maximum(free, held) > bound)
    values = torch.where(bounded, bound, torch.maximum(free, held))
    inside = (log_ratio.abs() <= LOG_RATIO_LIMIT) & (free >= held) & ~bounded
    slope = torch.where(inside, free, torch.zeros_like(free))
    gradient = _minus_one_at(student.exp_(), tokens).mul_(-slope[:, None])
    return TokenLosses(values, gradient)


def _at(log_probabilities: Tensor, tokens: Tensor) -> Tensor:
    return log_probabilities.gather(1, tokens[:, None]).squeeze(1)


def _minus_one_at(mass: Tensor, tokens: Tensor) -> Tensor:
    places = tokens[:, None]
    return mass.scatter_(1, places, mass.gather(1, places) - 1.0)
