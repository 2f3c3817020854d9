"""The output head, a chunk of positions at a time.

tokens x vocabulary is never held: a chunk's logits become its losses and its gradient by the hidden states
and the head's weight, and are freed before the next chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from .losses import TokenLosses

ChunkLoss = Callable[[Tensor, slice], TokenLosses]
"""From the student's log-probabilities of a chunk, and its place within the part."""


@dataclass(frozen=True)
class Part:
    """Positions that share a kind of loss: rows `start..stop` of the hidden states."""

    start: int
    stop: int
    loss: ChunkLoss


def logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """`hidden @ weight.T`, accumulated and returned in float32 (float64 stays as it is)."""
    if hidden.is_cuda and hidden.dtype == weight.dtype == torch.bfloat16:
        return torch.mm(hidden, weight.t(), out_dtype=torch.float32)
    wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    return hidden.to(wide) @ weight.to(wide).t()


def log_probabilities(hidden: Tensor, weight: Tensor, temperature: Tensor | None = None) -> Tensor:
    """The log-softmax of a chunk; one `temperature` per position."""
    values = logits(hidden, weight)
    if temperature is not None:
        values /= temperature[:, None]
    return torch.log_softmax(values, dim=1)


def chunks(count: int, size: int) -> Iterator[slice]:
    """`0..count` in slices of at most `size`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


class _ChunkedHead(torch.autograd.Function):
    """The weighted sum of token losses; gradients are computed with the values and kept."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's own context object
        hidden: Tensor,
        weight: Tensor,
        real_vocab: int,
        coefficients: Tensor,
        parts: Sequence[Part],
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        real = weight[:real_vocab]
        values = torch.zeros(len(hidden), dtype=wide, device=hidden.device)
        by_hidden = torch.zeros_like(hidden)
        by_weight = torch.zeros_like(weight, dtype=wide) if ctx.needs_input_grad[1] else None
        for part in parts:
            for inside in chunks(part.stop - part.start, chunk):
                rows = slice(part.start + inside.start, part.start + inside.stop)
                losses = part.loss(log_probabilities(hidden[rows], real), inside)
                values[rows] = losses.values
                gradient = losses.gradient.mul_(coefficients[rows, None])
                by_hidden[rows] = _product(gradient, real).to(hidden.dtype)
                if by_weight is not None:
                    by_weight[:real_vocab] += _product(gradient.t(), hidden[rows])
        # They are the results themselves, scaled in place: a second copy of the head would be the largest tensor.
        ctx.gradients = by_hidden, by_weight
        ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(values)
        return torch.dot(values.double(), coefficients.double()), values

    @staticmethod
    def backward(ctx: Any, by_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if ctx.gradients is None:
            raise RuntimeError("the head's gradient can be taken only once")
        by_hidden, by_weight = ctx.gradients
        ctx.gradients = None
        for_weight = None if by_weight is None else by_weight.mul_(by_loss).to(ctx.weight_dtype)
        return by_hidden.mul_(by_loss), for_weight, None, None, None, None


def _product(gradient: Tensor, other: Tensor) -> Tensor:
    """A float32 gradient times values of the compute type, accumulated in float32."""
    if other.is_cuda and other.dtype == torch.bfloat16:
        return torch.mm(gradient.bfloat16(), other, out_dtype=torch.float32)
    return gradient @ other.to(gradient.dtype)


def weighted_loss(
    hidden: Tensor,
    weight: Tensor,
    real_vocab: int,
    coefficients: Tensor,
    parts: Sequence[Part],
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """The sum of coefficient times token loss (float64), and every token's loss.

    Ids from `real_vocab` on are padding and take no part in any softmax.
    """
    loss, values = cast(Any, _ChunkedHead).apply(hidden, weight, real_vocab, coefficients, parts, chunk)
    return loss, values
