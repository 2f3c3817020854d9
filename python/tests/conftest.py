"""One process group of one rank for the tests that run in this process, and small models made on the spot."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from lens_worker.ranks import Ranks
from lens_worker.settings import Settings, parse
from lens_worker.worker import Worker

LAB = Path(__file__).parents[2] / "assets" / "lab"
SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}

logging.disable_progress_bar()
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield Ranks(torch.device("cpu"), timedelta(minutes=1))
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tied Qwen3 student, an untied Llama teacher of another width, and an untied Llama student."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(7)
    made = {
        "student": Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True)),
        "teacher": LlamaForCausalLM(LlamaConfig(**(SIZES | {"hidden_size": 24}), tie_word_embeddings=False)),
        "llama": LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False)),
    }
    for name, model in made.items():
        model.save_pretrained(folder / name)
    return {name: folder / name for name in made}


@pytest.fixture(scope="session")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text("open sesame\n")
    return path


@pytest.fixture
def settings(models: dict[str, Path], token_file: Path) -> Settings:
    """The tiny student with its teacher; ids from 37 on are padding."""
    return parse([
        "--student", str(models["student"]), "--teacher", str(models["teacher"]),
        "--token-file", str(token_file), "--real-vocab", "37", "--head-chunk", "3", "--token-budget", "20",
    ])  # fmt: skip


@pytest.fixture
def worker(settings: Settings, ranks: Ranks) -> Worker:
    return Worker(settings, ranks)


@pytest.fixture
def lone_worker(settings: Settings, ranks: Ranks) -> Worker:
    """Without a teacher."""
    return Worker(replace(settings, teacher=None), ranks)
