"""Peak memory and time of the chunked head against whole logits, at the Qwen3 vocabulary.

Each side runs in a process of its own, because a process's peak never falls.

    python benches/head.py [--tokens 2048] [--vocab 151936] [--hidden 1024] [--chunk 256]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from lens_worker.head import Part, weighted_loss
from lens_worker.supervision import Likelihood


def measure(side: str, tokens: int, vocab: int, hidden: int, chunk: int) -> dict[str, float]:
    """One forward and backward pass of the negative log-likelihood."""
    torch.manual_seed(0)
    states = torch.randn(tokens, hidden, requires_grad=True)
    weight = (0.02 * torch.randn(vocab, hidden)).requires_grad_()
    wanted = torch.randint(vocab, (tokens,))
    states.grad, weight.grad = torch.zeros_like(states), torch.zeros_like(weight)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    if side == "chunked":
        parts = [Part(0, tokens, Likelihood(wanted))]
        loss, _ = weighted_loss(states, weight, vocab, torch.full((tokens,), 1.0 / tokens), parts, chunk)
    else:
        loss = torch.nn.functional.cross_entropy(states @ weight.t(), wanted)
    loss.backward()
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"loss": loss.item(), "peak_mb": (peak - before) / 1024, "seconds": seconds}


def main() -> None:
    """Runs both sides and prints them beside each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tokens", 2048), ("vocab", 151936), ("hidden", 1024), ("chunk", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--side", choices=("chunked", "whole"))
    given = parser.parse_args()
    sizes = (given.tokens, given.vocab, given.hidden, given.chunk)
    if given.side:
        print(json.dumps(measure(given.side, *sizes)))
        return
    print(f"{given.tokens} tokens, vocabulary {given.vocab}, hidden {given.hidden}, chunks of {given.chunk}")
    found = {}
    for side in ("chunked", "whole"):
        command = [sys.executable, __file__, "--side", side]
        command += [
            f"--{name}={size}" for name, size in zip(("tokens", "vocab", "hidden", "chunk"), sizes, strict=True)
        ]
        found[side] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        numbers = found[side]
        print(f"{side:8} {numbers['peak_mb']:9.0f} MB above the inputs {numbers['seconds']:7.2f} s")
    print(f"memory: {found['whole']['peak_mb'] / found['chunked']['peak_mb']:.1f} times less")


if __name__ == "__main__":
    main()
