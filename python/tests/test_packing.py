"""Who computes what, and that rows laid end to end do not see each other."""

import random
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from conftest import SIZES
from lens_worker.model import body_states
from lens_worker.packing import Row, assign, pack


def test_every_row_is_computed_once_within_the_budget() -> None:
    draw = random.Random(5)
    for _ in range(50):
        lengths = [draw.choice([0, 1, 7, 30]) for _ in range(draw.randrange(1, 20))]
        ranks, budget = draw.randrange(1, 5), draw.randrange(1, 40)
        plan = assign(lengths, ranks, budget)
        assert len({len(batches) for batches in plan}) == 1, "collectives need as many turns on every rank"
        rows = sorted(row for batches in plan for batch in batches for row in batch)
        assert rows == [row for row, length in enumerate(lengths) if length > 0]
        for batch in (batch for batches in plan for batch in batches):
            assert len(batch) <= 1 or sum(lengths[row] for row in batch) <= budget


def test_the_longest_row_goes_to_the_emptiest_rank() -> None:
    assert assign([3, 9, 4, 5], 2, 100) == [[[0, 1]], [[2, 3]]]
    assert assign([0, 0], 2, 10) == [[[]], [[]]], "an empty batch still takes a turn"


def test_packing_keeps_only_what_can_reach_an_asked_token() -> None:
    rows = [
        Row(torch.tensor([1, 2, 3, 4, 5]), 2, torch.tensor([0, 2])),
        Row(torch.tensor([6, 7, 8]), 1, torch.tensor([], dtype=torch.long)),
        Row(torch.tensor([9, 10, 11]), 1, torch.tensor([0])),
    ]
    packed = pack(rows)
    assert packed.tokens.tolist() == [[1, 2, 3, 4, 9]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 0]]
    assert packed.picks.tolist() == [1, 3, 4]


@pytest.mark.parametrize("attention", ["packed", "sdpa"])
@pytest.mark.parametrize("name", ["student", "llama"])
def test_packed_rows_are_the_same_as_separate_rows(models: dict[str, Path], name: str, attention: str) -> None:
    draw = random.Random(1)

    def load(attention: str) -> nn.Module:
        model = AutoModelForCausalLM.from_pretrained(models[name], dtype=torch.float64, attn_implementation=attention)
        body: nn.Module = model.eval().base_model
        return body

    rows = []
    for length in (6, 1, 2, 9):
        tokens = torch.tensor([draw.randrange(40) for _ in range(length + 1)])
        rows.append(Row(tokens, 1, torch.arange(length)))
    with torch.no_grad():
        together = body_states(load(attention), pack(rows))
        masked = load("sdpa")
        apart = torch.cat([body_states(masked, pack([row])) for row in rows])
    torch.testing.assert_close(together, apart, rtol=1e-10, atol=1e-10)


def test_a_sliding_window_is_refused_instead_of_ignored() -> None:
    config = Qwen3Config(**SIZES, use_sliding_window=True, sliding_window=3, max_window_layers=0)
    config._attn_implementation = "packed"
    row = Row(torch.tensor([1, 2, 3, 4, 5, 6]), 1, torch.arange(5))
    with pytest.raises(ValueError, match="start the worker with --attention sdpa"):
        body_states(Qwen3ForCausalLM(config).base_model, pack([row]))
