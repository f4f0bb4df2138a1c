"""Bookies that lost what they had, or part of it, get it back from the others: on real processes."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
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

    for bookie in cluster.bookies:
        if bookie is not rotten:
            bookie.kill()
    for ledger_id in ledger_ids:
        with bk.open_ledger(ledger_id) as reader:
            assert [bytes(entry.payload) for entry in reader.read(0, 199)] == PAYLOADS
