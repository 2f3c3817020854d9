"""Saves and restores the training state: weights, AdamW moments, the step count and the kept targets.

Published weights are saved too where they are kept and differ from the trained ones. Tensors
are stored as a torch distributed checkpoint, which another number of ranks can also read. Sums then round
differently; the reply of `load` reports that as `exact: false`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.distributed.checkpoint.state_dict_loader as loader
import torch.distributed.checkpoint.state_dict_saver as saver
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from .errors import RequestError, StateError, WorkerError
from .folders import Folder
from .lora import LoraSettings
from .published import Published
from .ranks import Ranks
from .step import MOMENTS, Learner
from .targets import Targets

FORMAT = 1
MANIFEST = "lens_state.json"
TENSORS = "tensors"
TARGETS = "targets.safetensors"


def save(
    directory: str,
    learner: Learner,
    targets: Targets,
    published: Published,
    ranks: Ranks,
    lora: LoraSettings | None,
) -> None:
    """Writes a checkpoint folder. Collective."""
    folder = Folder(directory, MANIFEST)
    ranks.on_first(folder.begin)
    weights = learner.student.weights()
    try:
        copies = published.copies() if _differ(published.version, learner.version) else {}
        saver.save(_state(learner, copies), checkpoint_id=folder.work / TENSORS)
    except CheckpointException as error:
        raise WorkerError(f"{folder.work}: cannot be written: {_reasons(error)}") from error

    def finish() -> None:
        kept = targets.tensors()
        safetensors.torch.save_file({name: part.contiguous() for name, part in kept.items()}, folder.work / TARGETS)
        manifest = {
            "format": FORMAT,
            "version": learner.version,
            "world_size": ranks.world,
            "torch": torch.__version__,
            "moments": learner.has_moments,
            "published": published.version,
            "next_key": targets.next_key,
            "lora": None if lora is None else [lora.rank, lora.alpha, list(lora.targets)],
            "shapes": {name: list(weight.shape) for name, weight in weights.items()},
        }
        (folder.work / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        folder.commit()

    ranks.on_first(finish)


def check(directory: str, learner: Learner, lora: LoraSettings | None) -> dict[str, Any]:
    """Returns the manifest of a checkpoint that fits this worker; changes nothing."""
    folder = Path(directory)
    if not folder.is_absolute():
        raise RequestError(f"field `directory` is {directory!r}, expected an absolute path")
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StateError(f"{path}: cannot be read: {error}") from error
    if manifest.get("format") != FORMAT:
        raise StateError(f"{path}: format {manifest.get('format')}, this worker reads format {FORMAT}")
    wanted = None if lora is None else [lora.rank, lora.alpha, list(lora.targets)]
    if manifest["lora"] != wanted:
        raise StateError(f"{path}: adapters {manifest['lora']}, but the worker was started with {wanted}")
    ours = {name: list(weight.shape) for name, weight in learner.student.weights().items()}
    theirs = manifest["shapes"]
    odd = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    if odd:
        raise StateError(
            f"{path}: it is a model of another shape: {odd[0]} is {theirs.get(odd[0])} there, {ours.get(odd[0])} here"
        )
    return manifest


def load(directory: str, manifest: dict[str, Any], learner: Learner, published: Published) -> Targets:
    """Restores a checkpoint. Collective."""
    folder = Path(directory)
    learner.adam.state.clear()
    if manifest["moments"]:
        learner.make_moments(manifest["version"])
    kept_version: int | None = manifest.get("published")
    own = _differ(kept_version, manifest["version"])
    if not own:
        published.drop()
    try:
        loader.load(_state(learner, published.reserve() if own else {}), checkpoint_id=folder / TENSORS)
    except CheckpointException as error:
        raise WorkerError(f"{folder / TENSORS}: {_reasons(error)}") from error
    learner.version = manifest["version"]
    if own:
        published.version = kept_version
    elif kept_version is not None:
        published.keep(learner.version)
    kept = safetensors.torch.load_file(folder / TARGETS)
    return Targets.of(kept.items(), manifest["next_key"])


def _differ(published: int | None, version: int) -> bool:
    """Whether published weights are kept that are not the trained ones: no two versions are alike."""
    return published is not None and published != version


def _reasons(error: CheckpointException) -> str:
    """Returns the error of each failed rank, without torch's tracebacks."""
    return "; ".join(f"rank {rank}: {reason[0]}" for rank, reason in error.failures.items())


def checkpoint_bytes(learner: Learner, targets: Targets) -> int:
    """Estimates the size of a checkpoint."""
    weights = sum(weight.numel() for weight in learner.student.weights().values())
    trained = sum(weight.numel() for weight in learner.trained.values())
    kept = sum(part.numel() * part.element_size() for part in targets.tensors().values())
    return 4 * (weights + 2 * trained) + kept


def _state(learner: Learner, published: Mapping[str, Tensor]) -> dict[str, Any]:
    """The tensors of a checkpoint; loading fills them in place."""
    state: dict[str, Any] = {f"weights.{name}": weight.detach() for name, weight in learner.student.weights().items()}
    state |= {f"published.{name}": weight for name, weight in published.items()}
    for name, weight in learner.trained.items():
        moments: dict[str, Tensor] = learner.adam.state.get(weight, {})
        if learner.has_moments:
            state |= {f"{moment}.{name}": moments[moment] for moment in MOMENTS}
    return state
