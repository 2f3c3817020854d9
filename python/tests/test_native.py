"""The native engine reads what the worker exports and gives the same scores."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from bodies import LearnRow, learn_body, score_body
from conftest import LAB
from lens_worker.protocol import read_tensors
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.supervision import Kind
from lens_worker.worker import Worker
from test_export import call
from test_learn import learn

PROMPT = "You are in the middle of a room. Looking quickly around you, you see a desk 1 and a drawer 2."
RESPONSE = " go to desk 1, open drawer 2 and take the pen 1"
NAMES = {
    "student_at_student": "student_at_student_top1",
    "student_at_teacher": "student_at_teacher_top1",
    "teacher_at_teacher": "teacher_at_teacher_top1",
    "teacher_at_student": "teacher_at_student_top1",
    "student_top": "student_top1",
    "teacher_top": "teacher_top1",
}


def native() -> Path:
    """The `lens` binary: LENS_BIN, or what cargo built here."""
    target = Path(__file__).parents[2] / "target"
    candidates = [Path(os.environ["LENS_BIN"])] if "LENS_BIN" in os.environ else []
    for path in [*candidates, target / "release" / "lens", target / "debug" / "lens"]:
        if path.is_file():
            return path
    pytest.skip("no lens binary: build it with cargo, or name it in LENS_BIN")


def test_an_export_has_the_same_scores_in_the_native_engine(settings: Settings, ranks: Ranks, tmp_path: Path) -> None:
    binary = native()
    pair = {"student": LAB / "student-small", "teacher": LAB / "teacher", "real_vocab": None}
    worker = Worker(replace(settings, **pair, token_budget=4096), ranks)  # type: ignore[arg-type]
    tokenizer = AutoTokenizer.from_pretrained(LAB / "student-small")
    prompt, response = (tokenizer.encode(text, add_special_tokens=False) for text in (PROMPT, RESPONSE))
    row = LearnRow(Kind.RKL_FULL, prompt, response, [1.0 / len(response)] * len(response))
    for version in range(2):
        learn(worker, learn_body([row], version, lr="1e-3"))
    found = read_tensors(worker.run("score", score_body([(prompt, response)], [True], [1.0])).body).all()
    call(worker, "export", directory=str(tmp_path / "model"), dtype="f32")
    command = [str(binary), "score", "--json", "--prompt", PROMPT, "--response", RESPONSE]
    command += ["--teacher", str(LAB / "teacher"), str(tmp_path / "model")]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    positions = answer["positions"]
    assert [position["id"] for position in positions] == response
    for name in ("kl", "student_logprob", "teacher_logprob", *NAMES):
        theirs = torch.tensor([position[NAMES.get(name, name)] for position in positions], dtype=found[name].dtype)
        torch.testing.assert_close(found[name], theirs, rtol=1e-5, atol=1e-5, msg=name)
