"""Implements the commands. Every rank runs each command at the same time.

All ranks parse and validate the same bytes, so they refuse the same requests before any collective starts.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import transformers

from . import PROTOCOL, __version__, checkpoint, protocol, requests
from .cross_context import Internalizer
from .errors import HalfDoneError, MemoryExhaustedError, RequestError, StateError, WorkerError
from .export import DTYPES, Exporter
from .model import load_student, load_teacher, recover, shared_vocabulary
from .published import Published
from .ranks import Ranks
from .score import Scorer
from .settings import Settings
from .step import Learner
from .targets import Targets
from .transfer import Transfer


@dataclass(frozen=True)
class Reply:
    """A body and its type."""

    kind: str
    body: bytes

    @classmethod
    def json(cls, value: object) -> Reply:
        """A JSON reply."""
        return cls(protocol.JSON, json.dumps(value).encode())


@dataclass(frozen=True)
class _Done:
    """The last step's report, replayed if the driver asks for the same step again."""

    request_id: str
    expected_version: int
    report: dict[str, object]


class Worker:
    """One rank of the worker."""

    def __init__(self, settings: Settings, ranks: Ranks) -> None:
        self.settings, self.ranks = settings, ranks
        config = transformers.AutoConfig.from_pretrained(settings.student, local_files_only=True)
        self.real_vocab = shared_vocabulary(settings.student, settings.teacher, config.vocab_size, settings.real_vocab)
        compute = settings.compute_dtype(ranks.device)
        self.student = load_student(
            settings.student, ranks, compute,
            attention=settings.attention, recompute=settings.recompute, lora=settings.lora,
        )  # fmt: skip
        self.teacher = None
        self._teacher_shape = None
        if settings.teacher is not None:
            teacher_config = transformers.AutoConfig.from_pretrained(settings.teacher, local_files_only=True)
            self._teacher_shape = _shape(teacher_config)
            self.teacher = load_teacher(
                settings.teacher, ranks, compute, attention=settings.attention, real_vocab=self.real_vocab
            )
            if len(self.teacher.head) < self.real_vocab:
                raise ValueError(
                    f"{settings.teacher}: {len(self.teacher.head)} tokens, fewer than the {self.real_vocab} shared"
                )
        parts: dict[str, Any] = {"real_vocab": self.real_vocab, "chunk": settings.head_chunk}
        self.learner = Learner(self.student, self.teacher, ranks, sync_always=settings.sync_always, **parts)
        self.scorer = Scorer(self.student, self.teacher, ranks, **parts)
        exact = settings.targets == "exact"
        self.internalizer = Internalizer(self.student, ranks, exact=exact, top_k=settings.target_top_k, **parts)
        self.exporter = Exporter(self.student, settings.student, ranks, settings.lora)
        self.targets = Targets()
        self.published = Published(self.student)
        self.transfer = Transfer(self.exporter, ranks, timedelta(minutes=settings.timeout_minutes))
        self.config = config
        self._done: _Done | None = None
        self._broken: str | None = None
        self._load_helps = True
        self.limits = requests.Limits(
            vocab_size=config.vocab_size,
            real_vocab=self.real_vocab,
            max_position=config.max_position_embeddings,
            has_teacher=self.teacher is not None,
            token_budget=settings.token_budget,
        )
        self.commands: dict[str, Callable[[bytes], Reply]] = {
            "learn": self._learn,
            "score": self._score,
            "cross_context": self._cross_context,
            "publish": self._publish,
            "open_transfer": self._open_transfer,
            "join_transfer": self._join_transfer,
            "transfer": self._transfer,
            "export": self._export,
            "save": self._save,
            "load": self._load,
            "forget": self._forget,
        }

    @property
    def version(self) -> int:
        """Optimizer steps done."""
        return self.learner.version

    def run(self, command: str, body: bytes) -> Reply:
        """Runs a command."""
        if self._broken is not None and not (command == "load" and self._load_helps):
            raise StateError(self._broken)
        try:
            return self.commands[command](body)
        except HalfDoneError as error:
            self.distrust(str(error))
            raise
        except WorkerError:
            raise
        except torch.OutOfMemoryError as error:
            self._recover()
            torch.cuda.empty_cache()
            raise MemoryExhaustedError(
                f"out of memory in {command}; nothing was changed; lower `token_budget`: {error}"
            ) from error
        except Exception:
            self._recover()
            raise

    def distrust(self, reason: str) -> None:
        """Refuses every command but `load`: the state of this rank, or of another, is not known."""
        self._broken = self._broken or f"{reason}; load a checkpoint first"

    def _recover(self) -> None:
        """Resets both models after an error within a pass."""
        for model in (self.student, self.teacher):
            if model is not None and not recover(model):
                self._load_helps = False
                self._broken = f"torch {torch.__version__} cannot leave a pass that failed; restart the worker"

    def _expect(self, version: int) -> None:
        if version != self.version:
            raise StateError(f"the worker is at version {self.version}, the request expects {version}")

    @contextmanager
    def _student_of(self, version: int | None) -> Iterator[int]:
        """Gives the student the weights of a version for a while: the ones it trains, or the published ones."""
        if version is None or version == self.version:
            yield self.version
            return
        kept = self.published.version
        if version != kept:
            held = "no published weights" if kept is None else f"the published weights of version {kept}"
            raise StateError(f"the worker is at version {self.version} and keeps {held}, the request expects {version}")
        with self.published.in_place():
            yield version

    def _learn(self, body: bytes) -> Reply:
        batch = requests.learn(body, self.limits)
        done = self._done
        if done is not None and done.request_id == batch.request_id:
            if done.expected_version != batch.expected_version:
                raise StateError(
                    f"request {batch.request_id!r} was a step from version {done.expected_version}, "
                    f"now it expects {batch.expected_version}"
                )
            return Reply.json(done.report | {"replayed": True})
        self._expect(batch.expected_version)
        report = self.learner.learn(batch, self.targets).json() | {"request_id": batch.request_id}
        self._done = _Done(batch.request_id, batch.expected_version, report)
        return Reply.json(report | {"replayed": False})

    def _score(self, body: bytes) -> Reply:
        batch = requests.score(body, self.limits)
        with self._student_of(batch.expected_version) as version:
            tensors, metadata = self.scorer.score(batch)
        metadata["version"] = str(version)
        return Reply(protocol.SAFETENSORS, protocol.write_tensors(tensors, metadata))

    def _cross_context(self, body: bytes) -> Reply:
        batch = requests.cross_context(body, self.limits)
        with self._student_of(batch.expected_version) as version:
            gaps, keys = self.internalizer.targets(batch, version, self.targets)
        metadata = {"version": str(version), "targets": self.settings.targets}
        return Reply(protocol.SAFETENSORS, protocol.write_tensors({"gap": gaps, "target_key": keys}, metadata))

    def _publish(self, body: bytes) -> Reply:
        values = protocol.read_json(body)
        directory = protocol.take(values, "directory", str)
        version = protocol.take(values, "version", int)
        keep = protocol.take(values, "keep", bool, False)
        dtype = _dtype(values, "bf16")
        protocol.nothing_left(values)
        self._expect(version)
        answer = self.exporter.write(directory, dtype, self.version)
        self._published(keep)
        return Reply.json(answer)

    def _open_transfer(self, body: bytes) -> Reply:
        return Reply.json(self.transfer.open(body))

    def _join_transfer(self, body: bytes) -> Reply:
        protocol.nothing_left(protocol.read_json(body))
        self.transfer.join()
        return Reply.json({"joined": True})

    def _transfer(self, body: bytes) -> Reply:
        values = protocol.read_json(body)
        version = protocol.take(values, "version", int)
        keep = protocol.take(values, "keep", bool, False)
        protocol.nothing_left(values)
        self._expect(version)
        answer = self.transfer.send() | {"version": self.version}
        self._published(keep)
        return Reply.json(answer)

    def _published(self, keep: bool) -> None:
        """Keeps the weights of this moment, or frees the copy of earlier ones, which nobody will ask about."""
        if keep:
            self.published.keep(self.version)
        else:
            self.published.drop()

    def _export(self, body: bytes) -> Reply:
        values = protocol.read_json(body)
        directory = protocol.take(values, "directory", str)
        form = protocol.take(values, "format", str, "model")
        dtype = _dtype(values, "f32")
        protocol.nothing_left(values)
        if form not in ("model", "adapter"):
            raise RequestError(f"field `format` is {form!r}, expected model or adapter")
        if form == "model":
            return Reply.json(self.exporter.write(directory, dtype, self.version))
        if self.settings.lora is None:
            raise RequestError("field `format` is 'adapter', but the worker was started without --lora-rank")
        return Reply.json(self.exporter.write_adapter(directory, dtype, self.version))

    def _save(self, body: bytes) -> Reply:
        directory = _only_directory(body)
        checkpoint.save(directory, self.learner, self.targets, self.published, self.ranks, self.settings.lora)
        return Reply.json({"directory": directory, "version": self.version})

    def _load(self, body: bytes) -> Reply:
        directory = _only_directory(body)
        manifest = checkpoint.check(directory, self.learner, self.settings.lora)
        try:
            self.targets = checkpoint.load(directory, manifest, self.learner, self.published)
        except Exception as error:
            raise HalfDoneError(f"{directory}: cannot be loaded: {error}") from error
        self._broken = None
        # Steps after the checkpoint are undone; asked for again, they must be done again.
        self._done = None
        same = manifest["world_size"] == self.ranks.world and manifest["torch"] == torch.__version__
        return Reply.json({"directory": directory, "version": self.version, "exact": same})

    def _forget(self, body: bytes) -> Reply:
        values = protocol.read_json(body)
        before = protocol.take(values, "before_version", int)
        protocol.nothing_left(values)
        forgotten = self.targets.forget(before)
        return Reply.json({"forgotten": forgotten, "kept": len(self.targets.kept)})

    def info(self) -> dict[str, object]:
        """Returns the body of `GET /v1/info`."""
        settings, lora = self.settings, self.settings.lora
        return {
            "protocol": PROTOCOL,
            "worker": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
            "world_size": self.ranks.world,
            "device": self.ranks.device.type,
            "compute": str(settings.compute_dtype(self.ranks.device)).removeprefix("torch."),
            "model": _shape(self.config),
            "real_vocab": self.real_vocab,
            "teacher": self._teacher_shape,
            "lora": None if lora is None else {"rank": lora.rank, "alpha": lora.alpha, "targets": lora.targets},
            "version": self.version,
            "published": self.published.version,
            "checkpoint_bytes": checkpoint.checkpoint_bytes(self.learner, self.targets),
            "targets": settings.targets,
            "target_top_k": settings.target_top_k,
            "kept_targets": len(self.targets.kept),
            "token_budget": settings.token_budget,
            "max_body_bytes": settings.max_body,
        }


def _shape(config: Any) -> dict[str, object]:  # noqa: ANN401 - any model's configuration
    return {
        "model_type": config.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "layers": config.num_hidden_layers,
        "max_position": config.max_position_embeddings,
        "tied_head": bool(config.tie_word_embeddings),
    }


def _dtype(values: dict[str, Any], default: str) -> str:
    dtype: str = protocol.take(values, "dtype", str, default)
    if dtype not in DTYPES:
        raise RequestError(f"field `dtype` is {dtype!r}, expected {' or '.join(DTYPES)}")
    return dtype


def _only_directory(body: bytes) -> str:
    values = protocol.read_json(body)
    directory: str = protocol.take(values, "directory", str)
    protocol.nothing_left(values)
    return directory
