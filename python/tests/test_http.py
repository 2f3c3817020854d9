"""The state: who may enter, what is refused and how, and what happens to commands nobody waits for."""

import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bodies import SETTINGS, learn_body, learn_tensors, random_row, score_body
from client import HEADERS, Client
from lens_worker.errors import StateError, WorkerError, packed
from lens_worker.protocol import read_tensors, write_tensors
from lens_worker.ranks import Ranks
from lens_worker.serve import _run, lead
from lens_worker.server import ServerState, start_server
from lens_worker.supervision import Kind
from lens_worker.worker import Reply, Worker
from test_learn import mixed


@pytest.fixture
def client(worker: Worker, ranks: Ranks, capsys: pytest.CaptureFixture[str]) -> Iterator[Client]:
    state = ServerState("open sesame", max_body=100_000, last_collective=lambda: ranks.last_collective)
    server = start_server(state, "127.0.0.1", 0)
    thread = threading.Thread(target=lead, args=(worker, ranks, state))
    thread.start()
    client = Client(json.loads(capsys.readouterr().out)["listening"])
    for _ in range(100):
        if client.get("health")[0] == 200:
            break
        time.sleep(0.05)
    yield client
    client.post("shutdown")
    thread.join(timeout=20)
    server.shutdown()
    server.server_close()


def error(answer: bytes) -> tuple[str, str]:
    found = json.loads(answer)["error"]
    return found["kind"], found["message"]


def test_every_request_needs_the_token_and_the_protocol(client: Client) -> None:
    for path in ("/v1/health", "/v1/info"):
        assert client.raw("GET", path, headers={"X-Lens-Protocol": "1"})[0] == 401
        assert client.raw("GET", path, headers=HEADERS | {"Authorization": "Bearer wrong"})[0] == 401
        status, answer, _ = client.raw("GET", path, headers={"Authorization": HEADERS["Authorization"]})
        assert status == 400
        assert "X-Lens-Protocol" in error(answer)[1]
    assert client.raw("POST", "/v1/learn", b"", headers={})[0] == 401
    assert client.raw("GET", "/v1/learn")[0] == 404
    assert client.raw("POST", "/v1/unlearn", b"")[0] == 404


def test_info_and_the_version_on_every_reply(client: Client) -> None:
    status, info = client.get("info")
    assert status == 200
    assert (info["protocol"], info["version"], info["world_size"], info["real_vocab"]) == (1, 0, 1, 37)
    assert info["model"]["model_type"] == "qwen3"
    assert info["teacher"]["hidden_size"] == 24
    assert info["checkpoint_bytes"] > 0
    client.json("learn", learn_body(mixed(), 0))
    _, _, headers = client.raw("GET", "/v1/health")
    assert (headers["x-lens-version"], headers["x-lens-protocol"]) == ("1", "1")


def test_learning_and_scoring_over_the_wire(client: Client) -> None:
    first = client.json("learn", learn_body(mixed(), 0, "a"))
    assert (first["version"], first["replayed"], first["request_id"]) == (1, False, "a")
    assert client.json("learn", learn_body(mixed(), 0, "a"))["replayed"] is True
    status, answer = client.post("learn", learn_body(mixed(), 0, "b"))
    assert (status, error(answer)[0]) == (409, "state")
    status, answer = client.post("score", score_body([([1, 2], [3, 4])], [True], [1.0]))
    assert status == 200
    assert read_tensors(answer).text("version") == "1"


def wrong(change: dict[str, torch.Tensor | None], settings: dict[str, str | None] | None = None) -> bytes:
    rows = [random_row(Kind.NLL, 0), random_row(Kind.RKL_TOPK, 1), random_row(Kind.K1_PG, 2)]
    tensors: dict[str, torch.Tensor | None] = {**learn_tensors(rows), **change}
    metadata: dict[str, str | None] = {
        **SETTINGS,
        "request_id": "x",
        "expected_version": "0",
        **(settings or {}),
    }
    return write_tensors(
        {name: value for name, value in tensors.items() if value is not None},
        {name: value for name, value in metadata.items() if value is not None},
    )


