"""Memory that runs out in the middle of a step leaves nothing behind."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bodies import learn_body, random_row, score_body
from lens_worker import head
from lens_worker.errors import HalfDoneError, MemoryExhaustedError, StateError
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.supervision import Kind
from lens_worker.worker import Worker
from test_checkpoint import load, save
from test_learn import learn, mixed, weights


def once(real: Callable[..., object], after: int) -> Callable[..., object]:
    """Runs out of memory in one call, `after` calls from now."""
    calls = iter(range(after + 1))

    def act(*args: object, **kwargs: object) -> object:
        if next(calls, None) == after:
            raise torch.OutOfMemoryError("no memory left")
        return real(*args, **kwargs)

    return act


@pytest.mark.parametrize("after", [0, 4])
@pytest.mark.parametrize("where", ["forward", "layer", "backward"])
def test_the_step_after_it_has_the_same_bits(
    settings: Settings, ranks: Ranks, monkeypatch: pytest.MonkeyPatch, where: str, after: int
) -> None:
    calm = Worker(settings, ranks)
    learn(calm, learn_body(mixed(0), 0))
    expected = learn(calm, learn_body(mixed(1), 1))

    worker = Worker(settings, ranks)
    learn(worker, learn_body(mixed(0), 0))
    before = weights(worker)
    with monkeypatch.context() as patch:
        if where == "forward":
            patch.setattr(head, "log_probabilities", once(head.log_probabilities, after))
        elif where == "layer":
            layer = worker.student.lm.get_submodule("model.layers.1.mlp")
            patch.setattr(layer, "forward", once(layer.forward, after))
        else:
            patch.setattr(head._ChunkedHead, "backward", staticmethod(once(head._ChunkedHead.backward, after % 3)))
        with pytest.raises(MemoryExhaustedError, match="out of memory in learn; nothing was changed"):
            learn(worker, learn_body(mixed(1), 1))
    assert worker.version == 1
    assert all(torch.equal(weight, before[name]) for name, weight in weights(worker).items())
    worker.run("score", score_body([([1], [2, 3])], [True], [1.0]))
    again = learn(worker, learn_body(mixed(1), 1, "again"))
    assert (again["loss"], again["grad_norm"]) == (expected["loss"], expected["grad_norm"])
    found = weights(calm)
    assert all(torch.equal(weight, found[name]) for name, weight in weights(worker).items())


def test_the_very_first_pass_may_fail_too(settings: Settings, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [random_row(Kind.NLL, seed) for seed in range(3)]
    expected = learn(Worker(settings, ranks), learn_body(rows, 0))
    worker = Worker(settings, ranks)
    layer = worker.student.lm.get_submodule("model.layers.0.mlp")
    with monkeypatch.context() as patch:
        patch.setattr(layer, "forward", once(layer.forward, 0))
        with pytest.raises(MemoryExhaustedError):
            learn(worker, learn_body(rows, 0))
    again = learn(worker, learn_body(rows, 0))
    assert (again["loss"], again["grad_norm"]) == (expected["loss"], expected["grad_norm"])


def test_a_torch_that_cannot_recover_says_so(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lens_worker.worker.recover", lambda _: False)
    monkeypatch.setattr(head, "log_probabilities", once(head.log_probabilities, 0))
    with pytest.raises(MemoryExhaustedError):
        learn(worker, learn_body(mixed(0), 0))
    for command, body in (("learn", learn_body(mixed(0), 0)), ("load", b'{"directory": "/x"}')):
        with pytest.raises(StateError, match="restart the worker"):
            worker.run(command, body)


def test_an_update_that_fails_halfway_needs_a_checkpoint(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save(worker, tmp_path / "state")
    with monkeypatch.context() as patch:
        patch.setattr(worker.learner.adam, "step", once(worker.learner.adam.step, 0))
        with pytest.raises(HalfDoneError, match="the update failed halfway: no memory left"):
            learn(worker, learn_body(mixed(0), 0))
    with pytest.raises(StateError, match="load a checkpoint first"):
        learn(worker, learn_body(mixed(0), 0))
    load(worker, tmp_path / "state")
    assert learn(worker, learn_body(mixed(0), 0))["version"] == 1
