"""Bookies that die under a writer and do not come back, or without their disks: real processes."""

from __future__ import annotations

import shutil
import threading

import pytest

from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.errors import BookKeeperError, LedgerRecoveryError, NotEnoughBookiesError
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.errors import LocalStartError
from tests.integration.processes import end_session, eventually, start_again
from tests.patience import seconds

pytestmark = pytest.mark.integration


def lose(cluster: LocalCluster, writer: WriteHandle) -> str:
    """Kill a bookie of the writer's ensemble."""
    bookie_id = writer.metadata.last_fragment.ensemble[0]
    next(b for b in cluster.bookies if b.bookie_id == bookie_id).kill()
    return bookie_id


def empty(bookie: LocalBookie) -> None:
    """Take its directories away, as a new disk in the place of the old one."""
    for place in ("journal", "ledgers"):
        shutil.rmtree(bookie.directory / place)


@pytest.mark.slow
def can_recover(bk: BookKeeper, ledger_id: int) -> bool:
    """Whether all are there that it takes; one just started may be out of reach for a moment."""
    try:
        bk.open_ledger(ledger_id, recovery=True)
    except LedgerRecoveryError:
        return False
    return True


def test_a_writer_a_tail_and_a_recovery_go_on_without_two_of_five() -> None:
    """W14, D8, R7 end to end; AQ = 3, so that each loss needs a replacement."""
    with LocalCluster(bookies=5) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
        writer = bk.create_ledger(ack_quorum=3)
        followed: list[bytes] = []

        def follow() -> None:
            with BookKeeper(cluster.metadata_service_uri) as other:
                for entry in other.open_ledger(writer.ledger_id).tail(0):
                    followed.append(bytes(entry.payload))

        follower = threading.Thread(target=follow)
        follower.start()
        lost: list[str] = []
        for round_number in range(3):
            if round_number > 0:
                lost.append(lose(cluster, writer))
            futures = [
                writer.append_async(b"%d-%d" % (round_number, number)) for number in range(2_000)
            ]
            futures.append(writer.append_async(b"end of round"))
            for future in futures:
                future.result(seconds(60))

        assert len(set(lost)) == 2
        assert not set(lost) & set(writer.metadata.last_fragment.ensemble)
        with BookKeeper(cluster.metadata_service_uri) as other:
            reader = other.open_ledger(writer.ledger_id, recovery=True)
            read = [bytes(e.payload) for e in reader.read(0, reader.last_add_confirmed)]
        follower.join(seconds(60))

        rounds = [[b"%d-%d" % (r, n) for n in range(2_000)] + [b"end of round"] for r in range(3)]
        expected = [payload for entries in rounds for payload in entries]
        assert read == expected
        assert followed == expected


@pytest.mark.slow
def test_a_dead_bookie_of_three_stops_no_new_ledger() -> None:
    """docs/failures.md: three bookies, an ensemble of three, and one of them stays away."""
    with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
        writer = bk.create_ledger()
        writer.append(b"before")
        cluster.bookies[0].kill()

        dead = cluster.bookies[0].bookie_id

        def has_expired() -> bool:
            with BookKeeper(cluster.metadata_service_uri) as other:
                return dead not in [bookie.bookie_id for bookie in other.bookies()]

        # Before, too, one is created: its writer finds out by itself.
        with bk.create_ledger() as early:
            assert early.append(b"early") == 0
        end_session(cluster.metadata_service_uri, dead)
        assert eventually(has_expired, timeout_s=60)
        assert writer.append(b"after") == 1
        writer.close()
        with bk.create_ledger() as held:
            assert held.append(b"meanwhile") == 0
            assert dead in held.metadata.last_fragment.ensemble

        # With one more gone nothing can be acknowledged; what is there is there.
        cluster.bookies[1].kill()
        end_session(cluster.metadata_service_uri, cluster.bookies[1].bookie_id)
        impatient = ClientSettings(bookie_wait_timeout_ms=1)
        with BookKeeper(cluster.metadata_service_uri, settings=impatient) as other:
            assert eventually(lambda: len(other.bookies()) == 1, timeout_s=60)
            with pytest.raises(NotEnoughBookiesError, match="away"):
                other.create_ledger()
        cluster.bookies[0].start()
        reader = bk.open_ledger(held.ledger_id)
        assert [bytes(e.payload) for e in reader.read(0, 0)] == [b"meanwhile"]
        bk.create_ledger().close()


