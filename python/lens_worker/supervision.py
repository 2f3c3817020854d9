"""The kinds of row, and for each the loss that the head applies to a chunk of positions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from . import losses
from .head import log_probabilities
from .losses import ClipConstants, TokenLosses


class Kind(IntEnum):
    """The kinds of row, by their number on the wire."""

    RKL_FULL = 0
    RKL_TOPK = 1
    K1_PG = 2
    FORWARD_KL = 3
    FORWARD_KL_TOPK = 4
    NLL = 5


INTERNALIZATION = (Kind.FORWARD_KL, Kind.FORWARD_KL_TOPK)
"""Kinds whose loss is reported as guidance internalization."""


@dataclass(frozen=True)
class FullReverse:
    """`KL(student || teacher)` from the teacher's hidden states and head."""

    hidden: Tensor
    head: Tensor

    def __call__(self, student: Tensor, rows: slice) -> TokenLosses:
        return losses.rkl_full(student, log_probabilities(self.hidden[rows], self.head))


@dataclass(frozen=True)
class TeacherTopReverse:
    """`KL(student || teacher)` over the k tokens the worker's own teacher finds most likely."""

    hidden: Tensor
    head: Tensor
    k: int

    def __call__(self, student: Tensor, rows: slice) -> TokenLosses:
        teacher = log_probabilities(self.hidden[rows], self.head)
        top = teacher.topk(min(self.k, teacher.shape[1]), dim=1)
        return losses.rkl_topk(student, top.indices, top.values)


@dataclass(frozen=True)
class ListedReverse:
    """`KL(student || teacher)` over tokens the driver listed."""

    ids: Tensor
    logprobs: Tensor

    def __call__(self, student: Tensor, rows: slice) -> TokenLosses:
        return losses.rkl_topk(student, self.ids[rows], self.logprobs[rows])


@dataclass(frozen=True)
class ListedForward:
    """`KL(target || student)` over listed tokens of the target."""

    ids: Tensor
    logprobs: Tensor

    def __call__(self, student: Tensor, rows: slice) -> TokenLosses:
        return losses.forward_kl_topk(student, self.ids[rows], self.logprobs[rows])


@dataclass(frozen=True)
class FullForward:
    """`KL(target || student)` from a snapshot's hidden states and head."""

    hidden: Tensor
    head: Tensor

    def __call__(self, student: Tensor, rows: slice) -> TokenLosses:
        return losses.forward_kl(log_probabilities(self.hidden[rows], self.head), student)


@dataclass(frozen=True)
class PolicyGradient:
    """The clipped policy gradient on the sampled tokens."""

    tokens: Tensor
    teacher: Tensor
    rollout: Tensor
    constants: ClipConstants

    def __call__(self, student: Tensor, rows: slice) -> TokenLosses:
        teacher, rollout = (side[rows].to(student.dtype) for side in (self.teacher, self.rollout))
        return losses.k1_pg(student, self.tokens[rows], teacher, rollout, self.constants)


@dataclass(frozen=True)
class Likelihood:
    """Negative log-likelihood of the response tokens."""

    tokens: Tensor

    def __call__(self, student: Tensor, rows: slice) -> TokenLosses:
        return losses.nll(student, self.tokens[rows])


def on(device: torch.device, *parts: Tensor) -> tuple[Tensor, ...]:
    """Tensors on the device that computes."""
    return tuple(part.to(device, non_blocking=True) for part in parts)
