"""Our half of a comparison: the client process answers every command, and how it fails is said."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.commands import ClientFailedError, CommandedClient
from benchmarks.peers.comparing import our_client
from spark_bookkeeper import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def client() -> Iterator[CommandedClient]:
    with (
        LocalCluster(bookies=3) as cluster,
        our_client(cluster.metadata_service_uri, cluster.directory) as client,
    ):
        yield client


@pytest.mark.parametrize(
    "command",
    [
        "add many 100 50 0.05 1",
        "add async 100 50 0.05 1",
        "paced 100 1000 0.05",
        "recover 200 50 0.01",
        "life 0.01",
    ],
)
def test_our_client_answers_with_what_it_measured(client: CommandedClient, command: str) -> None:
    answer = client.ask(*command.split())

    assert answer["count"] > 0
    assert answer["seconds"] > 0
    assert 0 < answer["p50_ms"] <= answer["p99_ms"]


def test_our_client_reads_what_it_prepared_and_deletes_what_it_made(
    client: CommandedClient,
) -> None:
    client.ask("forget")
    ledger_id = int(client.ask("prepare", 1024, 300)["ledger"])

    for how in ("runs", "entries"):
        answer = client.ask("read", how, 1024, ledger_id, 0.02)
        assert answer["bytes"] == answer["count"] * 1024 > 0

    assert client.ask("forget") == {"count": 1}
    with pytest.raises(ClientFailedError, match="spark-bookkeeper failed"):
        client.ask("read", "runs", 1024, ledger_id, 0.02)


def test_a_client_that_ends_is_an_error_that_shows_its_log(tmp_path: Path) -> None:
    program = "import sys; print('no such host', file=sys.stderr)"
    command = [sys.executable, "-c", program]
    with (
        CommandedClient("peer", command, tmp_path / "log", dict(os.environ)) as client,
        pytest.raises(ClientFailedError, match="its process ended\nno such host"),
    ):
        client.ask("life", 1)


def test_an_answer_that_is_none_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "input(); print('log line')"]
    with (
        CommandedClient("peer", command, tmp_path / "log", dict(os.environ)) as client,
        pytest.raises(ClientFailedError, match="it answered"),
    ):
        client.ask("life", 1)
