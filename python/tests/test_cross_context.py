"""Targets of hinted contexts: the gap, the kept target, and learning from it."""

import json
from dataclasses import replace

import pytest
import torch

import reference
from bodies import cross_body, learn_body, random_row
from lens_worker.errors import RequestError
from lens_worker.protocol import read_tensors
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.supervision import Kind
from lens_worker.worker import Worker

HINTED = [[1, 2, 3, 4, 5, 6], [9, 8, 7], [3, 3, 3, 3]]
ROWS = [random_row(Kind.FORWARD_KL, seed, response=4 + seed) for seed in range(3)]
BODY = cross_body([(hint, row.prompt, row.response) for hint, row in zip(HINTED, ROWS, strict=True)])


@pytest.mark.parametrize("form", ["exact", "topk"])
def test_the_gap_is_exact_and_the_target_is_learned(settings: Settings, ranks: Ranks, form: str) -> None:
    worker = Worker(replace(settings, targets=form, target_top_k=6), ranks)
    fields = read_tensors(worker.run("cross_context", BODY).body)
    gaps, keys = fields.tensor("gap", torch.float64, 3), fields.tensor("target_key", torch.int64, 3)
    assert keys.tolist() == [0, 1, 2]
    model = reference.load(settings.student)
    targets = {}
    for at, (hint, row) in enumerate(zip(HINTED, ROWS, strict=True)):
        with torch.no_grad():
            hinted = reference.log_probs(model, hint, row.response)
            plain = reference.log_probs(model, row.prompt, row.response)
        gap = (hinted.exp() * (hinted - plain)).sum(1).mean()
        assert gaps[at].item() == pytest.approx(gap.item(), rel=1e-4)
        targets[at] = hinted
    # The snapshot moves on before its targets are learned.
    worker.run("learn", learn_body([random_row(Kind.NLL, 5)], 0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    reference.step([random_row(Kind.NLL, 5)], model, None, optimizer)
    rows = [replace(row, key=key) for row, key in zip(ROWS, keys.tolist(), strict=True)]
    report = json.loads(worker.run("learn", learn_body(rows, 1)).body)
    if form == "topk":
        rows = [
            replace(
                row,
                kind=Kind.FORWARD_KL_TOPK,
                top=[
                    list(zip(*(part.tolist() for part in (top.indices, top.values)), strict=True))
                    for top in (position.topk(6) for position in targets[at])
                ],
            )
            for at, row in enumerate(rows)
        ]
    loss, norm = reference.step(rows, model, None, optimizer, targets=targets)
    assert report["loss"] == pytest.approx(loss, rel=1e-4)
    assert report["internalization_loss"] == report["loss"]
    assert report["focus_loss"] == 0.0
    assert report["grad_norm"] == pytest.approx(norm, rel=1e-4)


def test_without_a_hint_there_is_no_gap_and_no_pull(settings: Settings, ranks: Ranks) -> None:
    worker = Worker(replace(settings, targets="exact"), ranks)
    body = cross_body([(row.prompt, row.prompt, row.response) for row in ROWS])
    fields = read_tensors(worker.run("cross_context", body).body)
    assert fields.tensor("gap", torch.float64, 3).abs().max() < 1e-5
    rows = [replace(row, key=at) for at, row in enumerate(ROWS)]
    assert json.loads(worker.run("learn", learn_body(rows, 0)).body)["grad_norm"] < 1e-4


def test_targets_are_forgotten_by_version(worker: Worker) -> None:
    worker.run("cross_context", BODY)
    worker.run("learn", learn_body([random_row(Kind.NLL, 5)], 0))
    worker.run("cross_context", BODY)
    answer = json.loads(worker.run("forget", b'{"before_version": 1}').body)
    assert answer == {"forgotten": 3, "kept": 3}
    with pytest.raises(RequestError, match="row 0 names target 0, which is not kept"):
        worker.run("learn", learn_body([replace(ROWS[0], key=0)], 1))
    with pytest.raises(RequestError, match="target 5 is about 6 tokens, but the response of row 0 has 4"):
        worker.run("learn", learn_body([replace(ROWS[0], key=5)], 1))
    assert json.loads(worker.run("learn", learn_body([replace(ROWS[0], key=3)], 1)).body)["version"] == 2
