"""Tailing a real cluster: the synchronous face, a paused bookie, a restarted one, an interrupted reader."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.processes import eventually, paused, start_again
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.zookeeper, pytest.mark.slow]


class Reader(threading.Thread):
    """Tails a ledger from its first entry on, with a client of its own."""

    def __init__(self, uri: str, ledger_id: int) -> None:
        super().__init__(daemon=True)
        self.seen: list[bytes] = []
        self.error: BaseException | None = None
        self._uri = uri
        self._ledger_id = ledger_id
        self.start()

    def run(self) -> None:
        with BookKeeper(self._uri) as client, client.open_ledger(self._ledger_id) as reader:
            for entry in reader.tail(0):
                self.seen.append(bytes(entry.payload))

    def has(self, count: int) -> bool:
        return eventually(lambda: len(self.seen) >= count, timeout_s=20)


def test_a_tail_keeps_up_with_a_writer_and_ends_with_it(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    with bk.create_ledger() as writer:
        reader = Reader(cluster.metadata_service_uri, writer.ledger_id)
        for number in range(20):
            writer.append(b"%d" % number)
            assert reader.has(number + 1)  # without waiting for the next entry
        writer.append_many([b"%d" % number for number in range(20, 2_000)])
        assert reader.has(2_000)
    reader.join(seconds(20))

    assert not reader.is_alive()
    assert reader.seen == [b"%d" % number for number in range(2_000)]


def test_a_tail_goes_on_beside_a_paused_bookie_and_a_killed_one(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    with bk.create_ledger() as writer:
        reader = Reader(cluster.metadata_service_uri, writer.ledger_id)
        writer.append(b"0")
        assert reader.has(1)
        for number, bookie in enumerate(cluster.bookies, start=1):
            with paused([bookie]):
                writer.append(b"%d" % number)
                assert reader.has(number + 1)
        cluster.bookies[0].kill()
        try:
            writer.append(b"4")
            assert reader.has(5)
        finally:
            start_again(cluster.bookies[0])
    reader.join(seconds(20))

    assert reader.seen == [b"0", b"1", b"2", b"3", b"4"]


def test_an_interrupted_tail_leaves_a_client_that_works(bk: BookKeeper) -> None:
    with bk.create_ledger() as writer:
        writer.append(b"x")
        reader = bk.open_ledger(writer.ledger_id)
        entries = reader.tail(0)
        assert bytes(next(entries).payload) == b"x"
        # A shell starts what it puts into the background with SIGINT ignored.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                next(entries)
        finally:
            interrupt.join()
            signal.signal(signal.SIGINT, handler)
        assert [bytes(e.payload) for e in reader.tail(0, timeout=seconds(0.2))] == [b"x"]
        assert [bytes(e.payload) for e in reader.read_unconfirmed(0, 0)] == [b"x"]


def test_a_tail_that_is_left_early_holds_nothing_up(bk: BookKeeper) -> None:
    with bk.create_ledger() as writer:
        writer.append_many([b"x"] * 10)
        reader = bk.open_ledger(writer.ledger_id)

        for entry in reader.tail(0):
            if entry.entry_id == 3:
                break

        assert reader.read_last_add_confirmed() >= 3
