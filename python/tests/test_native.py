"""The worker against the native engine: the same scores of an export, the same numbers of a step."""

import hashlib
import json
import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from bodies import LearnRow, cross_body, learn_body, score_body
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


GOLDEN = json.loads((Path(__file__).parent / "golden" / "native_steps.json").read_text())


def drawn_steps() -> list[list[tuple[str, list[int], LearnRow]]]:
    """The rows of the golden steps: supervision, hinted prompt, row."""
    draw = random.Random(3)

    def ids(count: int) -> list[int]:
        return [draw.randrange(1988) for _ in range(count)]

    steps = []
    for _ in range(4):
        rows = []
        for supervision in ("teacher", "teacher", "tokens", "target", "teacher", "target"):
            prompt, response = draw.randrange(10, 60), draw.randrange(4, 20)
            row = LearnRow(Kind.NLL, ids(prompt), ids(response), [])
            hinted = ids(prompt + 5)
            row.coefficients = [draw.choice([0.0, 0.02, 0.05]) for _ in range(response)]
            row.teacher = [-draw.uniform(0.1, 6) for _ in range(response)]
            row.rollout = [-draw.uniform(0.1, 6) for _ in range(response)]
            rows.append((supervision, hinted, row))
        steps.append(rows)
    return steps


@pytest.mark.parametrize("estimator", [Kind.RKL_FULL, Kind.RKL_TOPK, Kind.K1_PG])
def test_steps_are_those_of_the_native_learner(settings: Settings, ranks: Ranks, estimator: Kind) -> None:
    for name, expected in GOLDEN["sha256"].items():
        found = hashlib.sha256((LAB / name / "model.safetensors").read_bytes()).hexdigest()
        if found != expected:
            pytest.skip(f"assets/lab/{name} is not the model of golden/native_steps.json: make the golden file again")
    pair = {"student": LAB / "student-small", "teacher": LAB / "teacher", "real_vocab": None, "targets": "exact"}
    worker = Worker(replace(settings, **pair, token_budget=100), ranks)  # type: ignore[arg-type]
    steps = drawn_steps()
    hinted = [(hint, row.prompt, row.response) for step in steps for kind, hint, row in step if kind == "target"]
    fields = read_tensors(worker.run("cross_context", cross_body(hinted)).body)
    gaps = fields.tensor("gap", torch.float64, len(hinted)).tolist()
    assert gaps == pytest.approx(GOLDEN["gaps"], rel=1e-5)
    keys = iter(fields.tensor("target_key", torch.int64, len(hinted)).tolist())
    for version, (step, expected) in enumerate(zip(steps, GOLDEN["steps"][estimator.name.lower()], strict=True)):
        rows = []
        for kind, _, row in step:
            row.kind = {"teacher": estimator, "tokens": Kind.NLL, "target": Kind.FORWARD_KL}[kind]
            row.key = next(keys) if kind == "target" else -1
            if row.kind != Kind.K1_PG:
                row.teacher, row.rollout = [], []
            rows.append(row)
        extra = {"top_k": "8"} if estimator == Kind.RKL_TOPK else {}
        report = learn(worker, learn_body(rows, version, lr="1e-3", **extra))
        assert report["version"] == version + 1
        for name, value in expected.items():
            assert report[name] == pytest.approx(value, rel=1e-5), (version, name)
