"""A step of the worker against a step of plain PyTorch in float64, and what a step leaves alone."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import reference
from bodies import SETTINGS, LearnRow, learn_body, learn_tensors, random_row
from lens_worker.errors import RequestError, StateError
from lens_worker.protocol import write_tensors
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.supervision import Kind
from lens_worker.worker import Worker

WIRE_KINDS = [Kind.RKL_FULL, Kind.RKL_TOPK, Kind.K1_PG, Kind.FORWARD_KL_TOPK, Kind.NLL]


def mixed(seed: int = 0) -> list[LearnRow]:
    rows = [random_row(kind, seed * 100 + at) for at, kind in enumerate(WIRE_KINDS * 2)]
    rows[3] = random_row(WIRE_KINDS[3], 77, prompt=1, response=9)
    return rows


def weights(worker: Worker) -> dict[str, Tensor]:
    return {name: part.full_tensor().detach().clone() for name, part in worker.student.weights().items()}


def learn(worker: Worker, body: bytes) -> dict[str, float]:
    report: dict[str, float] = json.loads(worker.run("learn", body).body)
    return report


def adam(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)


@pytest.mark.parametrize("kinds", [*([kind] for kind in WIRE_KINDS), WIRE_KINDS])
def test_steps_are_those_of_plain_pytorch(worker: Worker, settings: Settings, kinds: list[Kind]) -> None:
    student = reference.load(settings.student)
    teacher = reference.load(settings.teacher) if settings.teacher else None
    optimizer = adam(student)
    for version in range(3):
        rows = [row for row in mixed(version) if row.kind in kinds]
        report = learn(worker, learn_body(rows, version))
        loss, norm = reference.step(rows, student, teacher, optimizer)
        assert report["version"] == version + 1
        assert report["loss"] == pytest.approx(loss, rel=1e-5)
        assert report["grad_norm"] == pytest.approx(norm, rel=1e-5)
        assert report["clipped"] == (norm > 1.0)
    plain = dict(student.named_parameters())
    for name, weight in weights(worker).items():
        torch.testing.assert_close(weight.double(), plain[name].detach(), rtol=1e-4, atol=2e-5, msg=name)


def test_an_untied_student_learns_the_same_way(settings: Settings, models: dict[str, Path], ranks: Ranks) -> None:
    worker = Worker(replace(settings, student=models["llama"]), ranks)
    student, teacher = reference.load(models["llama"]), reference.load(models["teacher"])
    report = learn(worker, learn_body(mixed(), 0))
    loss, norm = reference.step(mixed(), student, teacher, adam(student))
    assert report["loss"] == pytest.approx(loss, rel=1e-5)
    assert report["grad_norm"] == pytest.approx(norm, rel=1e-5)
    head = dict(student.named_parameters())["lm_head.weight"].detach()
    torch.testing.assert_close(weights(worker)["lm_head.weight"].double(), head, rtol=1e-4, atol=2e-5)


def test_micro_batches_recomputation_and_chunks_do_not_change_a_step(settings: Settings, ranks: Ranks) -> None:
    found = []
    for change in (
        {"token_budget": 1000, "recompute": False, "head_chunk": 1000},
        {"token_budget": 1},
        {"token_budget": 25, "sync_always": True},
    ):
        worker = Worker(replace(settings, **change), ranks)  # type: ignore[arg-type]
        report = learn(worker, learn_body(mixed(), 0))
        found.append((report["loss"], report["grad_norm"], report["tokens"], weights(worker)))
    for other in found[1:]:
        assert other[:3] == pytest.approx(found[0][:3], rel=1e-5)
        for name, weight in other[3].items():
            torch.testing.assert_close(weight, found[0][3][name], rtol=1e-4, atol=1e-5)


def test_the_teachers_own_top_tokens_serve_where_none_are_listed(worker: Worker, settings: Settings) -> None:
    rows = [random_row(Kind.RKL_TOPK, 1)]
    assert settings.teacher is not None
    teacher = reference.log_probs(reference.load(settings.teacher), rows[0].prompt, rows[0].response)
    top = teacher.topk(4, dim=1)
    rows[0].top = [
        list(zip(ids, values, strict=True))
        for ids, values in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]
    student = reference.load(settings.student)
    loss, _ = reference.step(rows, student, None, adam(student))
    tensors = learn_tensors(rows)
    del tensors["teacher_top_ids"], tensors["teacher_top_logprobs"]
    body = write_tensors(tensors, SETTINGS | {"request_id": "x", "expected_version": "0", "top_k": "4"})
    assert learn(worker, body)["loss"] == pytest.approx(loss, rel=1e-5)


def test_the_report_counts_what_went_through_and_splits_the_loss(worker: Worker) -> None:
    rows = mixed()
    report = learn(worker, learn_body(rows, 0))
    last = [max(at for at, value in enumerate(row.coefficients) if value) for row in rows]
    assert report["tokens"] == sum(len(row.prompt) + end for row, end in zip(rows, last, strict=True))
    assert report["loss_tokens"] == sum(value != 0 for row in rows for value in row.coefficients)
    assert report["loss"] == pytest.approx(report["focus_loss"] + report["internalization_loss"])
    assert report["internalization_loss"] > 0


def test_a_number_that_is_not_finite_skips_the_step(worker: Worker) -> None:
    learn(worker, learn_body(mixed(), 0))
    before, moments = weights(worker), worker.learner.adam.state_dict()["state"]
    copies = {key: value["exp_avg"].full_tensor().clone() for key, value in moments.items()}
    rows = mixed(1)
    spoiled = next(row for row in rows if row.kind == Kind.K1_PG)
    spoiled.teacher[next(at for at, value in enumerate(spoiled.coefficients) if value)] = math.nan
    report = learn(worker, learn_body(rows, 1, "bad"))
    assert report["skipped"] is True
    assert report["loss"] is None, "JSON has no NaN"
    assert report["version"] == 1, "a skipped step is not counted"
    assert all(torch.equal(weight, before[name]) for name, weight in weights(worker).items())
    state = worker.learner.adam.state_dict()["state"]
    assert all(torch.equal(value["exp_avg"].full_tensor(), copies[key]) for key, value in state.items())
    after = learn(worker, learn_body(mixed(1), 1, "good"))
    assert after["skipped"] is False
    assert after["version"] == 2


def test_a_batch_without_loss_still_counts_as_a_step(worker: Worker) -> None:
    row = random_row(Kind.NLL, 3)
    row.coefficients = [0.0] * len(row.coefficients)
    report = learn(worker, learn_body([row], 0))
    assert (report["version"], report["grad_norm"], report["tokens"]) == (1, 0.0, 0)


def test_one_request_id_steps_once(worker: Worker) -> None:
    first = learn(worker, learn_body(mixed(), 0, "only"))
    after = weights(worker)
    again = learn(worker, learn_body(mixed(), 0, "only"))
    assert again.pop("replayed") is True
    assert first.pop("replayed") is False
    assert again == first
    assert all(torch.equal(weight, after[name]) for name, weight in weights(worker).items())
    with pytest.raises(StateError, match="was a step from version 0"):
        worker.run("learn", learn_body(mixed(), 1, "only"))


def test_a_step_from_another_version_is_refused(worker: Worker) -> None:
    with pytest.raises(StateError, match="at version 0, the request expects 4"):
        worker.run("learn", learn_body(mixed(), 4))
    assert worker.version == 0


def test_rows_that_need_a_teacher_are_refused_without_one(lone_worker: Worker) -> None:
    with pytest.raises(RequestError, match="row 0 is rkl_full"):
        lone_worker.run("learn", learn_body([random_row(Kind.RKL_FULL, 0)], 0))
    report = learn(lone_worker, learn_body([random_row(Kind.RKL_TOPK, 0)], 0))
    assert report["version"] == 1


def test_bf16_compute_keeps_float32_masters_and_stays_close(settings: Settings, ranks: Ranks) -> None:
    reports = []
    for compute in ("f32", "bf16"):
        worker = Worker(replace(settings, compute=compute), ranks)
        reports.append([learn(worker, learn_body(mixed(version), version)) for version in range(3)])
        assert {weight.dtype for weight in weights(worker).values()} == {torch.float32}
    for exact, rounded in zip(*reports, strict=True):
        assert rounded["skipped"] is False
        assert rounded["loss"] == pytest.approx(exact["loss"], rel=0.05)
        assert rounded["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.1)
    assert reports[0][0]["loss"] != reports[1][0]["loss"], "the second one really computes in bf16"


def test_tensors_of_kinds_without_rows_may_be_empty(worker: Worker) -> None:
    tensors = learn_tensors([random_row(Kind.NLL, 0)])
    tensors["teacher_top_ids"] = torch.zeros(0, 4, dtype=torch.int32)
    tensors["teacher_top_logprobs"] = torch.zeros(0, 4)
    tensors["teacher_logprobs"] = tensors["rollout_logprobs"] = torch.zeros(0)
    metadata = SETTINGS | {"request_id": "x", "expected_version": "0"}
    assert learn(worker, write_tensors(tensors, metadata))["version"] == 1
    tensors["teacher_logprobs"] = torch.zeros(5)
    with pytest.raises(RequestError, match=r"`teacher_logprobs` has the shape \[5\], expected \[0\]"):
        worker.run("learn", write_tensors(tensors, metadata))
