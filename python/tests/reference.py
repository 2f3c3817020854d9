"""The losses written a second time, with autograd over whole logits in float64 and one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from bodies import REAL, LearnRow
from lens_worker.supervision import Kind


def load(directory: Path) -> nn.Module:
    model: nn.Module = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64).eval()
    return model


def log_probs(model: nn.Module, prompt: list[int], response: list[int], temperature: float = 1.0) -> Tensor:
    """[response, real vocabulary]."""
    logits: Tensor = model(input_ids=torch.tensor([prompt + response]), use_cache=False).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 : -1, :REAL] / temperature, dim=1)


def _buckets(s: Tensor, top: list[tuple[int, float]]) -> tuple[Tensor, Tensor]:
    ids = [token for token, _ in top]
    listed = torch.tensor([logprob for _, logprob in top], dtype=torch.float32).double()
    rest = [token for token in range(REAL) if token not in ids]
    tail = (1.0 - listed.exp().sum()).clamp_min(1e-9).log()
    return torch.cat([listed, tail[None]]), torch.cat([s[ids], s[rest].logsumexp(0, keepdim=True)])


def _clipped(s: Tensor, teacher: float, rollout: float, kl_coef: float) -> Tensor:
    advantage = kl_coef * (teacher - rollout)
    ratio = (s - rollout).exp()
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
    return loss.clamp_max(-3.0 * advantage) if advantage < 0 else loss


def row_loss(
    row: LearnRow, student: nn.Module, teacher: nn.Module | None, target: Tensor | None, kl_coef: float
) -> Tensor:
    """The row's share of the batch loss."""
    s = log_probs(student, row.prompt, row.response)
    coefficients = torch.tensor(row.coefficients, dtype=torch.float32).double()
    losses: list[Tensor] = []
    t = log_probs(teacher, row.prompt, row.response).detach() if teacher is not None else None
    for at, token in enumerate(row.response):
        if row.kind == Kind.RKL_FULL and t is not None:
            losses.append(kl_coef * (s[at].exp() * (s[at] - t[at])).sum())
        elif row.kind == Kind.RKL_TOPK:
            listed, known = _buckets(s[at], row.top[at])
            losses.append(kl_coef * (known.exp() * (known - listed)).sum())
        elif row.kind == Kind.FORWARD_KL_TOPK:
            listed, known = _buckets(s[at], row.top[at])
            losses.append((listed.exp() * (listed - known)).sum())
        elif row.kind == Kind.FORWARD_KL and target is not None:
            losses.append((target[at].exp() * (target[at] - s[at])).sum())
        elif row.kind == Kind.K1_PG:
            losses.append(_clipped(s[at, token], row.teacher[at], row.rollout[at], kl_coef))
        else:
            losses.append(-s[at, token])
    return (torch.stack(losses) * coefficients).sum()


def step(
    rows: Sequence[LearnRow],
    student: nn.Module,
    teacher: nn.Module | None,
    optimizer: torch.optim.Optimizer,
    *,
    kl_coef: float = 0.7,
    clip: float = 1.0,
    targets: dict[int, Tensor] | None = None,
) -> tuple[float, float]:
    """One step of plain PyTorch; returns the loss and the gradient's norm."""
    optimizer.zero_grad()
    loss = sum(
        (row_loss(row, student, teacher, (targets or {}).get(at), kl_coef) for at, row in enumerate(rows)),
        start=torch.zeros((), dtype=torch.float64),
    )
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(student.parameters(), clip)
    optimizer.step()
    return loss.item(), norm.item()
