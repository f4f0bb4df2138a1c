"""One stream writes on while bookies are killed, full, damaged, wiped, flooded, away and restarted."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.connect import connect
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.cli.ledgers.verification import ABSENT
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.readiness import run_in_thread
from tests.integration.fuzzed import Answers, connected
from tests.integration.hostile_clients import KINDS, attacked
from tests.integration.mutations import Mutator
from tests.spark.siege import Siege, besieged, restart_one_by_one
from tests.spark.waits import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(3600)]

_MIB = 1024 * 1024
SMALL = {
    "journal_file_size_bytes": 2 * _MIB,
    "journal_zero_chunk_bytes": _MIB // 4,
    "write_cache_size_bytes": _MIB,
    "checkpoint_interval_ms": 500,
    "reserve_for_fences_bytes": 3 * _MIB,
    "reserve_for_recovery_bytes": 3 * _MIB,
    "writable_margin_bytes": 4 * _MIB,
}
"""For a disk of 48 MiB; entries are soon in entry logs."""
LEFT_FREE = 4 * _MIB
"""Less than both reserves: the bookie takes no more entries."""
FIRST_LEDGER = 7_000
"""Those who attack speak of ledgers below, and 8,191 is the next number they like."""
FUZZED = 300
FLOOD_S = 600.0
"""At most; it ends when the query has gone on."""
AWAY_S = 120.0
FLOODS = sorted(set(KINDS) - {"large"})
"""All but the one that fills the disk of the whole machine."""


def has_tiny_disk(place: Path) -> bool:
    """Mount a disk there, if that is permitted here."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tiny", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path | None]:
    """The disk of the fourth bookie; ``None`` where nothing may be mounted."""
    place = tmp_path / "cluster" / "bookie3"
    is_mounted = has_tiny_disk(place)
    yield place if is_mounted else None
    if is_mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def four(tiny: Path | None, tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(4, directory=tmp_path / "cluster", bookie_settings=SMALL) as running:
        run_in_thread(use_up_ledger_ids(running.metadata_service_uri))
        yield running


async def use_up_ledger_ids(uri: str) -> None:
    store, root = await connect(uri)
    node = f"{Paths(root).idgen}/ID-"
    async with store:
        last = -1
        while last < FIRST_LEDGER - 1:
            draws = (store.sequence(node, b"", ephemeral=True) for _ in range(500))
            last = max(int(path.removeprefix(node)) for path in await asyncio.gather(*draws))


def state_of(bookie: LocalBookie) -> str:
    """As it is registered: writable, by what it is read-only, or nothing."""
    with BookKeeper(bookie.metadata_service_uri) as bk:
        for each in bk.bookies():
            if each.bookie_id == bookie.bookie_id:
                return "writable" if each.writable else each.readonly_by
    return ""


def bookkeeper(uri: str, *arguments: str) -> str:
    """What a command prints, whatever its exit code; in a process of its own, as gRPC wants it."""
    command = [sys.executable, "-m", "spark_bookkeeper.cli", *arguments]
    command += ["--metadata-service-uri", uri]
    return subprocess.run(
        command, env=child_environment(), stdout=subprocess.PIPE, check=False, text=True
    ).stdout


def be_killed(siege: Siege, bookie: LocalBookie) -> None:
    bookie.kill()
    siege.goes_on()
    bookie.start()
    siege.goes_on()


def be_full(siege: Siege, bookie: LocalBookie, tiny: Path | None) -> None:
    """Its disk, or where there is no tiny one, by hand: what its clients meet is the same."""
    if tiny is None:
        bookkeeper(bookie.metadata_service_uri, "bookies", "readonly", bookie.bookie_id)
    else:
        (tiny / "ballast").write_bytes(bytes(shutil.disk_usage(tiny).free - LEFT_FREE))
    wait_until(lambda: state_of(bookie) in ("disk", "hand"), "a full bookie")
    siege.goes_on()
    if tiny is None:
        bookkeeper(bookie.metadata_service_uri, "bookies", "writable", bookie.bookie_id)
    else:
        (tiny / "ballast").unlink()
    wait_until(lambda: state_of(bookie) == "writable", "room")
    assert bookie.is_running
    siege.goes_on()


def be_damaged(siege: Siege, bookie: LocalBookie) -> None:
    """Bits of every entry log flip while it is down."""
    bookie.stop()
    logs = [path for path in (bookie.directory / "ledgers").glob("*.log") if path.stat().st_size]
    assert logs
    for log in logs:
        size = log.stat().st_size
        with log.open("r+b") as file:
            for at in (size // 4, size // 2, 3 * size // 4):
                byte = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), at)
    siege.goes_on()
    bookie.start()
    siege.goes_on()
    siege.look()


