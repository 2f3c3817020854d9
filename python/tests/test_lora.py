"""Adapters: what they compute, that only they learn, and PEFT's layout."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from bodies import learn_body, score_body
from lens_worker.errors import StateError
from lens_worker.lora import LoraSettings
from lens_worker.protocol import read_tensors
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.worker import Worker
from test_checkpoint import load, save
from test_export import call
from test_learn import learn, mixed, weights

LORA = LoraSettings(rank=3, alpha=6.0, targets=("q_proj", "down_proj"))
ROWS = [([1, 2, 3], [4, 5, 6, 7]), ([9], [8, 7])]


@pytest.fixture
def adapted(settings: Settings, ranks: Ranks) -> Worker:
    worker = Worker(replace(settings, lora=LORA), ranks)
    for version in range(3):
        learn(worker, learn_body(mixed(version), version))
    return worker


def scores(worker: Worker) -> torch.Tensor:
    body = score_body(ROWS, [True, True], [1.0, 1.0])
    return read_tensors(worker.run("score", body).body).tensor("student_logprob", torch.float32, 6)


def logprobs(model: torch.nn.Module) -> torch.Tensor:
    found = []
    for prompt, response in ROWS:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1, :37]
        found.append(torch.log_softmax(logits, 1).gather(1, torch.tensor(response)[:, None]).squeeze(1))
    return torch.cat(found)


def test_only_the_adapters_learn(adapted: Worker, settings: Settings) -> None:
    base = AutoModelForCausalLM.from_pretrained(settings.student, dtype=torch.float32)
    plain = dict(base.named_parameters())
    found = weights(adapted)
    adapters = {name for name in found if name.endswith(("lora_A", "lora_B"))}
    assert len(adapters) == 2 * 2 * 2
    assert all(torch.equal(found[name], plain[name]) for name in found.keys() - adapters)
    assert all(found[name].any() for name in adapters), "three steps moved every adapter"


def test_a_fresh_adapter_changes_nothing(settings: Settings, ranks: Ranks) -> None:
    torch.testing.assert_close(
        scores(Worker(replace(settings, lora=LORA), ranks)), scores(Worker(settings, ranks)), rtol=0, atol=0
    )


def test_the_merged_export_says_what_the_adapter_says(adapted: Worker, tmp_path: Path) -> None:
    call(adapted, "export", directory=str(tmp_path / "merged"), dtype="f32")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    torch.testing.assert_close(logprobs(merged), scores(adapted), rtol=1e-4, atol=1e-5)
    call(adapted, "publish", directory=str(tmp_path / "published"), version=3, dtype="f32")
    published = AutoModelForCausalLM.from_pretrained(tmp_path / "published", dtype=torch.float32)
    assert torch.equal(logprobs(published), logprobs(merged))


def test_peft_reads_the_adapter(adapted: Worker, settings: Settings, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    answer = call(adapted, "export", directory=str(tmp_path / "adapter"), format="adapter", dtype="f32")
    assert {file["name"] for file in answer["files"]} == {  # type: ignore[attr-defined]
        "adapter_model.safetensors", "adapter_config.json",
    }  # fmt: skip
    base = AutoModelForCausalLM.from_pretrained(settings.student, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    torch.testing.assert_close(logprobs(model), scores(adapted), rtol=1e-4, atol=1e-5)


def test_an_adapters_checkpoint_goes_on_with_the_same_bits(
    adapted: Worker, settings: Settings, ranks: Ranks, tmp_path: Path
) -> None:
    save(adapted, tmp_path / "state")
    first = learn(adapted, learn_body(mixed(9), 3))
    other = Worker(replace(settings, lora=LORA), ranks)
    load(other, tmp_path / "state")
    assert learn(other, learn_body(mixed(9), 3))["loss"] == first["loss"]
    found = weights(other)
    assert all(torch.equal(weight, found[name]) for name, weight in weights(adapted).items())
    with pytest.raises(StateError, match="adapters"):
        load(Worker(settings, ranks), tmp_path / "state")


def test_an_unknown_target_is_named(settings: Settings, ranks: Ranks) -> None:
    with pytest.raises(ValueError, match="no linear layer named nowhere"):
        Worker(replace(settings, lora=replace(LORA, targets=("q_proj", "nowhere"))), ranks)


def test_the_adapters_config_names_what_it_was_made_with(adapted: Worker, tmp_path: Path) -> None:
    call(adapted, "export", directory=str(tmp_path / "adapter"), format="adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (3, 6.0, "LORA")
