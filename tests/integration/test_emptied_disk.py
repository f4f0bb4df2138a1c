"""A bookie whose disk was emptied denies nothing it may once have acknowledged: real processes."""

from __future__ import annotations

import shutil

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import BookKeeperError

pytestmark = pytest.mark.integration


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
        for place in ("journal", "ledgers"):
            shutil.rmtree(emptied.directory / place)
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
