"""The six losses against the golden values of `crates/opd`, and their gradients against finite differences."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lens_worker import losses
from lens_worker.losses import ClipConstants, TokenLosses

GOLDEN = json.loads((Path(__file__).parents[2] / "crates" / "opd" / "tests" / "golden" / "objective.json").read_text())
CLIP = ClipConstants(kl_coef=1.0, clip_range=0.2, dual_clip=3.0)


def log_softmax(logits: list[float]) -> Tensor:
    # The reference reads its logits as f32 and computes in f64.
    return torch.log_softmax(torch.tensor([logits], dtype=torch.float32).double(), dim=1)


def assert_same(found: TokenLosses, expected: dict[str, object]) -> None:
    torch.testing.assert_close(found.values[0].item(), expected["value"], rtol=1e-9, atol=1e-9)
    golden = torch.tensor([expected["gradient"]], dtype=torch.float64)
    torch.testing.assert_close(found.gradient, golden, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_golden_values_of_five_losses(case: dict[str, object]) -> None:
    def student() -> Tensor:
        return log_softmax(case["student"])  # type: ignore[arg-type]

    def teacher() -> Tensor:
        return log_softmax(case["teacher"])  # type: ignore[arg-type]

    top: list[dict[str, float]] = case["top"]  # type: ignore[assignment]
    ids = torch.tensor([[entry["token"] for entry in top]])
    logprobs = torch.tensor([[entry["logprob"] for entry in top]], dtype=torch.float32).double()
    token = torch.tensor([case["token"]])
    found = {
        "rkl_full": losses.rkl_full(student(), teacher()),
        "rkl_topk": losses.rkl_topk(student(), ids, logprobs),
        "forward_kl": losses.forward_kl(teacher(), student()),
        "forward_kl_topk": losses.forward_kl_topk(student(), ids, logprobs),
        "nll": losses.nll(student(), token),
    }
    for name, loss in found.items():
        assert_same(loss, case[name])  # type: ignore[arg-type]


@pytest.mark.parametrize("case", GOLDEN["policy_gradient"])
def test_golden_values_of_the_policy_gradient(case: dict[str, object]) -> None:
    def single(name: str) -> Tensor:
        return torch.tensor([case[name]], dtype=torch.float32).double()

    found = losses.k1_pg(
        log_softmax(case["student"]),  # type: ignore[arg-type]
        torch.tensor([case["token"]]),
        single("teacher_logprob"),
        single("rollout_logprob"),
        CLIP,
    )
    assert_same(found, case)


TOP_IDS = torch.tensor([[3, 0, 5], [2, 6, losses.PAD]])
TOP = torch.tensor([[0.4, 0.3, 0.1], [0.5, 0.2, 0.0]], dtype=torch.float64).log()
TEACHER = torch.log_softmax(torch.linspace(-2, 3, 14, dtype=torch.float64).sin().mul(3).view(2, 7), 1)
TOKENS = torch.tensor([4, 1])
CASES: dict[str, Callable[[Tensor], TokenLosses]] = {
    "rkl_full": lambda s: losses.rkl_full(s, TEACHER),
    "rkl_topk": lambda s: losses.rkl_topk(s, TOP_IDS, TOP),
    "forward_kl": lambda s: losses.forward_kl(TEACHER.clone(), s),
    "forward_kl_topk": lambda s: losses.forward_kl_topk(s, TOP_IDS, TOP),
    "nll": lambda s: losses.nll(s, TOKENS),
    "k1_pg": lambda s: losses.k1_pg(
        s, TOKENS, torch.tensor([-1.0, -2.0]).double(), torch.tensor([-2.1, -1.9]).double(), CLIP
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    logits = torch.linspace(-1, 2, 14, dtype=torch.float64).cos().mul(2).view(2, 7)
    gradient = CASES[name](torch.log_softmax(logits, 1)).gradient
    step = 1e-6
    for row in range(2):
        for column in range(7):
            ends = []
            for sign in (1, -1):
                moved = logits.clone()
                moved[row, column] += sign * step
                ends.append(CASES[name](torch.log_softmax(moved, 1)).values[row].item())
            slope = (ends[0] - ends[1]) / (2 * step)
            assert gradient[row, column].item() == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("name", ["rkl_topk", "forward_kl_topk"])
def test_a_list_of_the_whole_vocabulary_has_no_tail(name: str) -> None:
    ids = torch.arange(7).expand(2, 7)
    student = torch.log_softmax(torch.arange(14.0, dtype=torch.float64).view(2, 7).sin(), 1)
    listed = getattr(losses, name)(student.clone(), ids, TEACHER)
    full = (
        losses.rkl_full(student.clone(), TEACHER)
        if name == "rkl_topk"
        else losses.forward_kl(TEACHER.clone(), student.clone())
    )
    torch.testing.assert_close(listed.values, full.values)
    torch.testing.assert_close(listed.gradient, full.gradient)


def test_pads_change_nothing() -> None:
    student = torch.log_softmax(torch.arange(7.0, dtype=torch.float64)[None].sin(), 1)
    for loss in (losses.rkl_topk, losses.forward_kl_topk):
        padded = loss(student.clone(), TOP_IDS[1:], TOP[1:])
        short = loss(student.clone(), TOP_IDS[1:, :2], TOP[1:, :2])
        torch.testing.assert_close(padded.values, short.values, rtol=0, atol=0)
        torch.testing.assert_close(padded.gradient, short.gradient, rtol=0, atol=0)


def test_a_list_that_rounds_to_one_leaves_the_tail_its_floor() -> None:
    student = torch.log_softmax(torch.zeros(1, 4, dtype=torch.float64), 1)
    found = losses.rkl_topk(student, torch.tensor([[1]]), torch.zeros(1, 1, dtype=torch.float64))
    expected = 0.25 * torch.tensor(0.25).log() + 0.75 * (torch.tensor(0.75) / losses.TAIL_FLOOR).log()
    assert found.values.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_target_the_student_finds_impossible_has_a_finite_gradient() -> None:
    student = torch.log_softmax(torch.tensor([[200.0, 0.0, 0.0]]), 1)
    found = losses.forward_kl_topk(student, torch.tensor([[1]]), torch.tensor([[-0.01]]))
    assert torch.isfinite(found.gradient).all()
    assert found.gradient[0, 1].item() == pytest.approx(-0.990, abs=1e-3)
