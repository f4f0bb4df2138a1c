"""Bookies that lost what they had, or part of it, get it back from the others: on real processes."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.messages import Status
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.bookie import LocalBookie
from tests.integration.command_line import CommandLine
from tests.patience import Deadline

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PAYLOADS = [b"%d" % number * 100 for number in range(200)]
SETTINGS = {
    "integrity_check_interval_ms": 200,
    "checkpoint_interval_ms": 500,
    "scrub_interval_ms": 1_000,
    "scrub_bytes_per_second": 1 << 30,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Without a bookie to spare: what one lacks can only come back to it."""
    with LocalCluster(3, autorecovery=True, bookie_settings=SETTINGS) as running:
        yield running


def write(bk: BookKeeper, ledgers: int) -> list[int]:
    ledger_ids = []
    for _ in range(ledgers):
        with bk.create_ledger() as writer:
            writer.append_many(PAYLOADS)
        ledger_ids.append(writer.ledger_id)
    return ledger_ids


def statuses(bookie: LocalBookie, ledger_ids: list[int]) -> set[Status]:
    """How the bookie lists these ledgers."""

    async def ask() -> set[Status]:
        client = GrpcBookieClient(bookie.bookie_id, bookie.bookie_id, ConnectionSettings())
        try:
            return {(await client.list_entries(each)).status for each in ledger_ids}
        finally:
            await client.close()

    return asyncio.run(ask())


def wait_until_whole(bookkeeper: CommandLine, ledger_ids: list[int]) -> None:
    """Until every replica has every entry, and can read it."""
    waited = Deadline(180)
    while bookkeeper.outcome("ledgers", "verify", *ledger_ids)[0]:
        assert not waited.has_passed
        time.sleep(0.5)


def test_a_bookie_on_new_disks_gets_back_what_it_had_and_answers_for_it(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    ledger_ids = write(bk, 20)
    wiped, other, _ = cluster.bookies

    wiped.kill()
    for part in wiped.directory.iterdir():
        if part.is_dir():
            shutil.rmtree(part)
    wiped.start(replace_lost_directories=True)
    wait_until_whole(bookkeeper, ledger_ids)

    waited = Deadline(60)
    while statuses(wiped, ledger_ids) != {Status.OK}:
        assert not waited.has_passed, "limbo did not end"
        time.sleep(0.1)
    # It is as good as the others: one of those may go, and a killed start changes nothing.
    wiped.kill()
    wiped.start()
    other.kill()
    for ledger_id in ledger_ids:
        with bk.open_ledger(ledger_id) as reader:
            assert [bytes(entry.payload) for entry in reader.read(0, 199)] == PAYLOADS
    other.start()


@pytest.mark.full
def test_a_thousand_flipped_bits_are_found_and_mended(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    ledger_ids = write(bk, 50)
    rotten, random = cluster.bookies[1], Random(1)
    rotten.stop()  # all of it is in entry logs then
    logs = sorted(rotten.directory.rglob("*.log"))
    for _ in range(1_000):
        path = random.choice(logs)
        with path.open("r+b") as file:
            size = path.stat().st_size
            # Beyond the header: what a reader would be given.
            at = random.randrange(4096, size) if size > 8192 else random.randrange(size // 2, size)
            file.seek(at)
            (before,) = file.read(1)
            file.seek(at)
            file.write(bytes([before ^ 1 << random.randrange(8)]))
    rotten.start()

    wait_until_whole(bookkeeper, ledger_ids)

    others = [bookie for bookie in cluster.bookies if bookie is not rotten]
    for bookie in others:
        bookie.kill()
    for ledger_id in ledger_ids:
        with bk.open_ledger(ledger_id) as reader:
            assert [bytes(entry.payload) for entry in reader.read(0, 199)] == PAYLOADS
    for bookie in others:
        bookie.start()


def test_verify_repairs_what_a_bookie_lacks_without_auto_recovery(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for by hand: a bookie was away while a ledger was written, and another ledger's block is damaged."""
    with LocalCluster(3, directory=tmp_path, bookie_settings=SETTINGS) as cluster:
        bookkeeper = CommandLine(cluster.metadata_service_uri, capfd, monkeypatch)
        with BookKeeper(cluster.metadata_service_uri) as bk:
            (damaged,) = write(bk, 1)
            away = cluster.bookies[2]
            away.stop()
            (held,) = write(bk, 1)
        log = max((away.directory / "ledgers").glob("*.log"), key=lambda path: path.stat().st_size)
        with log.open("r+b") as file:
            file.seek(log.stat().st_size // 2)
            file.write(bytes(64))
        away.start()
        before = bookkeeper.outcome("ledgers", "verify", damaged, held, "--json")

        after = bookkeeper.json("ledgers", "verify", damaged, held, "--repair")
        again = bookkeeper.json("ledgers", "verify", damaged, held)

    assert before[0] == 1
    found = {each["ledger_id"]: each for each in after["ledgers"]}
    assert found[held]["repaired"] == len(PAYLOADS)
    assert 0 < found[damaged]["repaired"] <= len(PAYLOADS)
    assert not any(each["defects"] or each["not_repaired"] for each in found.values())
    assert again["passed"]
    assert not any(each["defects"] for each in again["ledgers"])


def test_what_cannot_be_repaired_says_why(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    (ledger_id,) = write(bk, 1)
    cluster.bookies[0].kill()
    try:
        code, out, _ = bookkeeper.outcome("ledgers", "verify", ledger_id, "--repair")
    finally:
        cluster.bookies[0].start()

    assert code == 1  # it could not be asked
    assert "not repaired: " in out
