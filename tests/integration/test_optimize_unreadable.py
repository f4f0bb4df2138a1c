"""A bookie is away with the only copy of some ledgers: optimize rewrites the others, and those later."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.log.format.model import LogSettings
from tests.integration.command_line import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.full]

LOG = "single-copies"
RANGES = 12


def test_ledgers_that_nobody_serves_keep_no_others_from_a_rewrite(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    single = LogSettings(ensemble_size=1, write_quorum=1, ack_quorum=1, payload_format="raw")
    log = bk.create_log(LOG, settings=single)
    for number in range(RANGES):
        with log.writer() as writer:
            writer.append(b"%d" % number)
    before = [(position.row, bytes(entry.payload)) for position, entry in log.reader()]
    written = [item.ledger_id for item in log.ledgers()]
    holders = [bk.ledger_metadata(ledger_id).fragments[0].ensemble[0] for ledger_id in written]
    # One that leaves two neighbours, which are what can be rewritten, and has something itself.
    away = next(
        bookie
        for bookie in cluster.bookies
        if bookie.bookie_id in holders
        and any(bookie.bookie_id not in pair for pair in pairwise(holders))
    )
    held = {id for id, holder in zip(written, holders, strict=True) if holder == away.bookie_id}
    assert 0 < len(held) < RANGES
    # Behind one that cannot be read the last one is a single range, which is not to be rewritten.
    is_last_alone = held.issuperset(written[-2:])

    away.stop()
    code, out, err = bookkeeper.outcome("logs", "optimize", LOG, "--min-ranges", 2, "--json")

    assert code == 1, err
    report = json.loads(out)
    assert len(report["failures"]) == len(held) - is_last_alone
    assert all("BK_ENTRY_UNREADABLE" in line for line in report["failures"])
    left = {item.ledger_id for item in log.ledgers()}
    assert held < left
    assert len(left) < RANGES

    away.start()
    assert bookkeeper.json("logs", "optimize", LOG, "--min-ranges", 2)["failures"] == []
    assert len(log.ledgers()) < len(left)
    assert [(position.row, bytes(entry.payload)) for position, entry in log.reader()] == before
