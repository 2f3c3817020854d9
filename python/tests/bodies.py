"""Requests as a driver writes them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from lens_worker.protocol import write_tensors
from lens_worker.supervision import Kind

REAL = 37


@dataclass
class LearnRow:
    kind: Kind
    prompt: list[int]
    response: list[int]
    coefficients: list[float]
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    teacher: list[float] = field(default_factory=list)
    rollout: list[float] = field(default_factory=list)
    key: int = -1


def random_row(kind: Kind, seed: int, *, prompt: int = 4, response: int = 5, key: int = -1) -> LearnRow:
    """A row of a kind with everything it needs; one of its tokens has no loss."""
    draw = random.Random(seed)
    row = LearnRow(
        kind,
        [draw.randrange(REAL) for _ in range(prompt)],
        [draw.randrange(REAL) for _ in range(response)],
        [draw.choice([0.05, 0.1, 0.2]) for _ in range(response)],
        key=key,
    )
    row.coefficients[draw.randrange(response)] = 0.0
    if kind in (Kind.RKL_TOPK, Kind.FORWARD_KL_TOPK):
        row.top = [_top(draw) for _ in range(response)]
    if kind == Kind.K1_PG:
        row.teacher = [-draw.uniform(0.1, 5.0) for _ in range(response)]
        row.rollout = [-draw.uniform(0.1, 5.0) for _ in range(response)]
    return row


def _top(draw: random.Random) -> list[tuple[int, float]]:
    ids = draw.sample(range(REAL), 3)
    weights = [draw.uniform(0.1, 1.0) for _ in range(4)]
    return [
        (token, float(torch.tensor(weight / sum(weights)).log())) for token, weight in zip(ids, weights, strict=False)
    ]


SETTINGS = {
    "lr": "0.01", "beta1": "0.9", "beta2": "0.99", "eps": "1e-8", "weight_decay": "0.1", "clip": "1.0",
    "kl_coef": "0.7", "clip_range": "0.2", "dual_clip": "3.0",
}  # fmt: skip


def learn_tensors(rows: Sequence[LearnRow]) -> dict[str, torch.Tensor]:
    sequences = [row.prompt + row.response for row in rows]
    offsets = torch.tensor([0, *(len(sequence) for sequence in sequences)]).cumsum(0)
    tensors = {
        "tokens": torch.tensor([token for sequence in sequences for token in sequence], dtype=torch.int32),
        "row_offsets": offsets,
        "response_start": torch.tensor([len(row.prompt) for row in rows], dtype=torch.int32),
        "coefficients": torch.tensor([value for row in rows for value in row.coefficients]),
        "kind": torch.tensor([int(row.kind) for row in rows], dtype=torch.uint8),
        "target_key": torch.tensor([row.key for row in rows]),
    }
    tops = [position for row in rows for position in row.top]
    if tops:
        tensors["teacher_top_ids"] = torch.tensor([[token for token, _ in top] for top in tops], dtype=torch.int32)
        tensors["teacher_top_logprobs"] = torch.tensor([[logprob for _, logprob in top] for top in tops])
    if any(row.kind == Kind.K1_PG for row in rows):
        tensors["teacher_logprobs"] = torch.tensor([value for row in rows for value in row.teacher])
        tensors["rollout_logprobs"] = torch.tensor([value for row in rows for value in row.rollout])
    return tensors


def learn_body(rows: Sequence[LearnRow], version: int, request_id: str | None = None, **settings: str) -> bytes:
    metadata = SETTINGS | {"request_id": request_id or f"step-{version}", "expected_version": str(version)}
    return write_tensors(learn_tensors(rows), metadata | settings)


def score_body(
    rows: Sequence[tuple[list[int], list[int]]],
    compare: Sequence[bool],
    temperature: Sequence[float],
    asked: torch.Tensor | None = None,
    **settings: str,
) -> bytes:
    tensors = learn_tensors([LearnRow(Kind.NLL, prompt, response, []) for prompt, response in rows])
    tensors = {name: tensors[name] for name in ("tokens", "row_offsets", "response_start")}
    tensors["compare"] = torch.tensor([int(flag) for flag in compare], dtype=torch.uint8)
    tensors["temperature"] = torch.tensor(list(temperature), dtype=torch.float32)
    if asked is not None:
        tensors["asked_ids"] = asked
    return write_tensors(tensors, settings)


def cross_body(rows: Sequence[tuple[list[int], list[int], list[int]]], **settings: str) -> bytes:
    """Rows of hinted prompt, plain prompt, response."""
    tensors = {}
    for at, name in enumerate(("hinted", "plain", "response")):
        parts = [row[at] for row in rows]
        tensors[f"{name}_tokens"] = torch.tensor([token for part in parts for token in part], dtype=torch.int32)
        tensors[f"{name}_offsets"] = torch.tensor([0, *(len(part) for part in parts)]).cumsum(0)
    return write_tensors(tensors, settings)
