"""The student as a Hugging Face folder, for engines and for people.

Weights are gathered one tensor at a time; rank 0 writes them. A tied head is left out and adapters are
merged in. The folder also gets the student's own configuration and tokenizer files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from .folders import Folder, listing
from .lora import LoraSettings, merged, peft_config, peft_name
from .model import Student
from .ranks import Ranks

MANIFEST = "lens_weights.json"
SHARD_BYTES = 5_000_000_000
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
COMPANIONS = (
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip

Weights = dict[str, tuple[DTensor, ...]]
"""A tensor's name in the file, and its value: a parameter, or a parameter with its adapter's two."""

Companions = Callable[[Path], None]
"""Writes the files that go with the weights."""


class Exporter:
    """Writes folders of the student's weights as they are now."""

    def __init__(
        self,
        student: Student,
        source: Path,
        ranks: Ranks,
        lora: LoraSettings | None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.student, self.source, self.ranks, self.lora = student, source, ranks, lora
        self.shard_bytes = shard_bytes

    def write(self, directory: str, dtype: str, version: int) -> dict[str, object]:
        """A whole model. Returns the files' names, sizes and hashes (on rank 0)."""

        def companions(folder: Path) -> None:
            config = json.loads((self.source / "config.json").read_text(encoding="utf-8"))
            key = "dtype" if "dtype" in config else "torch_dtype"
            config[key] = str(DTYPES[dtype]).removeprefix("torch.")
            _write_json(folder / "config.json", config)
            for name in COMPANIONS:
                if (self.source / name).is_file():
                    shutil.copyfile(self.source / name, folder / name)

        weights = self._plain()
        return self._folder(directory, dtype, version, weights, companions)

    def write_adapter(self, directory: str, dtype: str, version: int) -> dict[str, object]:
        """The adapter alone, in PEFT's layout."""
        settings = self.lora
        if settings is None:
            raise ValueError("the worker trains no adapter")

        def companions(folder: Path) -> None:
            _write_json(folder / "adapter_config.json", peft_config(settings, str(self.source)))

        trained = self.student.trained()
        weights: Weights = {peft_name(name): (weight,) for name, weight in trained.items()}
        return self._folder(directory, dtype, version, weights, companions, "adapter_model")

    def layout(self) -> dict[str, list[int]]:
        """The tensors of a whole model, in order, with their shapes."""
        return {name: list(parts[0].shape) for name, parts in self._plain().items()}

    def tensors(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors, gathered one at a time, on rank 0; the others only take part. Collective."""
        weights = self._plain()
        return self._gathered(weights, list(weights), dtype)

    def _plain(self) -> Weights:
        """The base's parameters by name, each with the adapter's that belong to it."""
        weights = self.student.weights()
        plain: Weights = {}
        for name, weight in weights.items():
            owner, _, last = name.rpartition(".")
            if last in ("lora_A", "lora_B"):
                continue
            pair = [weights.get(f"{owner}.{part}") for part in ("lora_A", "lora_B")] if last == "weight" else []
            plain[name] = (weight, *(part for part in pair if part is not None))
        return plain

    def _folder(
        self,
        directory: str,
        dtype: str,
        version: int,
        weights: Weights,
        companions: Companions,
        stem: str = "model",
    ) -> dict[str, object]:
        folder = Folder(directory, MANIFEST)
        self.ranks.on_first(folder.begin)
        shards = _shards(weights, DTYPES[dtype].itemsize, self.shard_bytes)
        names = [
            f"{stem}.safetensors" if len(shards) == 1 else f"{stem}-{at + 1:05}-of-{len(shards):05}.safetensors"
            for at in range(len(shards))
        ]
        failure: Exception | None = None
        for name, shard in zip(names, shards, strict=True):
            # Gathering is collective: a disk that is full on rank 0 must not leave the others waiting.
            content = {at: whole.cpu() for at, whole in self._gathered(weights, shard, DTYPES[dtype])}
            if self.ranks.first and failure is None:
                try:
                    save_file(content, folder.work / name, {"format": "pt"})
                except Exception as error:
                    failure = error

        answer: dict[str, object] = {"directory": str(folder.final), "version": version, "dtype": dtype}

        def finish() -> None:
            try:
                if failure is not None:
                    raise failure
                if len(shards) > 1:
                    _write_index(folder.work / f"{stem}.safetensors.index.json", names, shards, weights, dtype)
                companions(folder.work)
                answer["files"] = listing(folder.work)
                _write_json(folder.work / MANIFEST, answer)
                folder.commit()
            except Exception:
                folder.drop()
                raise

        self.ranks.on_first(finish)
        return answer

    def _gathered(self, weights: Weights, names: list[str], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors in the asked type, on rank 0; the others only take part in the gathering."""
        for name in names:
            whole = [part.full_tensor().detach() for part in weights[name]]
            if self.ranks.first:
                value = whole[0]
                if len(whole) == 3 and self.lora is not None:
                    value = merged(whole[0], whole[1], whole[2], self.lora.scale)
                yield name, value.to(dtype).contiguous()


def _shards(weights: Weights, item: int, limit: int) -> list[list[str]]:
    """Names in order, cut into files of at most `limit` bytes (one tensor at least)."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, parts in weights.items():
        bytes_ = parts[0].numel() * item
        if shards[-1] and size + bytes_ > limit:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += bytes_
    return shards


def _write_index(path: Path, files: list[str], shards: list[list[str]], weights: Weights, dtype: str) -> None:
    total = sum(parts[0].numel() for parts in weights.values()) * DTYPES[dtype].itemsize
    places = {name: file for file, names in zip(files, shards, strict=True) for name in names}
    _write_json(path, {"metadata": {"total_size": total}, "weight_map": places})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
