"""The student that learns and the teacher that does not, sharded over the ranks.

The student's float32 shards are the master copy; each layer is gathered in the compute type when its turn
comes. Both models run packed rows: batch of one, no attention mask, positions that restart, no cache (with
a cache transformers lets rows see each other).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

from .attention import NAME
from .lora import LoraSettings, adapt
from .packing import Packed
from .ranks import Ranks

Answer = TypeVar("Answer")


class Student(nn.Module):
    """A causal language model whose head is read inside its own forward, where the weight is whole."""

    def __init__(self, lm: nn.Module) -> None:
        super().__init__()
        self.lm = lm

    def forward(self, packed: Packed, read: Callable[[Tensor, Tensor], Answer]) -> Answer:
        """Calls `read` with the asked hidden states, [asked, hidden], and the head's weight, [vocabulary, hidden]."""
        hidden = body_states(_body(self.lm), packed)
        return read(hidden, head_weight(self.lm))

    @property
    def fsdp(self) -> FSDPModule:
        """The same module, as FSDP sees it."""
        return cast(FSDPModule, self)

    def infer(self, packed: Packed, read: Callable[[Tensor, Tensor], Answer]) -> Answer:
        """Runs the model without gradients."""
        with torch.no_grad():
            answer: Answer = self(packed, read)
        # Only a backward pass reshards the root; otherwise its gathered weights would outlive the next step.
        self.fsdp.reshard()
        return answer

    def trained(self) -> dict[str, DTensor]:
        """The parameters that learn, by name."""
        return {name: weight for name, weight in self.weights().items() if weight.requires_grad}

    def weights(self) -> dict[str, DTensor]:
        """All parameters, sharded, by their Hugging Face names; a tied head is named once."""
        return {name: cast(DTensor, weight) for name, weight in self.lm.named_parameters()}


class Teacher(nn.Module):
    """A frozen body; its head stays whole on every rank."""

    def __init__(self, body: nn.Module, head: Tensor) -> None:
        super().__init__()
        self.body = body
        self._head = [head]

    @property
    def head(self) -> Tensor:
        """The head's rows of the real tokens."""
        return self._head[0]

    def forward(self, packed: Packed) -> Tensor:
        """The asked hidden states."""
        return body_states(self.body, packed)

    def infer(self, packed: Packed) -> Tensor:
        """Runs the model without gradients."""
        with torch.no_grad():
            hidden: Tensor = self(packed)
        cast(FSDPModule, self).reshard()
        return hidden


def recover(model: nn.Module) -> bool:
    """Resets FSDP after an error within a pass; returns whether this version of torch can.

    Without it FSDP believes the pass is still going on: the next step would run through with a gradient of zero.
    """
    try:
        if cast(Any, model)._get_fsdp_state()._is_root is None:
            return True  # The model has not run yet.
        cast(Any, model).reset_iter_state()
        for module in model.modules():
            if isinstance(module, FSDPModule):
                _drop_gathered_gradients(module)
    except AttributeError:
        return False
    return True


def _drop_gathered_gradients(module: FSDPModule) -> None:
    """Drops gradients that earlier micro-batches of the step accumulated and did not reduce.

    torch 2.13 has no public API for this. A version with other internals makes `recover` return false.
    """
    for group in cast(Any, module)._get_fsdp_state()._fsdp_param_groups:
        for weight in group.fsdp_params:
            if weight.unsharded_accumulated_grad is not None:
                weight.unsharded_accumulated_grad = None
            gathered = getattr(weight, "_unsharded_param", None)
            if gathered is not None:
                gathered.grad = None


def body_states(body: nn.Module, packed: Packed) -> Tensor:
    """Last hidden states, after the final norm, at the asked places."""
    borders = {"row_borders": packed.borders} if cast(Any, body).config._attn_implementation == NAME else {}
    output = body(input_ids=packed.tokens, position_ids=packed.positions, use_cache=False, **borders)
    states: Tensor = output.last_hidden_state
    return states[0].index_select(0, packed.picks)


def head_weight(lm: nn.Module) -> Tensor:
    """The output head, [vocabulary, hidden]."""
    weight: Tensor = cast(Any, lm).get_output_embeddings().weight
    return weight


def _body(lm: nn.Module) -> nn.Module:
    return cast(nn.Module, cast(Any, lm).base_model)