ints = torch.tensor
BAD: list[tuple[bytes, str]] = [
    (b"", "not a safetensors file"),
    (b"\xff" * 64, "not a safetensors file"),
    (wrong({"tokens": None}), "tensor `tokens` is missing"),
    (wrong({"tokens": torch.zeros(27)}), "tensor `tokens` holds torch.float32, expected torch.int32"),
    (wrong({"tokens": torch.full((27,), 40, dtype=torch.int32)}), "`tokens` holds 40 at 0, outside the vocabulary"),
    (wrong({"tokens": torch.full((27,), 38, dtype=torch.int32)}), r"`tokens` (the response of row 0) holds 38"),
    (wrong({"row_offsets": ints([0, 9, 18])}), "`row_offsets` must hold one row at least and run from 0 to the 27"),
    (wrong({"row_offsets": ints([0, 19, 18, 27])}), "`row_offsets` decreases"),
    (wrong({"response_start": ints([0, 4, 4], dtype=torch.int32)}), "`response_start` is 0 in row 0"),
    (wrong({"response_start": ints([4, 4], dtype=torch.int32)}), "`response_start` has the shape [2], expected [3]"),
    (wrong({"coefficients": torch.full((15,), math.nan)}), "`coefficients` holds a number that is not finite"),
    (wrong({"coefficients": torch.ones(3)}), "`coefficients` has the shape [3], expected [15]"),
    (wrong({"kind": ints([5, 1, 9], dtype=torch.uint8)}), "`kind` is 9 in row 2"),
    (wrong({"target_key": ints([3, -1, -1])}), "`target_key` is 3 in row 0"),
    (wrong({"kind": ints([3, 1, 2], dtype=torch.uint8), "target_key": None}), "`target_key` is missing"),
    (wrong({"teacher_top_ids": None}), "`teacher_top_ids` is missing"),
    (wrong({"teacher_top_logprobs": None}), "`teacher_top_logprobs` is missing"),
    (wrong({"teacher_top_ids": torch.full((5, 3), 4, dtype=torch.int32)}), "`teacher_top_ids` repeats an id at"),
    (wrong({"teacher_top_ids": torch.full((5, 3), 37, dtype=torch.int32)}), "`teacher_top_ids` holds 37 at position 0"),
    (wrong({"teacher_top_ids": torch.full((5, 3), -1, dtype=torch.int32)}), "`teacher_top_ids` holds an empty list"),
    (wrong({"teacher_top_logprobs": torch.zeros(5, 3)}), "sums to the probability 3.0000 at position 0"),
    (wrong({"teacher_logprobs": None}), "`teacher_logprobs` is missing"),
    (wrong({"rollout_logprobs": torch.zeros(4)}), "`rollout_logprobs` has the shape [4], expected [5]"),
    (wrong({"extra": torch.zeros(1)}), "tensor `extra` is not known"),
    (wrong({}, {"lr": None}), "metadata `lr` is missing"),
    (wrong({}, {"lr": "fast"}), "metadata `lr` is 'fast', expected a finite number of at least 0"),
    (wrong({}, {"beta2": "1.0"}), "metadata `beta2` is '1.0'"),
    (wrong({}, {"clip": "0"}), "metadata `clip` is '0'"),
    (wrong({}, {"clip": "nan"}), "metadata `clip` is 'nan'"),
    (wrong({}, {"eps": "inf"}), "metadata `eps` is 'inf'"),
    (wrong({}, {"kl_coef": "0"}), "metadata `kl_coef` is '0'"),
    (wrong({}, {"dual_clip": "1"}), "metadata `dual_clip` is '1'"),
    (wrong({}, {"expected_version": "-1"}), "metadata `expected_version` is '-1'"),
    (wrong({}, {"request_id": None}), "metadata `request_id` is missing"),
    (wrong({}, {"learning_rate": "1"}), "metadata `learning_rate` is not known"),
]  # fmt: skip


