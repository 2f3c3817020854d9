"""Going on from a checkpoint gives the same bits as never having stopped."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bodies import cross_body, learn_body, random_row
from lens_worker.errors import StateError
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.supervision import Kind
from lens_worker.worker import Worker
from test_learn import learn, mixed, weights


def save(worker: Worker, directory: Path) -> dict[str, object]:
    answer: dict[str, object] = json.loads(worker.run("save", _body(directory)).body)
    return answer


def load(worker: Worker, directory: Path) -> dict[str, object]:
    answer: dict[str, object] = json.loads(worker.run("load", _body(directory)).body)
    return answer


def _body(directory: Path) -> bytes:
    return json.dumps({"directory": str(directory)}).encode()


@pytest.mark.parametrize("form", ["topk", "exact"])
def test_steps_after_a_restore_have_the_same_bits(settings: Settings, ranks: Ranks, tmp_path: Path, form: str) -> None:
    settings = replace(settings, targets=form)
    first = Worker(settings, ranks)
    row = random_row(Kind.FORWARD_KL, 1)
    learn(first, learn_body(mixed(0), 0))
    first.run("cross_context", cross_body([([1, 2, 3], row.prompt, row.response)]))
    learn(first, learn_body(mixed(1), 1))
    assert save(first, tmp_path / "state")["version"] == 2

    def go_on(worker: Worker) -> list[object]:
        reports = [
            learn(worker, learn_body([*mixed(version), replace(row, key=0)], version)) for version in range(2, 5)
        ]
        return [(report["loss"], report["grad_norm"], report["version"]) for report in reports]

    reports = go_on(first)
    second = Worker(settings, ranks)
    assert load(second, tmp_path / "state") == {
        "directory": str(tmp_path / "state"), "version": 2, "exact": True,
    }  # fmt: skip
    assert go_on(second) == reports
    after = weights(second)
    assert all(torch.equal(weight, after[name]) for name, weight in weights(first).items())


def test_the_same_worker_can_go_back_and_do_a_step_again(worker: Worker, tmp_path: Path) -> None:
    save(worker, tmp_path / "start")
    first = learn(worker, learn_body(mixed(0), 0, "a"))
    after = weights(worker)
    load(worker, tmp_path / "start")
    assert worker.version == 0
    again = learn(worker, learn_body(mixed(0), 0, "a"))
    assert again["replayed"] is False, "an undone step must be done again"
    assert again["loss"] == first["loss"]
    assert all(torch.equal(weight, after[name]) for name, weight in weights(worker).items())


def test_a_checkpoint_is_written_whole_and_replaces_only_its_own_kind(worker: Worker, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "state"
    save(worker, place)
    learn(worker, learn_body(mixed(0), 0))
    save(worker, place)
    assert json.loads((place / "lens_state.json").read_text())["version"] == 1
    assert [path.name for path in place.parent.iterdir()] == ["state"], "no leftovers beside it"
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years")
    with pytest.raises(StateError, match="was not written by this call"):
        save(worker, precious)
    assert (precious / "thesis.txt").read_text() == "years"


def test_a_checkpoint_that_does_not_fit_changes_nothing(
    worker: Worker, settings: Settings, models: dict[str, Path], ranks: Ranks, tmp_path: Path
) -> None:
    other = Worker(replace(settings, student=models["llama"], teacher=None), ranks)
    save(other, tmp_path / "other")
    learn(worker, learn_body(mixed(0), 0))
    before = weights(worker)
    with pytest.raises(StateError, match=r"model of another shape: lm_head\.weight"):
        load(worker, tmp_path / "other")
    with pytest.raises(StateError, match="cannot be read"):
        load(worker, tmp_path / "nowhere")
    assert worker.version == 1
    assert all(torch.equal(weight, before[name]) for name, weight in weights(worker).items())


def test_a_load_that_fails_halfway_refuses_work_until_the_next(worker: Worker, tmp_path: Path) -> None:
    from lens_worker.errors import WorkerError

    save(worker, tmp_path / "good")
    save(worker, tmp_path / "broken")
    for part in (tmp_path / "broken" / "tensors").glob("*.distcp"):
        part.unlink()
    with pytest.raises(WorkerError, match="cannot be loaded"):
        load(worker, tmp_path / "broken")
    with pytest.raises(StateError, match=r"cannot be loaded: .*; load a checkpoint first"):
        learn(worker, learn_body(mixed(0), 0))
    load(worker, tmp_path / "good")
    assert learn(worker, learn_body(mixed(0), 0))["version"] == 1