def load_student(
    directory: Path,
    ranks: Ranks,
    compute: torch.dtype,
    *,
    attention: str,
    recompute: bool,
    lora: LoraSettings | None,
) -> Student:
    """Loads, adapts and shards the student, one rank after another so that the host holds one copy."""

    def load() -> Student:
        lm = _load(directory, torch.float32, attention)
        if lora is not None:
            adapt(lm, lora)
        if recompute:
            for layer in _layers(lm):
                _recompute(layer)
        student = Student(lm)
        policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False)
        _shard(student, _layers(lm), ranks, policy)
        return student

    return _in_turn(ranks, load)


def load_teacher(directory: Path, ranks: Ranks, compute: torch.dtype, *, attention: str, real_vocab: int) -> Teacher:
    """Loads and shards the teacher in the compute type."""

    def load() -> Teacher:
        lm = _load(directory, compute, attention).requires_grad_(False)
        head = head_weight(lm).detach()[:real_vocab].clone().to(ranks.device)
        teacher = Teacher(_body(lm), head)
        _shard(teacher, _layers(lm), ranks, MixedPrecisionPolicy(cast_forward_inputs=False))
        return teacher

    return _in_turn(ranks, load)


def _in_turn(ranks: Ranks, load: Callable[[], Answer]) -> Answer:
    mine: list[Answer] = []
    for turn in range(ranks.world):
        if turn == ranks.rank:
            mine.append(load())
        ranks.barrier()
    return mine[0]


def _load(directory: Path, dtype: torch.dtype, attention: str) -> nn.Module:
    # Evaluation mode: dropout would make a step depend on more than its rows.
    lm = AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation=attention, local_files_only=True
    ).eval()
    for key in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(lm.config, key, None) not in (None, 1, 1.0):
            raise ValueError(f"{directory}: `{key}` changes the logits after the head, which is not supported")
    if getattr(lm.get_output_embeddings(), "bias", None) is not None:
        raise ValueError(f"{directory}: an output head with a bias is not supported")
    return cast(nn.Module, lm)


def _layers(lm: nn.Module) -> list[nn.Module]:
    return list(cast(Any, _body(lm)).layers)


def _recompute(layer: nn.Module) -> None:
    """Computes a layer's activations again in the backward pass.

    The plain forward is wrapped, inside the hooks by which FSDP gathers the layer's weights.
    """
    plain = layer.forward

    def forward(*args: object, **kwargs: object) -> object:
        if not torch.is_grad_enabled():
            return plain(*args, **kwargs)
        return checkpoint(plain, *args, use_reentrant=False, **cast(Any, kwargs))

    layer.forward = forward


def _shard(root: nn.Module, layers: list[nn.Module], ranks: Ranks, policy: MixedPrecisionPolicy) -> None:
    for layer in layers:
        fully_shard(layer, mesh=ranks.mesh, mp_policy=policy)
    fully_shard(root, mesh=ranks.mesh, mp_policy=policy)


def real_tokens(directory: Path, vocab_size: int) -> tuple[int, dict[str, int] | None]:
    """How many ids the tokenizer knows, and its token map; without a `tokenizer.json`, the whole vocabulary."""
    path = directory / "tokenizer.json"
    if not path.is_file():
        return vocab_size, None
    content = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    tokens: dict[str, int] = (
        dict(vocabulary)
        if isinstance(vocabulary, dict)
        else {entry[0]: place for place, entry in enumerate(vocabulary)}
    )
    tokens |= {entry["content"]: entry["id"] for entry in content.get("added_tokens", [])}
    return max(tokens.values()) + 1, tokens


def shared_vocabulary(student: Path, teacher: Path | None, vocab_size: int, wanted: int | None) -> int:
    """The number of tokens in every softmax; student and teacher must mean the same by each of them."""
    real, ours = real_tokens(student, vocab_size)
    if teacher is not None:
        _, theirs = real_tokens(teacher, vocab_size)
        if ours is not None and theirs is not None and ours != theirs:
            odd = sorted(token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token))
            raise ValueError(
                f"{student} and {teacher} have different tokenizers: {len(odd)} tokens differ, the first is {odd[0]!r}"
            )
    real = wanted if wanted is not None else real
    if not 1 <= real <= vocab_size:
        raise ValueError(f"real vocabulary {real} is outside 1 to the model's {vocab_size}; set --real-vocab")
    return real
