"""Throughput of a worker's step against a plain PyTorch step with the same rows, as a ratio.

The plain step is what one would write without the worker: padded rows, whole logits, `log_softmax`, autograd,
`clip_grad_norm_`, AdamW. Both train the same student against the same teacher with full-vocabulary reverse KL,
in float32, in this process, taking turns.

    python benches/step.py [--student DIR --teacher DIR] [--rows 32] [--steps 5]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from transformers import AutoModelForCausalLM
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1]))

from lens_worker.protocol import write_tensors
from lens_worker.ranks import Ranks
from lens_worker.settings import parse
from lens_worker.worker import Worker

LAB = Path(__file__).parents[2] / "assets" / "lab"


def rows(count: int, vocab: int) -> list[tuple[list[int], list[int]]]:
    """Prompts of 100 to 400 tokens with responses of 20 to 60."""
    draw = random.Random(0)
    return [
        (
            [draw.randrange(vocab) for _ in range(draw.randrange(100, 400))],
            [draw.randrange(vocab) for _ in range(draw.randrange(20, 60))],
        )
        for _ in range(count)
    ]


def body(batch: list[tuple[list[int], list[int]]], version: int) -> bytes:
    """The batch as the driver sends it."""
    sequences = [prompt + response for prompt, response in batch]
    total = sum(len(response) for _, response in batch)
    settings = {
        "lr": "1e-5", "beta1": "0.9", "beta2": "0.999", "eps": "1e-8", "weight_decay": "0.01", "clip": "1.0",
        "kl_coef": "1.0", "clip_range": "0.2", "dual_clip": "3.0",
    }  # fmt: skip
    tensors = {
        "tokens": torch.tensor([token for sequence in sequences for token in sequence], dtype=torch.int32),
        "row_offsets": torch.tensor([0, *(len(sequence) for sequence in sequences)]).cumsum(0),
        "response_start": torch.tensor([len(prompt) for prompt, _ in batch], dtype=torch.int32),
        "coefficients": torch.full((total,), 1.0 / total),
        "kind": torch.zeros(len(batch), dtype=torch.uint8),
    }
    return write_tensors(tensors, settings | {"request_id": f"step {version}", "expected_version": str(version)})


class Plain:
    """The step one would write by hand."""

    def __init__(self, student: Path, teacher: Path, vocab: int, group: int) -> None:
        self.student = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32).eval()
        self.teacher = AutoModelForCausalLM.from_pretrained(teacher, dtype=torch.float32).eval()
        self.vocab, self.group = vocab, group
        self.adam = torch.optim.AdamW(self.student.parameters(), lr=1e-5, weight_decay=0.01)

    def step(self, batch: list[tuple[list[int], list[int]]]) -> float:
        """One step; returns the loss."""
        self.adam.zero_grad()
        total = sum(len(response) for _, response in batch)
        loss_sum = 0.0
        for start in range(0, len(batch), self.group):
            part = batch[start : start + self.group]
            longest = max(len(prompt) + len(response) for prompt, response in part)
            ids, seen = torch.zeros(len(part), longest, dtype=torch.long), torch.zeros(len(part), longest)
            answer = torch.zeros(len(part), longest - 1, dtype=torch.bool)
            for at, (prompt, response) in enumerate(part):
                length = len(prompt) + len(response)
                ids[at, :length] = torch.tensor(prompt + response)
                seen[at, :length] = 1
                answer[at, len(prompt) - 1 : length - 1] = True
            with torch.no_grad():
                theirs = self.teacher(input_ids=ids, attention_mask=seen, use_cache=False).logits
            ours = self.student(input_ids=ids, attention_mask=seen, use_cache=False).logits
            t = torch.log_softmax(theirs[:, :-1, : self.vocab], -1)
            s = torch.log_softmax(ours[:, :-1, : self.vocab], -1)
            loss = ((s.exp() * (s - t)).sum(-1) * answer).sum() / total
            loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.adam.step()
        return loss_sum


def main() -> None:
    """Takes turns and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--student", type=Path, default=LAB / "student-large")
    parser.add_argument("--teacher", type=Path, default=LAB / "teacher")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    given = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    flags = ["--student", str(given.student), "--teacher", str(given.teacher), "--token-file", os.devnull]
    settings = parse([*flags, "--device", "cpu", "--token-budget", "4096", "--no-recompute"])
    worker = Worker(settings, Ranks(torch.device("cpu"), timedelta(minutes=10)))
    plain = Plain(given.student, given.teacher, worker.real_vocab, group=8)
    batch = rows(given.rows, worker.real_vocab)
    tokens = sum(len(prompt) + len(response) for prompt, response in batch)
    times: dict[str, list[float]] = {"worker": [], "plain": []}
    for version in range(given.steps + 1):
        request = body(batch, version)
        for name, seconds in times.items():
            started = time.perf_counter()
            if name == "worker":
                worker.run("learn", request)
            else:
                plain.step(batch)
            if version > 0:  # the first turn warms both up
                seconds.append(time.perf_counter() - started)
    best = {name: tokens / min(found) for name, found in times.items()}
    for name, rate in best.items():
        print(f"{name:7} {rate:9.0f} tokens/s")
    print(f"ratio   {best['worker'] / best['plain']:9.2f}  (worker / plain, best of {given.steps})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
