"""A bookie whose disk was emptied denies nothing it may once have acknowledged: real processes."""

from __future__ import annotations

import shutil

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import BookKeeperError
from spark_bookkeeper.local.bookie import LocalBookie

pytestmark = pytest.mark.integration


def empty(bookie: LocalBookie) -> None:
    """Take the disk away: journal and ledgers, not the log."""
    for place in bookie.directory.iterdir():
        if place.is_dir():
            shutil.rmtree(place)


def test_recovery_does_not_close_below_what_the_emptied_bookie_acknowledged() -> None:
    """Before, the ledger was closed at -1 although the bookie that was away had all of it."""
    # given entries that two of three bookies acknowledged, the third being down
    with LocalCluster(bookies=3) as cluster:
        emptied, away, missed = cluster.bookies
        with BookKeeper(cluster.metadata_service_uri) as bk:
            writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
            missed.kill()
            payloads = [b"%d" % number for number in range(5)]
            for payload in payloads:
                writer.append(payload)
            ledger_id = writer.ledger_id

            # when one of the two comes back on empty directories, and the other is away
            emptied.kill()
            empty(emptied)
            emptied.start()
            missed.start()
            away.kill()

            # then nobody can tell that the entries were never acknowledged
            with BookKeeper(cluster.metadata_service_uri) as other:
                with pytest.raises(BookKeeperError):
                    other.open_ledger(ledger_id, recovery=True)
                assert not other.ledger_metadata(ledger_id).is_closed

                # and once the one that has them returns, all of them are there
                away.start()
                reader = other.open_ledger(ledger_id, recovery=True)
                assert reader.last_add_confirmed == len(payloads) - 1
                assert [bytes(e.payload) for e in reader.read(0, 4)] == payloads
