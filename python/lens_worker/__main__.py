"""Started by torchrun, once per device."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from transformers.utils import logging

from .ranks import Ranks, local_device
from .serve import follow, lead
from .server import ServerState, start_server
from .settings import Settings, parse
from .worker import Worker


def _token(path: Path) -> str:
    token = path.read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError(f"--token-file {path} is empty")
    return token


def _be_deterministic() -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("FLASH_ATTENTION_DETERMINISTIC", "1")
    torch.use_deterministic_algorithms(True)
    # This debugging aid writes to every new tensor; results do not depend on it.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _work(settings: Settings) -> None:
    if settings.deterministic:
        _be_deterministic()
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    ranks = Ranks(local_device(settings.device), timedelta(minutes=settings.timeout_minutes))
    if not ranks.first:
        follow(Worker(settings, ranks), ranks)
        return
    state = ServerState(_token(settings.token_file), settings.max_body, last_collective=lambda: ranks.last_collective)
    server = start_server(state, settings.host, settings.port)
    try:
        lead(Worker(settings, ranks), ranks, state)
    except BaseException as error:
        state.commands.close(f"the worker stops: {error}")
        raise
    finally:
        server.shutdown()


def main() -> int:
    """Serves until it is told to stop."""
    settings = parse()
    logging.disable_progress_bar()
    try:
        _work(settings)
    except (OSError, ValueError) as error:
        print(f"lens_worker: {error}", file=sys.stderr)
        return 1
    if dist.is_initialized():
        # A rank that leaves while another still passes on the last command makes that one abort.
        dist.barrier()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
