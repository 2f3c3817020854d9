"""Causal attention over packed rows, one row at a time.

A mask over the whole pack would make every token's cost grow with the pack's length instead of its row's. This
implementation is registered with transformers under the name `packed` and gets the rows' borders from
`body_states`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "packed"


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    row_borders: Sequence[int],
    scaling: float | None = None,
    **others: Any,  # noqa: ANN401 - whatever the model passes to every attention
) -> tuple[Tensor, None]:
    """Attends within each row; tensors are [1, heads, tokens, size]."""
    if others.get("sliding_window") is not None:
        raise ValueError("`packed` attention has no sliding window; start the worker with --attention sdpa")
    rows = [
        F.scaled_dot_product_attention(
            query[:, :, start:stop],
            key[:, :, start:stop],
            value[:, :, start:stop],
            is_causal=True,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        for start, stop in pairwise(row_borders)
    ]
    return torch.cat(rows, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, packed_attention)
