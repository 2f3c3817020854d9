"""Exported folders load with transformers and say the same."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from bodies import learn_body
from conftest import LAB
from lens_worker.errors import RequestError, StateError
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.worker import Worker
from test_learn import learn, mixed, weights


def call(worker: Worker, command: str, **fields: object) -> dict[str, object]:
    answer: dict[str, object] = json.loads(worker.run(command, json.dumps(fields).encode()).body)
    return answer


@pytest.mark.parametrize("name", ["student", "llama"])
def test_an_export_has_the_workers_weights(
    settings: Settings, models: dict[str, Path], ranks: Ranks, tmp_path: Path, name: str
) -> None:
    worker = Worker(replace(settings, student=models[name]), ranks)
    learn(worker, learn_body(mixed(), 0))
    answer = call(worker, "export", directory=str(tmp_path / "out"), dtype="f32")
    assert answer["version"] == 1
    for file in answer["files"]:  # type: ignore[attr-defined]
        data = (tmp_path / "out" / file["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert ("lm_head.weight" in stored) == (name == "llama"), "a tied head is left out"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    ours = weights(worker)
    theirs = dict(loaded.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_publish_is_bf16_in_shards_with_its_companions(ranks: Ranks, settings: Settings, tmp_path: Path) -> None:
    worker = Worker(replace(settings, student=LAB / "student-small", teacher=None, real_vocab=None), ranks)
    assert worker.real_vocab == 1988, "the tokenizer's own tokens, without padding"
    worker.exporter.shard_bytes = 300_000
    answer = call(worker, "publish", directory=str(tmp_path / "v000000"), version=0)
    names = {file["name"] for file in answer["files"]}  # type: ignore[attr-defined]
    assert {"tokenizer.json", "chat_template.jinja", "model.safetensors.index.json", "config.json"} <= names
    assert sum(name.startswith("model-0") for name in names) > 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "v000000")
    assert loaded.dtype == torch.bfloat16
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "v000000")
    ids = tokenizer("You are in the middle of a room.", return_tensors="pt").input_ids
    original = AutoModelForCausalLM.from_pretrained(LAB / "student-small", dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, original(ids).logits)


def test_folders_are_replaced_only_if_they_are_exports(worker: Worker, tmp_path: Path) -> None:
    place = tmp_path / "v000001"
    call(worker, "publish", directory=str(place), version=0)
    learn(worker, learn_body(mixed(), 0))
    answer = call(worker, "publish", directory=str(place), version=1)
    assert answer["version"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v000001"]
    with pytest.raises(StateError, match="expects 0"):
        call(worker, "publish", directory=str(place), version=0)
    (tmp_path / "mine").mkdir()
    with pytest.raises(StateError, match=r"holds no lens_weights\.json"):
        call(worker, "export", directory=str(tmp_path / "mine"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"directory": "relative/path"}, "field `directory` is 'relative/path', expected an absolute path"),
        ({"directory": "/x", "dtype": "f16"}, "field `dtype` is 'f16', expected bf16 or f32"),
        ({"dtype": "f32"}, "field `directory` is missing"),
        ({"directory": "/x", "dytpe": "f32"}, "field `dytpe` is not known"),
        ({"directory": "/x", "format": "adapter"}, "without --lora-rank"),
        ({"directory": 3}, "field `directory` is 3, expected str"),
    ],
)
def test_bad_fields_are_named(worker: Worker, fields: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        call(worker, "export", **fields)
