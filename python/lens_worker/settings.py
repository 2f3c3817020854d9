"""The command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from .lora import LoraSettings


@dataclass(frozen=True)
class Settings:
    """How a worker was started."""

    student: Path
    teacher: Path | None
    host: str
    port: int
    token_file: Path
    device: str
    compute: str
    attention: str
    token_budget: int
    head_chunk: int
    real_vocab: int | None
    recompute: bool
    sync_always: bool
    targets: str
    target_top_k: int
    lora: LoraSettings | None
    max_body: int
    timeout_minutes: int
    deterministic: bool

    def compute_dtype(self, device: torch.device) -> torch.dtype:
        """The type of activations and gathered weights: bf16 on GPUs, float32 on the CPU, unless told."""
        if self.compute == "auto":
            return torch.bfloat16 if device.type == "cuda" else torch.float32
        return torch.bfloat16 if self.compute == "bf16" else torch.float32


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lens_worker", description="The training worker of lens.")
    add = parser.add_argument
    add("--student", type=Path, required=True, help="Hugging Face folder of the model that learns")
    add(
        "--teacher",
        type=Path,
        help="Hugging Face folder of the frozen teacher, if it fits beside the student",
    )
    add("--host", default="127.0.0.1", help="address to listen on; loopback or a private network only")
    add("--port", type=int, default=7000, help="0 takes a free port, which is printed")
    add("--token-file", type=Path, required=True, help="file with the token every request must carry")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--compute", choices=("auto", "bf16", "f32"), default="auto", help="type of activations")
    add(
        "--attention",
        default="packed",
        choices=("packed", "sdpa", "flash_attention_2", "flex_attention", "eager"),
        help="packed: PyTorch's kernels, row by row; the others are those of transformers",
    )
    add("--token-budget", type=_positive, default=16384, help="tokens of a micro-batch (one row at least)")
    add("--head-chunk", type=_positive, default=1024, help="positions whose logits are held at a time")
    add("--real-vocab", type=_positive, help="tokens in every softmax; default: what tokenizer.json knows")
    on_off = argparse.BooleanOptionalAction
    add("--recompute", action=on_off, default=True, help="recompute activations in the backward pass")
    add("--sync-always", action=on_off, default=False,
        help="reduce gradients after every micro-batch: less memory, more traffic")  # fmt: skip
    add("--targets", choices=("topk", "exact"), default="topk", help="how hinted targets are kept")
    add("--target-top-k", type=_positive, default=64, help="tokens kept per position of a target")
    add("--lora-rank", type=_positive, help="train adapters of this rank instead of the whole model")
    add("--lora-alpha", type=float, default=32.0)
    add("--lora-targets", default="q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj")
    add("--lora-seed", type=int, default=0)
    add("--max-body-mb", type=_positive, default=256, help="largest request body")
    add("--timeout-minutes", type=_positive, default=10, help="longest wait for another rank in a collective")
    add("--deterministic", action=on_off, default=True, help="same bits again after a restart")
    return parser


def parse(arguments: list[str] | None = None) -> Settings:
    """Reads the command line; exits with a message if it is wrong."""
    parser = _parser()
    given = parser.parse_args(arguments)
    for path in (given.student, given.teacher):
        if path is not None and not (path / "config.json").is_file():
            parser.error(f"{path} is not a Hugging Face folder: it has no config.json")
    lora = None
    if given.lora_rank is not None:
        targets = tuple(name.strip() for name in given.lora_targets.split(",") if name.strip())
        lora = LoraSettings(given.lora_rank, given.lora_alpha, targets, given.lora_seed)
    return Settings(
        student=given.student,
        teacher=given.teacher,
        host=given.host,
        port=given.port,
        token_file=given.token_file,
        device=given.device,
        compute=given.compute,
        attention=given.attention,
        token_budget=given.token_budget,
        head_chunk=given.head_chunk,
        real_vocab=given.real_vocab,
        recompute=given.recompute,
        sync_always=given.sync_always,
        targets=given.targets,
        target_top_k=given.target_top_k,
        lora=lora,
        max_body=given.max_body_mb * 1_000_000,
        timeout_minutes=given.timeout_minutes,
        deterministic=given.deterministic,
    )
