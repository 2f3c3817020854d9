"""Stores internalization targets under keys until rows refer to them.

Every rank keeps all targets in host memory, because the assignment of rows to ranks is not known yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .errors import RequestError


@dataclass(frozen=True)
class Target:
    """One response's target distributions.

    Either the most likely tokens (`ids` and `logprobs`, [response, k]), or, exactly, the last hidden states
    ([response, hidden]) that the head of the snapshot of that version reads.
    """

    version: int
    ids: Tensor | None = None
    logprobs: Tensor | None = None
    hidden: Tensor | None = None

    @property
    def length(self) -> int:
        """Response tokens."""
        held = self.hidden if self.hidden is not None else self.ids
        return 0 if held is None else len(held)


@dataclass
class Targets:
    """Kept targets by key, and the heads of the snapshots that exact ones need."""

    kept: dict[int, Target] = field(default_factory=dict)
    heads: dict[int, Tensor] = field(default_factory=dict)
    next_key: int = 0

    def keep(self, target: Target) -> int:
        """Stores a target and returns its key."""
        key = self.next_key
        self.next_key += 1
        self.kept[key] = target
        return key

    def get(self, key: int, row: int, length: int) -> Target:
        """The target of a row with `length` response tokens."""
        target = self.kept.get(key)
        if target is None:
            raise RequestError(f"tensor `target_key`: row {row} names target {key}, which is not kept (any more)")
        if target.length != length:
            raise RequestError(
                f"tensor `target_key`: target {key} is about {target.length} tokens, "
                f"but the response of row {row} has {length}"
            )
        return target

    def forget(self, before_version: int) -> int:
        """Drops targets and heads of snapshots older than `before_version`; returns the number of dropped targets."""
        old = [key for key, target in self.kept.items() if target.version < before_version]
        for key in old:
            del self.kept[key]
        self.heads = {version: head for version, head in self.heads.items() if version >= before_version}
        return len(old)

    def tensors(self) -> dict[str, Tensor]:
        """All of it as named tensors, for a checkpoint."""
        named = {f"head.{version}": head for version, head in self.heads.items()}
        for key, target in self.kept.items():
            for name in ("ids", "logprobs", "hidden"):
                held: Tensor | None = getattr(target, name)
                if held is not None:
                    named[f"target.{key}.{target.version}.{name}"] = held
        return named

    @classmethod
    def of(cls, named: Iterable[tuple[str, Tensor]], next_key: int) -> Targets:
        """The reverse of [`Targets.tensors`]."""
        found: dict[tuple[int, int], dict[str, Tensor]] = {}
        targets = cls(next_key=next_key)
        for name, stored in named:
            kind, *rest = name.split(".")
            # A tensor inside a file's bytes starts anywhere; matrix products round by where their input starts.
            tensor = stored.clone()
            if kind == "head":
                targets.heads[int(rest[0])] = tensor
            else:
                found.setdefault((int(rest[0]), int(rest[1])), {})[rest[2]] = tensor
        for (key, version), parts in sorted(found.items()):
            targets.kept[key] = Target(version, **parts)
        return targets


def top_of(log_probabilities: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k most likely tokens, as they are kept."""
    top = log_probabilities.topk(min(k, log_probabilities.shape[1]), dim=1)
    return top.indices.to(torch.int32), top.values.float()
