"""The published weights go on answering, to the bit, while the optimizer steps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bodies import cross_body, learn_body, random_row, score_body
from client import Client, torchrun
from lens_worker import head
from lens_worker.errors import MemoryExhaustedError, StateError
from lens_worker.lora import LoraSettings
from lens_worker.protocol import read_tensors
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.supervision import Kind
from lens_worker.worker import Worker
from test_checkpoint import load, save
from test_learn import learn, mixed, weights
from test_ranks import HINTED, arguments
from test_recovery import once

ROWS = [(prompt, response) for _, prompt, response in HINTED]


def score(version: int) -> bytes:
    return score_body(ROWS, [True, True, True], [1.0, 1.0, 1.0], expected_version=str(version))


def scores(worker: Worker, version: int) -> dict[str, Tensor]:
    fields = read_tensors(worker.run("score", score(version)).body)
    assert fields.text("version") == str(version)
    return fields.all()


def gaps(worker: Worker, version: int) -> Tensor:
    fields = read_tensors(worker.run("cross_context", cross_body(HINTED, expected_version=str(version))).body)
    assert fields.text("version") == str(version)
    return fields.tensor("gap", torch.float64, len(HINTED))


def publish(worker: Worker, folder: Path, *, keep: bool = True) -> None:
    body = {"directory": str(folder), "version": worker.version, "keep": keep}
    worker.run("publish", json.dumps(body).encode())


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    pairs = ((value, theirs[name]) for name, value in ours.items())
    return all(torch.equal(a.nan_to_num(nan=7.0), b.nan_to_num(nan=7.0)) for a, b in pairs)


@pytest.mark.parametrize("form", ["topk", "exact"])
@pytest.mark.parametrize("lora", [None, LoraSettings(2, 32.0, ("q_proj", "down_proj"))])
def test_published_weights_answer_while_training_moves_on(
    settings: Settings, ranks: Ranks, tmp_path: Path, form: str, lora: LoraSettings | None
) -> None:
    settings = replace(settings, targets=form, lora=lora)
    worker, plain = Worker(settings, ranks), Worker(settings, ranks)
    for each in (worker, plain):
        learn(each, learn_body(mixed(0), 0))
    publish(worker, tmp_path / "w")
    expected, gap = scores(worker, 1), gaps(worker, 1)
    for version in range(1, 4):
        ours = learn(worker, learn_body(mixed(version), version))
        assert same(scores(worker, 1), expected)
        assert torch.equal(gaps(worker, 1), gap)
        # Scoring in between changes no step.
        theirs = learn(plain, learn_body(mixed(version), version))
        assert (ours["loss"], ours["grad_norm"]) == (theirs["loss"], theirs["grad_norm"])
    assert not same(scores(worker, 4), expected)
    after = weights(plain)
    assert all(torch.equal(weight, after[name]) for name, weight in weights(worker).items())
    # Targets of the published version are rows of later steps.
    kept = worker.targets.kept[0]
    assert kept.version == 1
    row = replace(random_row(Kind.FORWARD_KL, 1), key=0)
    assert learn(worker, learn_body([row], 4))["version"] == 5


def test_the_copy_survives_a_checkpoint(settings: Settings, ranks: Ranks, tmp_path: Path) -> None:
    worker = Worker(settings, ranks)
    learn(worker, learn_body(mixed(0), 0))
    publish(worker, tmp_path / "w")
    save(worker, tmp_path / "alike")
    learn(worker, learn_body(mixed(1), 1))
    expected, ahead = scores(worker, 1), scores(worker, 2)
    save(worker, tmp_path / "apart")
    other = Worker(settings, ranks)
    load(other, tmp_path / "apart")
    assert other.info()["published"] == 1
    assert same(scores(other, 1), expected)
    assert same(scores(other, 2), ahead)
    load(other, tmp_path / "alike")
    learn(other, learn_body(mixed(5), 1))
    assert same(scores(other, 1), expected), "the weights of the checkpoint, whatever was learned since"
    publish(other, tmp_path / "w", keep=False)
    save(other, tmp_path / "none")
    load(worker, tmp_path / "none")
    assert worker.info()["published"] is None


def test_a_version_that_is_not_held_is_refused(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="at version 0 and keeps no published weights, the request expects 3"):
        scores(worker, 3)
    publish(worker, tmp_path / "w")
    learn(worker, learn_body(mixed(0), 0))
    learn(worker, learn_body(mixed(1), 1))
    with pytest.raises(StateError, match=r"at version 2 and keeps the published weights of version 0, .* expects 1"):
        gaps(worker, 1)
    publish(worker, tmp_path / "w")
    with pytest.raises(StateError, match="published weights of version 2"):
        scores(worker, 0)


def test_running_out_of_memory_with_the_copy_in_place_leaves_the_trained_weights(
    settings: Settings, ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, worker = Worker(settings, ranks), Worker(settings, ranks)
    for each in (calm, worker):
        learn(each, learn_body(mixed(0), 0))
    publish(worker, tmp_path / "w")
    expected = [learn(calm, learn_body(mixed(version), version)) for version in (1, 2)]
    learn(worker, learn_body(mixed(1), 1))
    published = scores(worker, 1)
    layer = worker.student.lm.get_submodule("model.layers.1.mlp")
    for patched in ("layer", "head"):
        with monkeypatch.context() as patch:
            if patched == "layer":
                patch.setattr(layer, "forward", once(layer.forward, 0))
            else:
                patch.setattr("lens_worker.score.log_probabilities", once(head.log_probabilities, 1))
            with pytest.raises(MemoryExhaustedError, match="out of memory in score"):
                scores(worker, 1)
    assert same(scores(worker, 1), published)
    found = learn(worker, learn_body(mixed(2), 2))
    assert (found["loss"], found["grad_norm"]) == (expected[1]["loss"], expected[1]["grad_norm"])
    after = weights(calm)
    assert all(torch.equal(weight, after[name]) for name, weight in weights(worker).items())


def remote_scores(client: Client, version: int) -> dict[str, Tensor]:
    status, body = client.post("score", score(version))
    assert status == 200, body
    return read_tensors(body).all()


def test_two_ranks_keep_their_shards(models: dict[str, Path], token_file: Path, tmp_path: Path) -> None:
    state = {"directory": str(tmp_path / "state")}
    with torchrun(2, *arguments(models, token_file)) as worker:
        client = worker.client
        client.json("learn", learn_body(mixed(0), 0))
        client.json("publish", {"directory": str(tmp_path / "w"), "version": 1, "keep": True})
        expected = remote_scores(client, 1)
        for version in (1, 2):
            client.json("learn", learn_body(mixed(version), version))
            assert same(remote_scores(client, 1), expected)
        status, body = client.post("score", score(2))
        assert (status, "keeps the published weights of version 1" in body.decode()) == (409, True)
        client.json("save", state)
        last = client.json("learn", learn_body(mixed(3), 3))
    with torchrun(2, *arguments(models, token_file)) as worker:
        client = worker.client
        client.json("load", state)
        assert client.get("info")[1]["published"] == 1
        assert same(remote_scores(client, 1), expected)
        again = client.json("learn", learn_body(mixed(3), 3))
        assert (again["loss"], again["grad_norm"]) == (last["loss"], last["grad_norm"])
        assert same(remote_scores(client, 1), expected)