@pytest.mark.slow
@pytest.mark.parametrize("bookies", [3, 4])
def test_a_ledger_begun_on_a_bookie_that_just_died_goes_on(bookies: int) -> None:
    """Its registration outlives it by seconds; every member is needed for an acknowledgement.

    With a fourth bookie that one takes its place; without, the writer waits until it is back.
    """
    with (
        LocalCluster(bookies=bookies) as cluster,
        BookKeeper(cluster.metadata_service_uri) as bk,
    ):
        dead = cluster.bookies[0]
        dead.kill()
        writer = bk.create_ledger(ack_quorum=3)
        while dead.bookie_id not in writer.metadata.last_fragment.ensemble:
            writer.close()
            writer = bk.create_ledger(ack_quorum=3)
        assert dead.bookie_id in [bookie.bookie_id for bookie in bk.bookies()]

        first = writer.append_async(b"0")
        if bookies == 3:
            start_again(dead)

        assert first.result(seconds(60)) == 0
        assert writer.append(b"1") == 1
        assert (dead.bookie_id in writer.metadata.last_fragment.ensemble) == (bookies == 3)
        writer.close()
        reader = bk.open_ledger(writer.ledger_id)
        assert [bytes(e.payload) for e in reader.read(0, 1)] == [b"0", b"1"]


@pytest.mark.slow
def test_a_bookie_that_comes_back_empty_ends_no_writer() -> None:
    """Before, it answered FENCED, which ended a writer that nobody had fenced."""
    with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
        emptied, *others = cluster.bookies
        writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        writer.append(b"before")
        emptied.kill()
        empty(emptied)
        start_again(emptied, replace_lost_directories=True)

        for number in range(20):
            writer.append(b"%d" % number)
        # A ledger that is new to it is as welcome there as anywhere.
        with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) as newer:
            newer.append(b"by all three")
        writer.close()

        for bookie in others:
            bookie.kill()
        # It denies nothing and has taken nothing: the entries are with the other two.
        with pytest.raises(BookKeeperError, match="UNKNOWN"):
            list(bk.open_ledger(writer.ledger_id).read(0, 0))
        for bookie in others:
            start_again(bookie)
        read = [bytes(e.payload) for e in bk.open_ledger(writer.ledger_id).read(0, 20)]
        assert read == [b"before", *(b"%d" % number for number in range(20))]


def test_recovery_does_not_close_below_what_the_emptied_bookie_acknowledged() -> None:
    """Before, the ledger was closed at -1 although the bookie that was away had all of it."""
    # given entries that two of three bookies acknowledged, the third being down
    with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
        emptied, away, missed = cluster.bookies
        writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        missed.kill()
        payloads = [b"%d" % number for number in range(5)]
        for payload in payloads:
            writer.append(payload)
        ledger_id = writer.ledger_id

        # when one of the two comes back on empty directories, and the other is away
        emptied.kill()
        empty(emptied)
        with pytest.raises(LocalStartError, match="--replace-lost-directories"):
            emptied.start()
        start_again(emptied, replace_lost_directories=True)
        start_again(missed)
        away.kill()

        # then nobody can tell that the entries were never acknowledged
        with BookKeeper(cluster.metadata_service_uri) as other:
            with pytest.raises(BookKeeperError):
                other.open_ledger(ledger_id, recovery=True)
            assert not other.ledger_metadata(ledger_id).is_closed

            # and once the one that has them returns, all of them are there
            start_again(away)
            assert eventually(lambda: can_recover(other, ledger_id))
            reader = other.open_ledger(ledger_id)
            assert reader.last_add_confirmed == len(payloads) - 1
            assert [bytes(e.payload) for e in reader.read(0, 4)] == payloads