def test_bad_learn_bodies_are_refused_by_name_and_change_nothing(client: Client) -> None:
    for body, message in BAD:
        status, answer = client.post("learn", body)
        kind, found = error(answer)
        assert (status, kind) == (400, "request"), found
        assert message in found
    assert client.json("learn", wrong({}))["version"] == 1, "the unchanged body is a good one"


def test_bodies_have_a_limit_and_a_length(client: Client) -> None:
    status, answer, _ = client.raw("POST", "/v1/learn", b"x" * 100_001)
    assert (status, error(answer)[1]) == (413, "the body has 100001 bytes, at most 100000 are read here")
    with socket.create_connection((client.host, client.port), timeout=20) as plain:
        lines = [f"{name}: {value}" for name, value in HEADERS.items()]
        plain.sendall("\r\n".join(["POST /v1/learn HTTP/1.1", "Host: x", *lines, "", ""]).encode())
        assert b" 400 " in plain.recv(1000)


def test_health_answers_while_a_command_runs_and_a_second_command_waits_its_turn(
    client: Client, worker: Worker
) -> None:
    go, running = threading.Event(), threading.Event()

    def slow(_: bytes) -> Reply:
        running.set()
        go.wait(20)
        return Reply.json({})

    worker.commands["forget"] = slow
    waiting = threading.Thread(target=client.post, args=("forget", b"{}"))
    waiting.start()
    assert running.wait(20)
    status, health = client.get("health")
    assert (status, health["busy"], health["command"]) == (200, True, "forget")
    assert health["seconds_since_collective"] >= 0
    assert client.get("info")[0] == 200
    status, answer, headers = client.raw("POST", "/v1/learn", learn_body(mixed(), 0))
    assert (status, error(answer)) == (503, ("state", "busy with forget; one command at a time"))
    assert headers["retry-after"] == "1"
    go.set()
    waiting.join(20)
    assert client.json("learn", learn_body(mixed(), 0))["version"] == 1


def _request(client: Client, body: bytes) -> socket.socket:
    connection = socket.create_connection((client.host, client.port), timeout=20)
    lines = [f"{name}: {value}" for name, value in HEADERS.items()]
    head = ["POST /v1/learn HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines, "", ""]
    connection.sendall("\r\n".join(head).encode())
    return connection


def test_a_step_whose_connection_is_cut_is_done_and_can_be_asked_for(client: Client) -> None:
    body = learn_body(mixed(), 0, "cut")
    connection = _request(client, body)
    connection.sendall(body)
    connection.close()
    for _ in range(100):
        if client.get("health")[1]["version"] == 1:
            break
        time.sleep(0.05)
    report = client.json("learn", body)
    assert (report["version"], report["replayed"]) == (1, True)
    assert client.get("info")[1]["version"] == 1, "one step, not two"


def test_a_body_that_is_cut_is_no_step(client: Client) -> None:
    body = learn_body(mixed(), 0, "half")
    connection = _request(client, body)
    connection.sendall(body[: len(body) // 2])
    connection.close()
    time.sleep(0.3)
    report = client.json("learn", body)
    assert (report["version"], report["replayed"]) == (1, False)


def test_an_error_inside_is_told_and_the_worker_goes_on(client: Client, worker: Worker, tmp_path: Path) -> None:
    def broken(_: bytes) -> Reply:
        raise KeyError("a mistake")

    worker.commands["forget"] = broken
    status, answer = client.post("forget", b"{}")
    assert (status, error(answer)) == (500, ("internal", "KeyError: 'a mistake'"))
    assert client.json("save", {"directory": str(tmp_path / "state")})["version"] == 0


def test_ranks_that_disagree_are_not_trusted(worker: Worker, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another rank reports an error where this one succeeded: its state may differ from now on."""
    theirs = packed(WorkerError("a disk of another rank is full"))
    monkeypatch.setattr(ranks, "gather", lambda mine: [mine, theirs])
    reply = _run(worker, ranks, "forget", b'{"before_version": 0}')
    assert isinstance(reply, WorkerError)
    with pytest.raises(StateError, match=r"forget failed on some ranks only .*; load a checkpoint first"):
        worker.run("learn", learn_body(mixed(), 0))
