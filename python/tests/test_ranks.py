"""Several ranks under torchrun: the same numbers as one, the same bits again, and what a dead rank does."""

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bodies import cross_body, learn_body, random_row, score_body
from client import Client, Torchrun, torchrun
from lens_worker.protocol import read_tensors
from lens_worker.supervision import Kind
from test_learn import mixed

STEPS = 4
HINTED = [(hint, row.prompt, row.response) for hint, row in (
    ([5, 6, 7, 8, 9], random_row(Kind.FORWARD_KL, 1)),
    ([3], random_row(Kind.FORWARD_KL, 2, response=7)),
    ([1, 1, 2], random_row(Kind.FORWARD_KL, 3, prompt=9)),
)]  # fmt: skip
SCORED = score_body([(prompt, response) for _, prompt, response in HINTED], [True, False, True], [1.0, 0.7, 1.0])


def arguments(models: dict[str, Path], token_file: Path) -> list[str]:
    return [
        "--student", str(models["student"]), "--teacher", str(models["teacher"]), "--token-file", str(token_file),
        "--real-vocab", "37", "--token-budget", "30", "--head-chunk", "4",
    ]  # fmt: skip


def steps(client: Client, first: int, last: int) -> list[dict[str, float]]:
    rows = [
        replace(random_row(Kind.FORWARD_KL, seed, **sizes), key=key)
        for key, (seed, sizes) in enumerate(((1, {}), (2, {"response": 7}), (3, {"prompt": 9})))
    ]
    return [client.json("learn", learn_body([*mixed(version), *rows], version)) for version in range(first, last)]


def run(client: Client, folder: Path) -> tuple[list[dict[str, float]], Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """Targets, steps, scores and an export."""
    status, answer = client.post("cross_context", cross_body(HINTED))
    assert status == 200
    gaps = read_tensors(answer).tensor("gap", torch.float64, 3)
    reports = steps(client, 0, STEPS)
    status, answer = client.post("score", SCORED)
    assert status == 200
    client.json("export", {"directory": str(folder), "dtype": "f32"})
    return reports, gaps, read_tensors(answer).all(), load_file(folder / "model.safetensors")


@pytest.mark.parametrize(("several", "flags"), [(2, []), (3, ["--targets", "exact", "--lora-rank", "2"])])
def test_trap_18_several_ranks_do_what_one_does(
    models: dict[str, Path], token_file: Path, tmp_path: Path, several: int, flags: list[str]
) -> None:
    results = []
    for ranks in (1, several):
        with torchrun(ranks, *arguments(models, token_file), *flags) as worker:
            assert worker.client.get("info")[1]["world_size"] == ranks
            results.append(run(worker.client, tmp_path / str(ranks)))
            assert worker.client.json("shutdown") == {"stopping": True}
            assert worker.process.wait(timeout=60) == 0
    one, two = results
    for ours, theirs in zip(one[0], two[0], strict=True):
        for key in ("loss", "focus_loss", "internalization_loss", "grad_norm"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-5)
        assert [ours[key] for key in ("tokens", "loss_tokens", "version")] == [
            theirs[key] for key in ("tokens", "loss_tokens", "version")
        ]
    torch.testing.assert_close(one[1], two[1], rtol=1e-5, atol=1e-6)
    for parts in zip(one[2:], two[2:], strict=True):
        for name, value in parts[0].items():
            torch.testing.assert_close(value, parts[1][name], rtol=1e-5, atol=1e-5, equal_nan=True, msg=name)


def test_two_ranks_go_on_with_the_same_bits_and_another_number_can_read_them(
    models: dict[str, Path], token_file: Path, tmp_path: Path
) -> None:
    state = {"directory": str(tmp_path / "state")}
    with torchrun(2, *arguments(models, token_file)) as worker:
        client = worker.client
        client.post("cross_context", cross_body(HINTED))
        steps(client, 0, 2)
        assert client.json("save", state)["version"] == 2
        first = steps(client, 2, 4)
        client.json("export", {"directory": str(tmp_path / "first")})
        # A body that one rank refuses is refused by both, and they stay in step.
        status, answer = client.post("learn", b"nonsense")
        assert status == 400
        assert "not a safetensors file" in json.loads(answer)["error"]["message"]
        assert steps(client, 4, 5)[0]["version"] == 5
    with torchrun(2, *arguments(models, token_file)) as worker:
        assert worker.client.json("load", state) == {**state, "version": 2, "exact": True}
        second = steps(worker.client, 2, 4)
        worker.client.json("export", {"directory": str(tmp_path / "second")})
    assert [(step["loss"], step["grad_norm"]) for step in first] == [
        (step["loss"], step["grad_norm"]) for step in second
    ]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second")]
    assert weights[0] == weights[1]
    with torchrun(1, *arguments(models, token_file)) as worker:
        assert worker.client.json("load", state) == {**state, "version": 2, "exact": False}
        assert steps(worker.client, 2, 3)[0]["loss"] == pytest.approx(first[0]["loss"], rel=1e-5)


def test_a_dead_rank_ends_the_worker_instead_of_hanging_it(models: dict[str, Path], token_file: Path) -> None:
    with torchrun(2, *arguments(models, token_file)) as worker:
        steps_done: list[object] = []

        def ask() -> None:
            try:
                steps_done.append(worker.client.post("learn", learn_body(mixed(), 0)))
            except OSError as error:
                steps_done.append(error)

        os.kill(_follower(worker), signal.SIGKILL)
        asking = threading.Thread(target=ask)
        asking.start()
        assert worker.process.wait(timeout=60) != 0
        asking.join(timeout=20)
        assert not asking.is_alive(), "the driver sees the connection close or an error"
        answer = steps_done[0]
        assert isinstance(answer, OSError) or (isinstance(answer, tuple) and answer[0] == 500)


def _follower(worker: Torchrun) -> int:
    """A rank other than 0."""
    for child in worker.children():
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if b"RANK=1" in environment:
            return child
    raise AssertionError("there is no rank 1")


def test_a_wrong_start_says_why(models: dict[str, Path], tmp_path: Path) -> None:
    empty = tmp_path / "token"
    empty.write_text("\n")
    with pytest.raises(AssertionError, match=r"--token-file .*token is empty"):
        Torchrun(1, "--student", str(models["student"]), "--token-file", str(empty))
    with pytest.raises(AssertionError, match=r"nowhere is not a Hugging Face folder: it has no config\.json"):
        Torchrun(1, "--student", str(tmp_path / "nowhere"), "--token-file", str(empty))
