"""An operator ends a ledger that no recovery can end, since all of its bookies may have lost entries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.command_line import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.full]

SETTINGS = {"integrity_check_interval_ms": 200, "checkpoint_interval_ms": 500}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3, bookie_settings=SETTINGS) as running:
        yield running


def test_a_ledger_whose_bookies_lost_their_disks_is_ended_by_hand(
    bookkeeper: CommandLine, cluster: LocalCluster
) -> None:
    with BookKeeper(cluster.metadata_service_uri) as writing:
        writer = writing.create_ledger()
        writer.append_many([b"%d" % number for number in range(10)])
        ledger_id = writer.ledger_id
        first, second, third = cluster.bookies
        for lost in (first, second):
            lost.kill()
            for part in lost.directory.iterdir():
                if part.is_dir():
                    shutil.rmtree(part)
            lost.start(replace_lost_directories=True)
        third.kill()

        assert "could be fenced" in bookkeeper.refused("ledgers", "recover", ledger_id)
        silent = bookkeeper.refused("ledgers", "recover", ledger_id, "--accept-loss", "--yes")
        assert third.bookie_id in silent
        third.start()
        done = bookkeeper("ledgers", "recover", ledger_id, "--accept-loss", "--yes")

    # The third bookie is sound: nothing was lost after all.
    assert f"ledger {ledger_id} is closed; last entry 9" in done
    assert done.count("LIMBO") == 2
    assert third.bookie_id in done
    again = bookkeeper.json("ledgers", "recover", ledger_id, "--accept-loss", "--yes")
    assert again == {"ledger_id": ledger_id, "last_entry": 9}
