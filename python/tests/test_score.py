"""Scores against whole softmaxes in float64."""

import pytest
import torch
from torch import Tensor

import reference
from bodies import REAL, random_row, score_body
from lens_worker.errors import RequestError, StateError
from lens_worker.protocol import Fields, read_tensors
from lens_worker.settings import Settings
from lens_worker.supervision import Kind
from lens_worker.worker import Worker

ROWS = [
    (row.prompt, row.response)
    for row in (random_row(Kind.NLL, seed, prompt=2 + seed, response=3 + seed) for seed in range(4))
]
TOTAL = sum(len(response) for _, response in ROWS)
COMPARE = [True, False, True, False]
TEMPERATURE = [1.0, 0.5, 2.0, 1.0]


def answers(worker: Worker, body: bytes) -> tuple[dict[str, Tensor], Fields]:
    fields = read_tensors(worker.run("score", body).body)
    return fields.all(), fields


def test_scores_are_those_of_whole_softmaxes(worker: Worker, settings: Settings) -> None:
    assert settings.teacher is not None
    student, teacher = reference.load(settings.student), reference.load(settings.teacher)
    asked = torch.randint(0, REAL, (TOTAL, 3), dtype=torch.int32)
    asked[1, 2] = -1
    body = score_body(ROWS, COMPARE, TEMPERATURE, asked, top_k="5", expected_version="0")
    found, fields = answers(worker, body)
    assert (fields.text("version"), fields.text("divergence")) == ("0", "full")
    start = 0
    with torch.no_grad():
        for (prompt, response), compare, temperature in zip(ROWS, COMPARE, TEMPERATURE, strict=True):
            place = slice(start, start := start + len(response))
            s = reference.log_probs(student, prompt, response)
            t = reference.log_probs(teacher, prompt, response)
            warm = reference.log_probs(teacher, prompt, response, temperature)
            ids = torch.tensor(response)[:, None]
            ours, theirs = s.argmax(1, keepdim=True), t.argmax(1, keepdim=True)
            lists = asked[place].long()
            blank = torch.full((len(response), 1), torch.nan)
            expected = {
                "teacher_logprob": warm.gather(1, ids),
                "student_logprob": s.gather(1, ids) if compare else blank,
                "kl": (s.exp() * (s - t)).sum(1, keepdim=True) if compare else blank,
                "student_at_student": s.gather(1, ours) if compare else blank,
                "student_at_teacher": s.gather(1, theirs) if compare else blank,
                "teacher_at_teacher": t.gather(1, theirs) if compare else blank,
                "teacher_at_student": t.gather(1, ours) if compare else blank,
            }
            for name, values in expected.items():
                torch.testing.assert_close(
                    found[name][place],
                    values.squeeze(1).float(),
                    rtol=1e-4,
                    atol=1e-5,
                    equal_nan=True,
                    msg=name,
                )
            tops = (ours, theirs) if compare else (blank.fill_(-1), blank)
            assert torch.equal(found["student_top"][place].long(), tops[0].squeeze(1).long())
            assert torch.equal(found["teacher_top"][place].long(), tops[1].squeeze(1).long())
            wanted = torch.where(lists < 0, torch.nan, t.gather(1, lists.clamp_min(0)))
            torch.testing.assert_close(
                found["teacher_at_asked"][place], wanted.float(), rtol=1e-4, atol=1e-5, equal_nan=True
            )
            assert found["student_at_asked"][place].isnan().all() != compare
            top = t.topk(5, dim=1)
            assert torch.equal(found["teacher_top_ids"][place].long(), top.indices)
            torch.testing.assert_close(found["teacher_top_logprobs"][place], top.values.float(), rtol=1e-4, atol=1e-5)


def test_without_a_teacher_the_student_still_scores(lone_worker: Worker, settings: Settings) -> None:
    student = reference.load(settings.student)
    found, fields = answers(lone_worker, score_body(ROWS[:1], [True], [1.0]))
    prompt, response = ROWS[0]
    with torch.no_grad():
        s = reference.log_probs(student, prompt, response)
    torch.testing.assert_close(
        found["student_logprob"],
        s.gather(1, torch.tensor(response)[:, None]).squeeze(1).float(),
        rtol=1e-4,
        atol=1e-5,
    )
    assert found["kl"].isnan().all()
    assert found["teacher_logprob"].isnan().all()
    assert (found["teacher_top"] == -1).all()
    assert fields.text("divergence") == "none"
    with pytest.raises(RequestError, match="`compare` is 0 in row 0"):
        lone_worker.run("score", score_body(ROWS[:1], [False], [1.0]))


def test_a_score_of_another_version_is_refused(worker: Worker) -> None:
    with pytest.raises(StateError, match="expects 3"):
        worker.run("score", score_body(ROWS, COMPARE, TEMPERATURE, expected_version="3"))


def test_scoring_leaves_no_stale_weights(worker: Worker) -> None:
    """A pass without gradients must not keep the gathered root weights beyond the next step."""
    from bodies import learn_body

    body = score_body(ROWS, COMPARE, TEMPERATURE)
    before, _ = answers(worker, body)
    worker.run("learn", learn_body([random_row(Kind.NLL, 0)], 0, lr="0.1"))
    after, _ = answers(worker, body)
    assert not torch.equal(before["student_logprob"], after["student_logprob"])
    fresh = worker.student.lm.get_submodule("model.embed_tokens").weight
    assert torch.equal(fresh.full_tensor(), worker.student.weights()["model.embed_tokens.weight"].full_tensor())  # type: ignore[operator, union-attr]
