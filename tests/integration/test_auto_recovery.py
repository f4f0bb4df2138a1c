"""A bookie is lost for good, and the cluster heals by itself: on real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.environment import child_environment
from tests.integration.command_line import CommandLine
from tests.integration.processes import command
from tests.patience import Deadline, seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PAYLOADS = [b"%d" % number for number in range(200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """With bookies to spare."""
    with LocalCluster(5) as running:
        yield running


@pytest.fixture
def daemon(cluster: LocalCluster) -> Iterator[subprocess.Popen[bytes]]:
    """The process that heals."""
    program = [sys.executable, "-m", "spark_bookkeeper.cli", "autorecovery"]
    uri = ("--metadata-service-uri", cluster.metadata_service_uri)
    settings = ("--open-ledger-grace-ms", "1000", "--logs-gc-interval-ms", "500")
    with subprocess.Popen([*program, *uri, *settings], env=child_environment()) as process:
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(seconds(20)) == 0


def wait_until_healed(bookkeeper: CommandLine, bk: BookKeeper, lost: str) -> None:
    """No ledger names the bookie, and none is marked."""
    waited, named, marked = Deadline(120), [0], []
    while not waited.has_passed:
        named = [
            ledger_id
            for ledger_id in bk.list_ledgers()
            if lost in bk.ledger_metadata(ledger_id).bookie_ids
        ]
        marked = bookkeeper.json("underreplicated", "list")["underreplicated"]
        if not named and not marked:
            return
        time.sleep(0.2)
    raise AssertionError(f"still not healed: named={named} marked={marked}")


def test_a_bookie_that_is_lost_for_good_is_healed(
    bookkeeper: CommandLine,
    bk: BookKeeper,
    cluster: LocalCluster,
    daemon: subprocess.Popen[bytes],
) -> None:
    closed = []
    for _ in range(20):
        with bk.create_ledger() as writer:
            writer.append_many(PAYLOADS)
        closed.append(writer.ledger_id)
    idle = bk.create_ledger()
    idle.append_many(PAYLOADS)
    lost = next(
        each for each in cluster.bookies if each.bookie_id in idle.metadata.last_fragment.ensemble
    )

    lost.kill()
    wait_until_healed(bookkeeper, bk, lost.bookie_id)

    for ledger_id in (*closed, idle.ledger_id):
        # Fails where a copy is missing.
        command(cluster.metadata_service_uri, "ledgers", "verify", ledger_id)
        with bk.open_ledger(ledger_id) as reader:
            assert [bytes(entry.payload) for entry in reader.read(0, 199)] == PAYLOADS
    assert daemon.poll() is None
    status = bookkeeper.json("autorecovery", "status")
    assert status["is_enabled"]
    assert status["auditor"]
    assert (status["marked"], status["being_mended"]) == (0, 0)


def test_logs_are_collected_without_anybody_asking(
    bookkeeper: CommandLine,
    bk: BookKeeper,
    cluster: LocalCluster,
    daemon: subprocess.Popen[bytes],
) -> None:
    bookkeeper("logs", "append", "kept", stdin=b"0\n")
    bookkeeper("logs", "append", "kept", stdin=b"1\n")
    ledgers = set(bk.list_ledgers())

    bookkeeper(
        "logs", "truncate", "kept", "--before", 1, "--deleted-ledger-retention", "0s", "--yes"
    )

    waited = Deadline(60)
    while not set(bk.list_ledgers()) < ledgers:
        assert not waited.has_passed
        time.sleep(0.2)
    assert "1" in bookkeeper("logs", "read", "kept")
    assert daemon.poll() is None


@pytest.mark.full
def test_a_local_cluster_heals_if_it_is_told_to() -> None:
    with (
        LocalCluster(4, autorecovery=True) as cluster,
        BookKeeper(cluster.metadata_service_uri) as bk,
    ):
        with bk.create_ledger() as writer:
            writer.append_many(PAYLOADS)
        lost = next(
            each
            for each in cluster.bookies
            if each.bookie_id in writer.metadata.last_fragment.ensemble
        )
        lost.kill()
        waited = Deadline(120)
        while lost.bookie_id in bk.ledger_metadata(writer.ledger_id).last_fragment.ensemble:
            assert not waited.has_passed
            time.sleep(0.2)
        with bk.open_ledger(writer.ledger_id) as reader:
            assert [bytes(entry.payload) for entry in reader.read(0, 199)] == PAYLOADS
