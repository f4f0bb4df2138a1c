"""Bookies die under writers, one by one and all at once, and nothing acknowledged is lost.

Real processes, real disks, SIGKILL; what is killed how, and what is looked at afterwards, is in
``crash_campaign.py``, which ``make soak`` runs with 400 kills.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.crash_campaign import Campaign, OneLedger, payload, reports
from tests.integration.processes import paused

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=3) as running:
        yield running


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(8, 1), pytest.param(100, 2, marks=[pytest.mark.full, pytest.mark.timeout(3600)])],
)
def test_sigkills_under_load_lose_nothing_acknowledged(
    cluster: LocalCluster, kills: int, seed: int
) -> None:
    """The whole story: load, kills, and the comparison of every replica of every entry."""
    campaign = Campaign(cluster, seed)

    campaign.run(kills)

    assert campaign.kills >= kills
    assert campaign.acknowledged > 0
    assert campaign.lost == 0


def test_a_paused_bookie_only_delays(cluster: LocalCluster, bk: BookKeeper) -> None:
    with bk.create_ledger() as writer, paused(cluster.bookies[:1]):
        ids = writer.append_many([payload(i) for i in range(1000)])

    assert ids == range(1000)
    with bk.open_ledger(writer.ledger_id) as reader:
        assert sum(1 for _ in reader.read(0, 999)) == 1000


def test_sigterm_answers_what_was_admitted_and_loses_nothing(cluster: LocalCluster) -> None:
    load = OneLedger(cluster.metadata_service_uri)
    try:
        assert load.grows(), load.errors
        for bookie in cluster.bookies:
            bookie.stop()
            bookie.spawn()
        assert load.grows(), load.errors
    finally:
        load.stop()

    assert load.errors == []
    (written,) = load.ledgers
    with BookKeeper(cluster.metadata_service_uri) as bk:
        assert all(not r.below_ack_quorum for r in reports(bk, written.ledger_id))
