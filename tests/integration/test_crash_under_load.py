"""Bookies die under a writer, one by one and all at once, and nothing acknowledged is lost.

Real processes, real disks, SIGKILL. The writer keeps its bookies through their restarts: what was
not answered is sent again, and a bookie stores an entry once.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator

import pytest

from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.ledger.verify import EntryReport, verify_ledger
from spark_bookkeeper.local.bookie import wait_until_serving
from tests.integration.processes import eventually, paused
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PATIENT = ClientSettings(
    connection=ConnectionSettings(add_timeout_ms=120_000, reconnect_timeout_ms=60_000)
)
"""A writer that waits for a bookie to come back rather than give it up."""


def payload(number: int) -> bytes:
    """Content that no other entry has, of a size that varies from 0 to 6 KiB."""
    seed = hashlib.sha256(b"%d" % number).digest()
    return (b"%d " % number) + seed * (number % 200)


class Load:
    """A thread that appends until stopped, and what was acknowledged to it."""

    def __init__(self, writer: WriteHandle) -> None:
        self._writer = writer
        self._is_stopping = threading.Event()
        self.errors: list[Exception] = []
        self._thread = threading.Thread(target=self._append, name="load")
        self._thread.start()

    def _append(self) -> None:
        number = 0
        try:
            while not self._is_stopping.is_set():
                futures = [self._writer.append_async(payload(number + i)) for i in range(50)]
                number += len(futures)
                for expected, future in enumerate(futures, number - 50):
                    assert future.result(timeout=seconds(100)) == expected
        except (BookKeeperError, AssertionError, TimeoutError) as error:
            self.errors.append(error)

    def grows(self) -> bool:
        """Whether more is acknowledged soon."""
        before = self._writer.last_add_confirmed
        return eventually(lambda: self._writer.last_add_confirmed > before + 200, timeout_s=60)

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()


def reports(bk: BookKeeper, ledger_id: int) -> list[EntryReport]:
    async def collect() -> list[EntryReport]:
        return [report async for report in verify_ledger(ledgers, ledger_id)]

    ledgers = bk.ledger_client
    return bk.run(collect())


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=3) as running:
        yield running


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(8, 1), pytest.param(50, 2, marks=[pytest.mark.full, pytest.mark.timeout(1200)])],
)
def test_sigkills_under_load_lose_nothing_acknowledged(
    cluster: LocalCluster, kills: int, seed: int
) -> None:
    """The whole story: load, kills, and the comparison of every replica of every entry."""
    choose = random.Random(seed)
    with BookKeeper(cluster.metadata_service_uri, settings=PATIENT) as bk:
        writer = bk.create_ledger()
        load = Load(writer)
        try:
            done = 0
            while done < kills:
                assert load.grows(), load.errors
                victims = choose.choice([cluster.bookies, [choose.choice(cluster.bookies)]])
                for bookie in victims:
                    bookie.kill()
                for bookie in victims:
                    bookie.spawn()
                done += len(victims)
            assert load.grows(), load.errors
        finally:
            load.stop()
        assert load.errors == []
        acknowledged = writer.last_add_confirmed
        writer.close()

        with bk.open_ledger(writer.ledger_id) as reader:
            assert reader.last_add_confirmed == acknowledged
            for entry in reader.read(0, acknowledged):
                assert entry.payload == payload(entry.entry_id)
        wait_until_serving(cluster.bookies)
        for report in reports(bk, writer.ledger_id):
            assert report.below_ack_quorum == ()
            assert {defect.what for defect in report.defects} <= {"NO_ENTRY"}


def test_a_paused_bookie_only_delays(cluster: LocalCluster, bk: BookKeeper) -> None:
    with bk.create_ledger() as writer, paused(cluster.bookies[:1]):
        ids = writer.append_many([payload(i) for i in range(1000)])

    assert ids == range(1000)
    with bk.open_ledger(writer.ledger_id) as reader:
        assert sum(1 for _ in reader.read(0, 999)) == 1000


def test_sigterm_answers_what_was_admitted_and_loses_nothing(cluster: LocalCluster) -> None:
    with BookKeeper(cluster.metadata_service_uri, settings=PATIENT) as bk:
        writer = bk.create_ledger()
        load = Load(writer)
        assert load.grows()
        for bookie in cluster.bookies:
            bookie.stop()
            bookie.spawn()
        assert load.grows(), load.errors
        load.stop()
        writer.close()

        assert load.errors == []
        assert all(not r.below_ack_quorum for r in reports(bk, writer.ledger_id))
