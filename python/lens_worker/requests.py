"""Parses and validates the bodies of learn, score and cross_context."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from . import protocol
from .errors import RequestError
from .losses import PAD, ClipConstants
from .protocol import Fields
from .supervision import Kind

MASS_LIMIT = 1.01
"""Listed probabilities may round to slightly more than one."""


@dataclass(frozen=True)
class Limits:
    """What rows are checked against."""

    vocab_size: int
    real_vocab: int
    max_position: int
    has_teacher: bool
    token_budget: int


@dataclass(frozen=True)
class Ragged:
    """Concatenated rows of different lengths, each a prompt with its response."""

    tokens: Tensor
    starts: list[int]
    response_start: list[int]
    response_offsets: list[int]
    """Where each row's response tokens begin among all response tokens, and their number at the end."""

    def __len__(self) -> int:
        return len(self.response_start)

    @property
    def responses(self) -> int:
        """Response tokens of all rows."""
        return self.response_offsets[-1]

    def row(self, index: int) -> Tensor:
        """A row's prompt and response."""
        return self.tokens[self.starts[index] : self.starts[index + 1]]

    def response(self, index: int) -> Tensor:
        """A row's response."""
        return self.row(index)[self.response_start[index] :]

    def place(self, index: int) -> slice:
        """A row's response tokens among all response tokens."""
        return slice(self.response_offsets[index], self.response_offsets[index + 1])


def offsets(fields: Fields, name: str, total: int, what: str) -> list[int]:
    """Row borders: from 0 to `total`, never decreasing."""
    values: list[int] = fields.tensor(name, torch.int64, None).tolist()
    if len(values) < 2 or values[0] != 0 or values[-1] != total:
        raise RequestError(f"tensor `{name}` must hold one row at least and run from 0 to the {total} {what}")
    if any(after < before for before, after in pairwise(values)):
        raise RequestError(f"tensor `{name}` decreases")
    return values


def known_tokens(name: str, tokens: Tensor, vocab_size: int, where: str = "") -> Tensor:
    """Token ids as indices, all inside the vocabulary."""
    wrong = ((tokens < 0) | (tokens >= vocab_size)).nonzero()
    if len(wrong):
        at = int(wrong[0])
        raise RequestError(
            f"tensor `{name}`{where} holds {int(tokens[at])} at {at}, outside the vocabulary of {vocab_size}"
        )
    return tokens.long()


def ragged(fields: Fields, limits: Limits) -> Ragged:
    """`tokens`, `row_offsets` and `response_start`."""
    tokens = known_tokens("tokens", fields.tensor("tokens", torch.int32, None), limits.vocab_size)
    starts = offsets(fields, "row_offsets", len(tokens), "tokens")
    count = len(starts) - 1
    response_start: list[int] = fields.tensor("response_start", torch.int32, count).tolist()
    response_offsets = [0]
    for row, start in enumerate(response_start):
        length = starts[row + 1] - starts[row]
        if not 1 <= start <= length:
            raise RequestError(
                f"tensor `response_start` is {start} in row {row} of {length} tokens; "
                "a response needs at least one token before it"
            )
        if length > limits.max_position:
            raise RequestError(
                f"tensor `row_offsets`: row {row} has {length} tokens, "
                f"more than the model's {limits.max_position} positions"
            )
        response_offsets.append(response_offsets[-1] + length - start)
    return Ragged(tokens, starts, response_start, response_offsets)


def _real_response(rows: Ragged, row: int, limits: Limits) -> None:
    """Tokens with a loss of their own take part in the softmax."""
    known_tokens("tokens", rows.response(row), limits.real_vocab, f" (the response of row {row})")


@dataclass(frozen=True)
class Optimizer:
    """Settings of one AdamW step."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip: float


@dataclass(frozen=True)
class Learn:
    """One optimizer step to do."""

    request_id: str
    expected_version: int
    rows: Ragged
    kinds: list[Kind]
    coefficients: Tensor
    listed: dict[int, slice]
    """Rows whose target is listed, and where in the lists."""
    top_ids: Tensor | None
    top_logprobs: Tensor | None
    sampled: dict[int, slice]
    """Rows of the policy gradient, and where in its log-probabilities."""
    teacher_logprobs: Tensor | None
    rollout_logprobs: Tensor | None
    target_keys: list[int]
    optimizer: Optimizer
    constants: ClipConstants
    top_k: int
    token_budget: int


def _places(rows: Ragged, chosen: list[int]) -> tuple[dict[int, slice], int]:
    """The chosen rows' response tokens, end to end."""
    places, total = {}, 0
    for row in chosen:
        length = rows.response_offsets[row + 1] - rows.response_offsets[row]
        places[row] = slice(total, total + length)
        total += length
    return places, total


