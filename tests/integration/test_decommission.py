"""A bookie is retired while writers go on, and another one's copies are made again by hand: on real processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.command_line import CommandLine
from tests.integration.processes import command

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PAYLOADS = [b"%d" % number for number in range(200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """With bookies to spare."""
    with LocalCluster(5) as running:
        yield running


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
    uri = cluster.metadata_service_uri
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
        named = command(
            cluster.metadata_service_uri, "bookies", "decommission", retired.bookie_id, "--dry-run"
        )
        moved = command(uri, "bookies", "decommission", retired.bookie_id)
    finally:
        is_over.set()
        writing.join()

    assert 0 < named["ledgers"] <= moved["ledgers"] == moved["moved"]
    assert (moved["left"], moved["recovered"]) == ({}, []), "the writer left it by itself"
    assert moved["copied_bytes"] > 0
    writer.close()
    retired.stop()
    command(uri, "cookies", "delete", retired.bookie_id, "--yes")  # refused while a ledger names it
    assert command(
        cluster.metadata_service_uri, "ledgers", "verify", *ledger_ids, writer.ledger_id
    )["passed"]
    assert read(bk, writer.ledger_id) == sent
    for ledger_id in ledger_ids:
        assert read(bk, ledger_id) == PAYLOADS
    listed = {each["bookie_id"] for each in command(uri, "bookies", "list")["bookies"]}
    assert retired.bookie_id not in listed


def test_what_a_dead_bookie_held_is_copied_to_the_one_that_is_named(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    uri = cluster.metadata_service_uri
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
    assert command(uri, "bookies", "recover", dead.bookie_id)["left"] == {}
    assert command(uri, "ledgers", "verify", *ledger_ids)["passed"]
