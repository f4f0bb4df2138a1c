"""A bookie is retired while writers go on, and another one's copies are made again by hand: on real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.environment import child_environment
from tests.integration.command_line import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PAYLOADS = [b"%d" % number for number in range(200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """With bookies to spare."""
    with LocalCluster(5) as running:
        yield running


def command(cluster: LocalCluster, *arguments: object) -> Any:
    """What it prints; in a process of its own, for gRPC has trouble with two event loops in one."""
    program = [sys.executable, "-m", "spark_bookkeeper.cli", *map(str, arguments)]
    uri = ("--metadata-service-uri", cluster.metadata_service_uri)
    ended = subprocess.run(
        [*program, *uri, "--json"], env=child_environment(), capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr or ended.stdout
    return json.loads(ended.stdout)


def write(bk: BookKeeper, ledgers: int) -> list[int]:
    ledger_ids = []
    for _ in range(ledgers):
        with bk.create_ledger() as writer:
            writer.append_many(PAYLOADS)
        ledger_ids.append(writer.ledger_id)
    return ledger_ids


def read(bk: BookKeeper, ledger_id: int) -> list[bytes]:
    with bk.open_ledger(ledger_id) as reader:
        return [bytes(entry.payload) for entry in reader.read(0, reader.last_add_confirmed)]


def test_a_bookie_is_retired_while_a_writer_goes_on(bk: BookKeeper, cluster: LocalCluster) -> None:
    ledger_ids = write(bk, 10)
    writer = bk.create_ledger()
    writer.append(b"first")
    retired = next(
        each for each in cluster.bookies if each.bookie_id in writer.metadata.last_fragment.ensemble
    )
    is_over = threading.Event()
    sent = [b"first"]

    def go_on() -> None:
        while not is_over.is_set():
            payload = b"%d" % len(sent)
            writer.append(payload)
            sent.append(payload)

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        named = command(cluster, "bookies", "decommission", retired.bookie_id, "--dry-run")
        moved = command(cluster, "bookies", "decommission", retired.bookie_id)
    finally:
        is_over.set()
        writing.join()

    assert 0 < named["ledgers"] <= moved["ledgers"] == moved["moved"]
    assert (moved["left"], moved["recovered"]) == ({}, []), "the writer left it by itself"
    assert moved["copied_bytes"] > 0
    writer.close()
    retired.stop()
    command(
        cluster, "cookies", "delete", retired.bookie_id, "--yes"
    )  # refused while a ledger names it
    assert command(cluster, "ledgers", "verify", *ledger_ids, writer.ledger_id)["passed"]
    assert read(bk, writer.ledger_id) == sent
    for ledger_id in ledger_ids:
        assert read(bk, ledger_id) == PAYLOADS
    listed = {each["bookie_id"] for each in command(cluster, "bookies", "list")["bookies"]}
    assert retired.bookie_id not in listed


def test_what_a_dead_bookie_held_is_copied_to_the_one_that_is_named(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    running = [each for each in cluster.bookies if each.is_running]
    target, dead = running[0], running[1]
    ledger_ids = write(bk, 10)
    there = bookkeeper.refused("bookies", "recover", dead.bookie_id, code=2)
    assert f"{dead.bookie_id} is there; to retire it: bookkeeper bookies decommission" in there
    dead.stop()
    unknown = bookkeeper.refused("bookies", "recover", dead.bookie_id, "--to", "nobody:1", code=2)
    assert "no bookie nobody:1 belongs to the cluster" in unknown

    code, _, why = bookkeeper.outcome(
        "bookies", "recover", dead.bookie_id, "--to", target.bookie_id
    )

    # It cannot take what it has already.
    left = [
        ledger_id
        for ledger_id in ledger_ids
        if dead.bookie_id in bk.ledger_metadata(ledger_id).last_fragment.ensemble
    ]
    both = [
        ledger_id
        for ledger_id in left
        if target.bookie_id in bk.ledger_metadata(ledger_id).last_fragment.ensemble
    ]
    assert left == both
    assert code == (1 if left else 0)
    assert all(
        f"ledger {ledger_id}: {dead.bookie_id} is to leave" in why for ledger_id in left[:20]
    )
    assert command(cluster, "bookies", "recover", dead.bookie_id)["left"] == {}
    assert command(cluster, "ledgers", "verify", *ledger_ids)["passed"]