def learn(body: bytes, limits: Limits) -> Learn:
    """Reads and checks a learn body."""
    fields = protocol.read_tensors(body)
    request_id, expected = fields.text("request_id"), fields.integer("expected_version")
    optimizer = Optimizer(
        fields.number("lr", protocol.NOT_NEGATIVE),
        fields.number("beta1", protocol.BETA),
        fields.number("beta2", protocol.BETA),
        fields.number("eps", protocol.POSITIVE),
        fields.number("weight_decay", protocol.NOT_NEGATIVE),
        fields.number("clip", protocol.POSITIVE_OR_INF),
    )
    constants = ClipConstants(
        fields.number("kl_coef", protocol.POSITIVE),
        fields.number("clip_range", protocol.SHARE),
        fields.number("dual_clip", protocol.ABOVE_ONE),
    )
    top_k = fields.integer("top_k", 0)
    budget = fields.integer("token_budget", limits.token_budget, least=1)
    rows = ragged(fields, limits)
    kinds = _kinds(fields, len(rows))
    coefficients = fields.tensor("coefficients", torch.float32, rows.responses)
    if not bool(torch.isfinite(coefficients).all()):
        raise RequestError("tensor `coefficients` holds a number that is not finite")
    listed, top_ids, top_logprobs = _lists(fields, rows, kinds, limits, top_k)
    sampled, size = _places(rows, [row for row, kind in enumerate(kinds) if kind == Kind.K1_PG])
    pair = [
        fields.tensor(name, torch.float32, size) if sampled else fields.optional_tensor(name, torch.float32, 0)
        for name in ("teacher_logprobs", "rollout_logprobs")
    ]
    target_keys = _target_keys(fields, kinds)
    fields.finish()
    for row, kind in enumerate(kinds):
        if kind in (Kind.K1_PG, Kind.NLL):
            _real_response(rows, row, limits)
        if kind == Kind.RKL_FULL and not limits.has_teacher:
            raise RequestError(f"tensor `kind`: row {row} is rkl_full, but the worker was started without --teacher")
    return Learn(
        request_id, expected, rows, kinds, coefficients, listed, top_ids, top_logprobs, sampled,
        pair[0], pair[1], target_keys, optimizer, constants, top_k, budget,
    )  # fmt: skip


def _kinds(fields: Fields, count: int) -> list[Kind]:
    numbers = fields.tensor("kind", torch.uint8, count).tolist()
    for row, value in enumerate(numbers):
        if value not in set(Kind):
            raise RequestError(f"tensor `kind` is {value} in row {row}; kinds are 0 to {len(Kind) - 1}")
    return [Kind(value) for value in numbers]


def _target_keys(fields: Fields, kinds: list[Kind]) -> list[int]:
    needed = Kind.FORWARD_KL in kinds
    found = fields.optional_tensor("target_key", torch.int64, len(kinds))
    if found is None:
        if needed:
            raise RequestError("tensor `target_key` is missing; rows of kind forward_kl need it")
        return [-1] * len(kinds)
    keys: list[int] = found.tolist()
    for row, (key, kind) in enumerate(zip(keys, kinds, strict=True)):
        if (kind == Kind.FORWARD_KL) != (key >= 0):
            raise RequestError(
                f"tensor `target_key` is {key} in row {row}: rows of kind forward_kl name a kept target, all others -1"
            )
    return keys


def _lists(
    fields: Fields, rows: Ragged, kinds: list[Kind], limits: Limits, top_k: int
) -> tuple[dict[int, slice], Tensor | None, Tensor | None]:
    """The listed targets: of rkl_topk rows and forward_kl_topk rows, in the rows' order."""
    wanted = [row for row, kind in enumerate(kinds) if kind in (Kind.RKL_TOPK, Kind.FORWARD_KL_TOPK)]
    if not wanted:
        for name, dtype in (("teacher_top_ids", torch.int32), ("teacher_top_logprobs", torch.float32)):
            fields.optional_tensor(name, dtype, 0, None)
        return {}, None, None
    ids = fields.optional_tensor("teacher_top_ids", torch.int32, None, None)
    if ids is None and Kind.FORWARD_KL_TOPK not in kinds and limits.has_teacher and top_k > 0:
        return {}, None, None
    if ids is None:
        raise RequestError(
            "tensor `teacher_top_ids` is missing: forward_kl_topk rows always need it, rkl_topk rows unless the "
            "worker has a --teacher and metadata `top_k` says how many of its tokens to take"
        )
    places, total = _places(rows, wanted)
    if ids.shape[0] != total or ids.shape[1] == 0:
        raise RequestError(
            f"tensor `teacher_top_ids` has the shape {list(ids.shape)}, expected [{total}, k] with k at least 1"
        )
    logprobs = fields.tensor("teacher_top_logprobs", torch.float32, total, ids.shape[1])
    check_lists("teacher_top", ids, logprobs, limits.real_vocab)
    return places, ids.long(), logprobs


