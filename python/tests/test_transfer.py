"""Weights sent into servers' memory: every bit arrives, and servers that are not there are told of."""

import base64
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bodies import learn_body, score_body
from client import Client, torchrun
from lens_worker.channels import UniqueIdChannel
from lens_worker.errors import RequestError, StateError
from lens_worker.ranks import Ranks
from lens_worker.settings import Settings
from lens_worker.worker import Worker
from test_learn import learn, mixed
from test_ranks import HINTED, arguments

RECEIVER = Path(__file__).with_name("receiver.py")


class Server:
    """A process that stands for a server."""

    def __init__(self, model: Path, output: Path) -> None:
        self.output = output
        self.process = subprocess.Popen(
            [sys.executable, str(RECEIVER), str(model), str(output)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["listening"]

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
        assert found["success"], found
        return found

    def weights(self) -> dict[str, Tensor]:
        return load_file(self.output / "model.safetensors")


@contextmanager
def servers(model: Path, folder: Path, count: int) -> Iterator[list[Server]]:
    started = [Server(model, folder / f"server-{index}") for index in range(count)]
    try:
        yield started
    finally:
        for server in started:
            server.process.kill()
            server.process.wait()


def meanwhile(acts: list[Any]) -> list[threading.Thread]:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    return threads


def join(client: Client, members: list[Server], name: str) -> dict[str, Any]:
    opened = client.json(
        "open_transfer", {"rendezvous": "store", "world_size": 1 + len(members), "group": name, "address": "127.0.0.1"}
    )
    assert opened["backend"] == "gloo"
    shared = opened["rendezvous"] | {"world_size": 1 + len(members), "backend": opened["backend"]}
    threads = meanwhile(
        [
            lambda at=at, server=server: server.post("/init_weights_update_group", shared | {"rank_offset": 1 + at})
            for at, server in enumerate(members)
        ]
    )
    assert client.json("join_transfer") == {"joined": True}
    for thread in threads:
        thread.join()
    return opened


def update(opened: dict[str, Any], part: slice) -> dict[str, Any]:
    names, shapes = opened["names"][part], opened["shapes"][part]
    return {
        "names": names, "dtypes": [opened["dtype"]] * len(names), "shapes": shapes,
        "group_name": opened["rendezvous"]["group_name"],
    }  # fmt: skip


@pytest.mark.parametrize(("ranks", "count", "flags"), [(1, 1, []), (2, 2, ["--lora-rank", "2"])])
def test_what_arrives_is_what_is_published_to_the_bit(
    models: dict[str, Path], token_file: Path, tmp_path: Path, ranks: int, count: int, flags: list[str]
) -> None:
    with (
        torchrun(ranks, *arguments(models, token_file), *flags) as worker,
        servers(models["student"], tmp_path, count) as members,
    ):
        client = worker.client
        status, answer = client.post("transfer", {"version": 0})
        assert (status, "no servers have joined" in answer.decode()) == (409, True)
        opened = join(client, members, "first")
        # Two calls take what is sent in one go; a second group replaces the first.
        for version, name in ((1, None), (2, "second")):
            client.json("learn", learn_body(mixed(version), version - 1))
            if name is not None:
                opened = join(client, members, name)
            half = len(opened["names"]) // 2

            def receive(server: Server, opened: dict[str, Any] = opened, half: int = half) -> None:
                for part in (slice(half), slice(half, None)):
                    server.post("/update_weights_from_distributed", update(opened, part))

            threads = meanwhile([lambda server=server: receive(server) for server in members])
            sent = client.json("transfer", {"version": version, "keep": True})
            for thread in threads:
                thread.join()
            folder = tmp_path / f"published-{version}"
            client.json("publish", {"directory": str(folder), "version": version, "keep": True})
            published = load_file(folder / "model.safetensors")
            assert list(published) == sorted(opened["names"])
            assert sent["bytes"] == 2 * sum(tensor.numel() for tensor in published.values())
            for server in members:
                found = server.weights()
                assert all(torch.equal(tensor, found[at]) for at, tensor in published.items())
            assert client.get("info")[1]["published"] == version
        status, answer = client.post("transfer", {"version": 1})
        assert (status, "is at version 2" in answer.decode()) == (409, True)


def test_a_server_that_goes_away_is_told_of_and_training_goes_on(
    models: dict[str, Path], token_file: Path, tmp_path: Path
) -> None:
    with (
        torchrun(2, *arguments(models, token_file)) as worker,
        servers(models["student"], tmp_path, 1) as members,
    ):
        client = worker.client
        join(client, members, "lost")
        members[0].process.kill()
        members[0].process.wait()
        status, answer = client.post("transfer", {"version": 0})
        assert status == 409, answer
        assert "a server did not take a tensor" in json.loads(answer)["error"]["message"]
        status, answer = client.post("transfer", {"version": 0})
        assert "open_transfer and join_transfer come first" in json.loads(answer)["error"]["message"]
        assert client.json("learn", learn_body(mixed(0), 0))["version"] == 1


def test_servers_that_never_join_end_the_wait(settings: Settings, ranks: Ranks) -> None:
    worker = Worker(settings, ranks)
    worker.transfer.limit = timedelta(seconds=1)
    with pytest.raises(StateError, match="open_transfer comes first"):
        worker.run("join_transfer", b"")
    worker.run("open_transfer", json.dumps({"rendezvous": "store", "world_size": 2, "group": "nobody"}).encode())
    with pytest.raises(StateError, match="the servers did not join"):
        worker.run("join_transfer", b"")
    rows = [(prompt, response) for _, prompt, response in HINTED]
    worker.run("score", score_body(rows, [True] * 3, [1.0] * 3))
    assert learn(worker, learn_body(mixed(0), 0))["version"] == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"rendezvous": "unique_id", "world_size": 2}, "needs NCCL, and this worker runs on the CPU"),
        ({"rendezvous": "smoke", "world_size": 2}, "'smoke', expected unique_id or store"),
        ({"rendezvous": "store", "world_size": 1}, "at least one server make 2"),
        ({"rendezvous": "store", "world_size": 2, "dtype": "int8"}, "'int8', expected bf16 or f32"),
        ({"rendezvous": "store", "world_size": 2, "address": "no.such.host.invalid"}, "cannot listen there"),
        ({"rendezvous": "store", "world_size": 2, "rank": 1}, "`rank` is not known"),
    ],
)
def test_a_group_that_cannot_be_is_refused(worker: Worker, body: dict[str, object], words: str) -> None:
    worker.transfer.limit = timedelta(seconds=2)
    with pytest.raises(RequestError, match=words):
        worker.run("open_transfer", json.dumps(body).encode())


@pytest.mark.skipif(not hasattr(torch._C, "_nccl_unique_id"), reason="this torch was built without NCCL")
def test_a_unique_id_is_one_of_nccl() -> None:
    channel = UniqueIdChannel(2, torch.device("cuda", 0), timedelta(seconds=1))
    assert len(base64.b64decode(str(channel.rendezvous()["nccl_unique_id_b64"]), validate=True)) == 128
