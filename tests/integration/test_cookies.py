"""A bookie and its disks, by the command line of an operator: real processes, real ZooKeeper."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bookie_server.settings import REPLACE_FLAG
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.connect import connect
from spark_bookkeeper import LocalCluster
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.errors import LocalStartError
from spark_bookkeeper.local.ports import free_port
from tests.integration.command_line import CommandLine
from tests.integration.processes import eventually, start_again
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_every_bookie_has_a_cookie_that_counts_its_starts(
    cluster: LocalCluster, bookkeeper: CommandLine
) -> None:
    bookie = cluster.bookies[0]
    before = bookkeeper.json("cookies", "show", bookie.bookie_id)
    bookie.kill()
    start_again(bookie)

    after = bookkeeper.json("cookies", "show", bookie.bookie_id)
    counted = {"starts": before["starts"] + 1, "collections": after["collections"]}
    assert after == {**before, **counted}
    assert after["ledger_directories"] == [str(bookie.directory / "ledgers")]
    assert after["journal_directories"] == [str(bookie.directory / "journal")]
    listed = bookkeeper.json("cookies", "list")["cookies"]
    assert [each["bookie_id"] for each in listed] == sorted(b.bookie_id for b in cluster.bookies)
    assert bookie.bookie_id in bookkeeper("cookies", "list")
    assert "starts" in bookkeeper("cookies", "show", bookie.bookie_id)


def test_a_running_bookie_and_an_unknown_one_are_not_forgotten(
    cluster: LocalCluster, bookkeeper: CommandLine
) -> None:
    running = cluster.bookies[1].bookie_id

    assert "BK_BOOKIE_RUNNING" in bookkeeper.refused("cookies", "delete", running, "--yes")
    for command in ("show",), ("delete", "--yes"), ("accept", "--yes"):
        err = bookkeeper.refused("cookies", *command, "10.9.8.7:1")
        assert err.startswith("BK_NO_SUCH_COOKIE: ")
        assert "10.9.8.7:1" in err


def test_a_bookie_that_ledgers_name_is_forgotten_only_by_force(
    cluster: LocalCluster, bookkeeper: CommandLine
) -> None:
    bookie = cluster.add_bookie()
    ledger_id = bookkeeper.json(
        "ledgers", "create", "--ensemble-size", 4, "--write-quorum", 4, "--ack-quorum", 1
    )["ledger_id"]
    bookie.stop()

    err = bookkeeper.refused("cookies", "delete", bookie.bookie_id, "--yes")
    kept = bookkeeper.json("cookies", "show", bookie.bookie_id)
    bookkeeper("cookies", "delete", bookie.bookie_id, "--yes", "--force")

    assert err.startswith("BK_BOOKIE_IN_USE: ")
    assert "--force" in err
    assert err.endswith("ledgers=1\n")
    assert kept["bookie_id"] == bookie.bookie_id
    assert "BK_NO_SUCH_COOKIE" in bookkeeper.refused("cookies", "show", bookie.bookie_id)
    bookkeeper("ledgers", "delete", ledger_id, "--yes")


def test_a_cookie_that_cannot_be_read_is_listed_and_deleted(bookkeeper: CommandLine) -> None:
    """`cookies list` failed as a whole, and nothing but ZooKeeper's own tools could delete it."""

    async def damage() -> None:
        store, root = await connect(bookkeeper.uri)
        async with store:
            await store.create(Paths(root).cookie("damaged:1"), b"7\nno cookie")

    asyncio.run(damage())

    listed = {each["bookie_id"]: each for each in bookkeeper.json("cookies", "list")["cookies"]}
    assert "not a cookie" in listed["damaged:1"]["damage"]
    assert {each["damage"] for each in listed.values()} > {None}
    assert "not a cookie" in bookkeeper("cookies", "list")
    assert bookkeeper.refused("cookies", "show", "damaged:1").startswith("BK_METADATA_CORRUPT: ")
    bookkeeper("cookies", "delete", "damaged:1", "--yes")
    assert "damaged:1" not in bookkeeper("cookies", "list")


def test_disks_of_two_bookies_that_were_swapped_start_neither(cluster: LocalCluster) -> None:
    one, other = cluster.bookies[1], cluster.bookies[2]
    for bookie in (one, other):
        bookie.stop()
    swap = one.directory / "aside"
    (one.directory / "ledgers").rename(swap)
    (other.directory / "ledgers").rename(one.directory / "ledgers")
    swap.rename(other.directory / "ledgers")

    for bookie, owner in (one, other), (other, one):
        with pytest.raises(LocalStartError, match=f"{owner.bookie_id} made it"):
            bookie.start()

    (one.directory / "ledgers").rename(swap)
    (other.directory / "ledgers").rename(one.directory / "ledgers")
    swap.rename(other.directory / "ledgers")
    one.start()
    other.start()


def test_a_bookie_from_an_old_copy_of_its_disks_does_not_start(
    cluster: LocalCluster, bookkeeper: CommandLine
) -> None:
    bookie = cluster.bookies[0]
    bookie.stop()
    snapshot = bookie.directory / "snapshot"
    for place in ("journal", "ledgers"):
        shutil.copytree(bookie.directory / place, snapshot / place)
    bookie.start()
    bookie.stop()
    for place in ("journal", "ledgers"):
        (bookie.directory / place).rename(bookie.directory / f"newest-{place}")
        (snapshot / place).rename(bookie.directory / place)

    with pytest.raises(LocalStartError, match="old copy"):
        bookie.start()

    for place in ("journal", "ledgers"):
        shutil.rmtree(bookie.directory / place)
        (bookie.directory / f"newest-{place}").rename(bookie.directory / place)
    bookie.start()


def test_a_second_process_under_the_same_id_ends_the_first(tmp_path: Path) -> None:
    """What the first went on to acknowledge the second, on directories of its own, would deny."""
    with LocalCluster(bookies=1) as cluster, (tmp_path / "log").open("wb") as log:
        (first,) = cluster.bookies
        flags = {
            "--bookie-id": first.bookie_id,
            "--port": free_port(set()),
            "--metadata-service-uri": cluster.metadata_service_uri,
            "--journal-directories": tmp_path / "journal",
            "--ledger-directories": tmp_path / "ledgers",
        }
        words = [str(word) for flag in flags.items() for word in flag]
        second = subprocess.Popen(
            [sys.executable, "-m", "bookie_server", REPLACE_FLAG, *words],
            env=child_environment(),
            stderr=log,
        )
        try:
            assert eventually(lambda: first.has_died, timeout_s=30)
            assert first.exit_code == 1
            ready = tmp_path / "log"
            assert eventually(lambda: "bookie ready" in ready.read_text(), timeout_s=60)
            with pytest.raises(LocalStartError, match=r"old copy|other directories"):
                first.start()
        finally:
            second.kill()
            second.wait()


def test_a_start_that_waits_ends_at_the_first_signal() -> None:
    """It waits for the session of a killed predecessor before it looks at the metadata."""
    with LocalCluster(bookies=1) as cluster:
        (bookie,) = cluster.bookies
        bookie.kill()
        for place in ("journal", "ledgers"):
            shutil.rmtree(bookie.directory / place)
        bookie.spawn(replace_lost_directories=True)

        def log_says(words: str) -> bool:
            _, replaced, after = bookie.log_path.read_text().rpartition("directory is replaced")
            return bool(replaced) and words in after

        assert eventually(lambda: log_says("storage open"), timeout_s=30)
        bookie.begin_stop()

        assert eventually(lambda: not bookie.is_running, timeout_s=seconds(3))
        assert log_says("bookie stopped before it was ready")
