"""The chunked head against plain autograd over whole logits."""

import pytest
import torch
from torch import Tensor

from lens_worker.head import Part, weighted_loss
from lens_worker.supervision import FullReverse, Likelihood

POSITIONS, HIDDEN, VOCAB, REAL = 7, 5, 11, 9


def tensors() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    hidden = torch.randn(POSITIONS, HIDDEN, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(VOCAB, HIDDEN, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(4, HIDDEN, dtype=torch.float64)
    tokens = torch.tensor([1, 8, 3])
    return hidden, weight, teacher, tokens, torch.rand(POSITIONS, dtype=torch.float64)


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_values_and_gradients_are_those_of_whole_logits(chunk: int) -> None:
    hidden, weight, teacher, tokens, coefficients = tensors()
    head = torch.randn(REAL, HIDDEN, dtype=torch.float64)
    parts = [Part(0, 4, FullReverse(teacher, head)), Part(4, 7, Likelihood(tokens))]
    loss, values = weighted_loss(hidden, weight, REAL, coefficients, parts, chunk)
    found = torch.autograd.grad(loss * 3.0, (hidden, weight))

    student = torch.log_softmax(hidden @ weight[:REAL].t(), 1)
    kl = (student[:4].exp() * (student[:4] - torch.log_softmax(teacher @ head.t(), 1))).sum(1)
    nll = -student[4:].gather(1, tokens[:, None]).squeeze(1)
    plain = torch.cat([kl, nll])
    expected = torch.autograd.grad((plain * coefficients).sum() * 3.0, (hidden, weight))
    torch.testing.assert_close(values, plain.detach())
    torch.testing.assert_close(found, expected)
    assert not found[1][REAL:].any(), "padding rows of the head must not move"


def test_without_positions_every_gradient_is_there_and_zero() -> None:
    hidden, weight, *_ = tensors()
    loss, values = weighted_loss(hidden[:0], weight, REAL, torch.zeros(0), [], 4)
    found = torch.autograd.grad(loss, (hidden, weight))
    assert len(values) == 0
    assert all(not gradient.any() for gradient in found)


def test_a_frozen_head_costs_no_gradient() -> None:
    hidden, weight, _, tokens, coefficients = tensors()
    frozen = weight.detach()
    loss, _ = weighted_loss(hidden[:3], frozen, REAL, coefficients[:3], [Part(0, 3, Likelihood(tokens))], 2)
    loss.backward()
    assert frozen.grad is None
    assert hidden.grad is not None


def test_a_second_backward_pass_is_refused() -> None:
    hidden, weight, _, tokens, coefficients = tensors()
    loss, _ = weighted_loss(hidden[:3], weight, REAL, coefficients[:3], [Part(0, 3, Likelihood(tokens))], 2)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        loss.backward()