def be_wiped(siege: Siege, bookie: LocalBookie) -> None:
    bookie.kill()
    for place in ("journal", "ledgers"):
        shutil.rmtree(bookie.directory / place)
    siege.goes_on()
    bookie.start(replace_lost_directories=True)
    siege.goes_on()
    siege.look()


def be_flooded(siege: Siege, bookie: LocalBookie) -> None:
    pid = bookie.pid
    make, answers = Mutator(seed=11), Answers()
    with connected(bookie, answers) as connection:
        for _ in range(FUZZED):
            connection.write([make.frame()])
            connection.read([make.mutated(make.read)])
            connection.ask("WriteLac", make.mutated(make.write_lac))
            connection.ask("ListEntries", make.mutated(make.list_entries))
            connection.write_and_go([make.frame()])
    siege.goes_on()
    with attacked(bookie, FLOOD_S, *FLOODS):
        siege.goes_on(4)
    assert bookie.pid == pid
    siege.goes_on()


def worse_than_missing(found: dict[str, Any], replaced: str) -> list[object]:
    """What ``verify`` found of a ledger, but for copies that are missing.

    The bookie that lost its disk does not say that it never had an entry: it may have had it.
    """
    errors = [found["error"]] if found["error"] is not None else []
    return errors + [
        each
        for each in found["defects"]
        if each["what"] not in ABSENT and (each["bookie_id"], each["what"]) != (replaced, "UNKNOWN")
    ]


def test_a_stream_rides_out_a_siege_of_its_bookies_and_its_log_is_complete(
    spark: SparkSession,
    four: LocalCluster,
    tiny: Path | None,
    log: str,
    tmp_path: Path,
) -> None:
    """What three copies bear without being copied anew is one bookie whose disk lost something: an entry
    is acknowledged by two, and which two chance decides. So the bookie that is damaged is the one that is
    wiped then, as the disk of a bookie that shows damage is replaced; blows that destroy nothing hit the
    others. There are four, so that each blow leaves three to write to.
    """
    killed, hurt, flooded, full = four.bookies
    with besieged(spark, four.metadata_service_uri, log, tmp_path / "query") as siege:
        be_killed(siege, killed)
        be_full(siege, full, tiny)
        be_damaged(siege, hurt)
        be_wiped(siege, hurt)
        be_flooded(siege, flooded)
        restart_one_by_one(four.bookies)
        siege.goes_on()
        siege.finish()

    restart_one_by_one(four.bookies)

    siege.check()
    out = bookkeeper(four.metadata_service_uri, "ledgers", "verify", "--log", log, "--json")
    verified = json.loads(out)["ledgers"]
    with BookKeeper(four.metadata_service_uri) as bk:
        assert len(verified) == len(bk.open_log(log).ledgers())
        for found in verified:
            assert worse_than_missing(found, hurt.bookie_id) == []
            if hurt.bookie_id not in bk.ledger_metadata(found["ledger_id"]).bookie_ids:
                assert found["below_ack_quorum"] == []


def test_a_rolling_restart_of_all_bookies_ends_no_query(
    spark: SparkSession, cluster: LocalCluster, log: str, tmp_path: Path
) -> None:
    """Three bookies, each stopped as soon as the one before serves, twice."""
    with besieged(spark, cluster.metadata_service_uri, log, tmp_path) as siege:
        for _ in range(2):
            restart_one_by_one(cluster.bookies)
            siege.goes_on()
        siege.finish()

    siege.check()


def test_a_bookie_away_for_two_minutes_ends_no_query(
    spark: SparkSession, cluster: LocalCluster, log: str, tmp_path: Path
) -> None:
    """One of three: its registration expires, and every new ledger holds its place."""
    away = cluster.bookies[0]
    with besieged(spark, cluster.metadata_service_uri, log, tmp_path) as siege:
        away.kill()
        try:
            back_s = time.monotonic() + AWAY_S
            while time.monotonic() < back_s:
                siege.goes_on()
            wait_until(lambda: state_of(away) == "", "the end of its registration")
        finally:
            away.start()
        siege.goes_on()
        siege.finish()

    siege.check()