def check_lists(name: str, ids: Tensor, logprobs: Tensor, real_vocab: int) -> None:
    """Distinct real ids, pads at the end only, and probabilities that sum to one at most."""
    valid = ids != PAD
    out = (valid & ((ids < 0) | (ids >= real_vocab))).nonzero()
    if len(out):
        at, place = out[0].tolist()
        raise RequestError(
            f"tensor `{name}_ids` holds {int(ids[at, place])} at position {at}, outside the {real_vocab} real tokens"
        )
    if not bool(valid[:, 0].all()):
        raise RequestError(f"tensor `{name}_ids` holds an empty list; -1 only fills up the end of one")
    # Pads get numbers of their own, so that only real ids can be found twice.
    spare = -1 - torch.arange(ids.shape[1])
    ordered = torch.where(valid, ids.long(), spare).sort(dim=1).values
    repeats = (ordered[:, 1:] == ordered[:, :-1]).any(dim=1).nonzero()
    if len(repeats):
        raise RequestError(f"tensor `{name}_ids` repeats an id at position {int(repeats[0])}")
    mass = torch.where(valid, logprobs.double().exp(), 0.0).sum(dim=1)
    heavy = (mass > MASS_LIMIT).nonzero()
    if len(heavy):
        at = int(heavy[0])
        raise RequestError(
            f"tensor `{name}_logprobs` sums to the probability {float(mass[at]):.4f} at position {at}, "
            "expected at most 1"
        )


@dataclass(frozen=True)
class Score:
    """Responses to judge."""

    expected_version: int | None
    rows: Ragged
    compare: list[bool]
    temperature: Tensor
    asked: Tensor | None
    top_k: int
    token_budget: int


def score(body: bytes, limits: Limits) -> Score:
    """Reads and checks a score body."""
    fields = protocol.read_tensors(body)
    expected = fields.optional_integer("expected_version")
    top_k = fields.integer("top_k", 0)
    budget = fields.integer("token_budget", limits.token_budget, least=1)
    rows = ragged(fields, limits)
    compare = [bool(flag) for flag in fields.tensor("compare", torch.uint8, len(rows)).tolist()]
    temperature = fields.tensor("temperature", torch.float32, len(rows))
    if not bool((torch.isfinite(temperature) & (temperature > 0)).all()):
        raise RequestError("tensor `temperature` must hold finite numbers above 0")
    asked = fields.optional_tensor("asked_ids", torch.int32, rows.responses, None)
    if asked is not None:
        flat = asked.flatten()
        known_tokens("asked_ids", flat[flat != PAD], limits.real_vocab)
        asked = asked.long()
    fields.finish()
    for row in range(len(rows)):
        _real_response(rows, row, limits)
    if not limits.has_teacher and not all(compare):
        raise RequestError(
            f"tensor `compare` is 0 in row {compare.index(False)}, which asks the teacher alone, "
            "but the worker was started without --teacher"
        )
    if top_k > 0 and not limits.has_teacher:
        raise RequestError(
            "metadata `top_k` asks for the teacher's tokens, but the worker was started without --teacher"
        )
    if top_k > limits.real_vocab:
        raise RequestError(f"metadata `top_k` is {top_k}, more than the {limits.real_vocab} tokens there are")
    return Score(expected, rows, compare, temperature, asked, top_k, budget)


@dataclass(frozen=True)
class CrossContext:
    """Responses written with a hint in view, with the prompts with and without it."""

    expected_version: int | None
    hinted: list[Tensor]
    plain: list[Tensor]
    responses: list[Tensor]
    token_budget: int


def cross_context(body: bytes, limits: Limits) -> CrossContext:
    """Reads and checks a cross_context body."""
    fields = protocol.read_tensors(body)
    expected = fields.optional_integer("expected_version")
    budget = fields.integer("token_budget", limits.token_budget, least=1)
    parts: dict[str, list[Tensor]] = {}
    for name, vocabulary in (
        ("hinted", limits.vocab_size),
        ("plain", limits.vocab_size),
        ("response", limits.real_vocab),
    ):
        tokens = fields.tensor(f"{name}_tokens", torch.int32, None)
        known = known_tokens(f"{name}_tokens", tokens, vocabulary)
        borders = offsets(fields, f"{name}_offsets", len(tokens), "tokens")
        parts[name] = [known[a:b] for a, b in pairwise(borders)]
        empty = [row for row, part in enumerate(parts[name]) if len(part) == 0]
        if empty:
            raise RequestError(f"tensor `{name}_offsets`: row {empty[0]} is empty")
    fields.finish()
    hinted, plain, responses = parts["hinted"], parts["plain"], parts["response"]
    if not len(hinted) == len(plain) == len(responses):
        raise RequestError(
            f"tensors `hinted_offsets`, `plain_offsets` and `response_offsets` hold {len(hinted)}, {len(plain)} and "
            f"{len(responses)} rows; they must be the same"
        )
    for name in ("hinted", "plain"):
        for row, (prompt, response) in enumerate(zip(parts[name], responses, strict=True)):
            length = len(prompt) + len(response)
            if length > limits.max_position:
                raise RequestError(
                    f"tensor `{name}_offsets`: row {row} has {length} tokens with its response, "
                    f"more than the model's {limits.max_position} positions"
                )
    return CrossContext(expected, hinted, plain, responses, budget)
