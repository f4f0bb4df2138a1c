"""The runbooks of disks, each in the situation it is for: one full, one slow, a bookie stuck, ledgers in limbo."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from tests.integration.failing_bookie import SLOW_SYNC_S
from tests.integration.operated import (
    PAYLOADS,
    assert_all_can_be_read,
    damage_journal,
    facts_of,
    states,
)
from tests.integration.processes import end_session, eventually, first_line, python
from tests.integration.runbooks import Walk
from tests.integration.tiny_disk import fourth
from tests.patience import Deadline, seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.full]

ROW = bytes(32 * 1024)
ROWS_OF_A_RANGE = 40
CLIENT = ClientSettings(bookie_quarantine_ms=200, ensemble_change_retry_ms=100)
"""On a busy machine a writer may lose a bookie for a while."""
IDLE_WRITER = """
import sys, time
from spark_bookkeeper import BookKeeper
client = BookKeeper(sys.argv[1])
writer = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
for number in range(100):
    writer.append(b"%d" % number)
print(writer.ledger_id, flush=True)
time.sleep(600)
writer.close()
"""
"""Its entries are on two of three at least; the ledger stays open when it is killed."""


def test_a_full_disk_is_freed_of_rows_that_nobody_needs(tiny_disk: Path, tmp_path: Path) -> None:
    with (
        LocalCluster(2) as cluster,
        fourth(cluster, tiny_disk) as bookie,
        BookKeeper(cluster.metadata_service_uri, settings=CLIENT) as bk,
        Walk(
            "A disk is full",
            cluster.metadata_service_uri,
            tmp_path,
            HTTP=f"http://{bookie.http}",
            LOG="orders",
            KEEP="1m",
        ) as walk,
    ):
        log, rows, waited = bk.create_log("orders"), 0, Deadline(120)
        while bookie.state() == "writable":
            with log.writer() as writer:
                rows += len(writer.append_many([ROW] * ROWS_OF_A_RANGE))
            assert not waited.has_passed, "the disk never filled"
        full = walk.do("look")
        assert re.search(rf"{bookie.bookie_id} .* readonly +disk", full)
        assert "bookkeeper_server_SERVER_STATUS 0" in full
        walk.do("truncate")
        assert re.search(rf"{bookie.bookie_id} .* writable", walk.do("done"))

        # It takes entries again, and what was to be kept is there.
        with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) as ledger:
            ledger.append(ROW)
        with log.reader() as reader:
            kept = list(reader)
        assert kept[-1][0].row == rows - 1
        assert len(kept) >= ROWS_OF_A_RANGE - 8  # 1 MiB of rows of 32 KiB, whole ranges
        assert all(bytes(entry.payload) == ROW for _, entry in kept)


class SlowBookie:
    """A fourth bookie of a cluster, whose disk is slow as long as a file exists."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        taken = set[int]()
        port = free_port(taken)
        self.bookie_id = f"{LOOPBACK}:{port}"
        self.http = f"{LOOPBACK}:{free_port(taken)}"
        self.slowness = directory / "slow"
        settings = {
            "metadata_service_uri": cluster.metadata_service_uri,
            "port": port,
            "rpc_port": 0,
            "http_port": int(self.http.rpartition(":")[2]),
            "journal_directories": [str(directory / "journal")],
            "ledger_directories": [str(directory / "ledgers")],
        }
        config = directory / "slow.toml"
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        config.write_text("".join(lines), encoding="utf-8")
        module = ["-m", "tests.integration.failing_bookie", "disk", str(self.slowness)]
        self.process = subprocess.Popen(
            [sys.executable, *module, "--config", str(config)],
            env=child_environment(),
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> SlowBookie:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def test_writers_leave_a_slow_bookie_and_come_back_when_it_is_fast_again(tmp_path: Path) -> None:
    with (
        LocalCluster(3) as cluster,
        SlowBookie(cluster, tmp_path) as slow,
        BookKeeper(cluster.metadata_service_uri, settings=CLIENT) as bk,
        Walk(
            "A bookie is slow",
            cluster.metadata_service_uri,
            tmp_path,
            BOOKIE=slow.bookie_id,
            HTTP=f"http://{slow.http}",
        ) as walk,
    ):
        uri = cluster.metadata_service_uri
        assert eventually(lambda: states(uri).get(slow.bookie_id) == "writable", 60)
        writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
        while slow.bookie_id not in writer.metadata.last_fragment.ensemble:
            writer.close()
            writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
        slow.slowness.touch()
        for payload in PAYLOADS[:20]:
            writer.append(payload)
        assert mean_sync_ms(walk.do("look")) > SLOW_SYNC_S * 1_000 / 2

        walk.do("readonly")
        assert eventually(lambda: states(uri)[slow.bookie_id] == "readonly", 60)
        for payload in PAYLOADS[20:]:
            writer.append(payload)
        assert slow.bookie_id not in writer.metadata.last_fragment.ensemble
        writer.close()

        slow.slowness.unlink()
        walk.do("writable")
        walk.do("done")
        with bk.create_ledger(ensemble_size=4, write_quorum=4, ack_quorum=4) as every:
            every.append(b"on all four")
        assert_all_can_be_read(bk, [writer.ledger_id])


def mean_sync_ms(metrics: str) -> float:
    """Of one journal, from the lines that the runbook prints."""
    found = dict(re.findall(r"SYNC_latency_(sum|count)\S* (\S+)", metrics))
    return float(found["sum"]) / float(found["count"])


def test_a_bookie_that_is_stuck_is_ended_and_started_again(tmp_path: Path) -> None:
    with (
        LocalCluster(3) as cluster,
        BookKeeper(cluster.metadata_service_uri) as bk,
    ):
        uri, stuck = cluster.metadata_service_uri, cluster.bookies[0]
        writer = bk.create_ledger()
        with Walk("A bookie is slow", uri, tmp_path, **facts_of(stuck)) as walk:
            writer.append_many(PAYLOADS[:50])
            stuck.pause()
            found = walk.do("stuck")
            assert f"bookie {stuck.bookie_id}: writable, and does not answer" in found
            writer.append_many(PAYLOADS[50:])
            walk.do("kill")
            walk.begin("start")
            walk.do("done")
            writer.close()
            assert set(states(uri).values()) == {"writable"}
            assert_all_can_be_read(bk, [writer.ledger_id])


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Whose bookies keep all in their journals, and look at their limbo often."""
    settings = {"checkpoint_interval_ms": 3_600_000, "integrity_check_interval_ms": 200}
    with LocalCluster(3, bookie_settings=settings) as running:
        yield running


def leave_ledger_open(cluster: LocalCluster) -> int:
    """A ledger whose writer was killed."""
    writer = python(IDLE_WRITER, cluster.metadata_service_uri)
    try:
        return int(first_line(writer))
    finally:
        writer.kill()
        writer.wait(seconds(30))
        assert writer.stdout is not None
        writer.stdout.close()


def crash(cluster: LocalCluster, damaged: int, started: int = 3) -> None:
    """All bookies are killed; the first ones lose the end of their journals; so many come back."""
    for bookie in cluster.bookies:
        bookie.kill()
        end_session(cluster.metadata_service_uri, bookie.bookie_id)
    for bookie in cluster.bookies[:damaged]:
        damage_journal(bookie)
    for bookie in cluster.bookies[:started]:
        bookie.start()


@pytest.mark.parametrize("is_healed", [True, False], ids=["auto-recovery", "by hand"])
def test_limbo_ends_when_its_ledger_is_closed(
    cluster: LocalCluster, bk: BookKeeper, tmp_path: Path, is_healed: bool
) -> None:
    ledger_id = leave_ledger_open(cluster)
    crash(cluster, damaged=1)
    doubtful, uri = cluster.bookies[0], cluster.metadata_service_uri
    if is_healed:
        cluster.start_auto_recovery(0)
    known = {**facts_of(doubtful), "LEDGER": ledger_id}
    with Walk("Ledgers are in limbo", uri, tmp_path, **known) as walk:
        found = walk.do("look")
        assert "bookie_ledgers_in_limbo 1" in found
        assert "limbo after damage. ledgers=1" in found
        assert "OPEN" in found
        walk.do("close")
        if not is_healed:
            walk.do("repair")
        walk.do("done")

    # The bookie is as good as the others: without one of them all is read.
    cluster.bookies[1].kill()
    assert_all_can_be_read(bk, [ledger_id])


def test_a_tail_in_doubt_on_an_ack_quorum_is_decided_by_an_operator(
    cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    """Nothing is lost in the end: the third bookie has it all."""
    ledger_id = leave_ledger_open(cluster)
    crash(cluster, damaged=2)
    uri = cluster.metadata_service_uri
    with Walk("Ledgers are in limbo", uri, tmp_path, LEDGER=ledger_id) as walk:
        refused = walk.do("doubt")
        assert "BK_LEDGER_RECOVERY" in refused
        assert "too few bookies could be fenced" in refused
        assert re.search(rf"{ledger_id} +IN_RECOVERY", walk.do("which"))
        decided = walk.do("accept")
        assert decided.count("LIMBO") == 2
        assert f"is closed; last entry {len(PAYLOADS) - 1}" in decided
        walk.do("ended")

    assert_all_can_be_read(bk, [ledger_id])


def test_a_tail_in_doubt_is_decided_when_another_bookie_is_back(
    cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    ledger_id = leave_ledger_open(cluster)
    crash(cluster, damaged=1, started=2)
    uri = cluster.metadata_service_uri
    with Walk("Ledgers are in limbo", uri, tmp_path, LEDGER=ledger_id) as walk:
        assert "BK_LEDGER_RECOVERY" in walk.do("doubt")
        cluster.bookies[2].start()
        assert f"last entry {len(PAYLOADS) - 1}" in walk.do("again")

    assert_all_can_be_read(bk, [ledger_id])
