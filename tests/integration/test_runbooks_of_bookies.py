"""The runbooks of bookies, each in the situation it is for: one lost, added, retired, all restarted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from tests.integration.operated import (
    PAYLOADS,
    assert_all_can_be_read,
    assert_whole_without,
    facts_of,
    lose,
    states,
    write_ledger,
)
from tests.integration.processes import command
from tests.integration.runbooks import Walk

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.full]

SETTINGS = {"integrity_check_interval_ms": 200}
"""Limbo is looked at every ten seconds otherwise."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Of as many bookies as the test asks for."""
    with LocalCluster(request.param, bookie_settings=SETTINGS) as running:
        yield running


@pytest.fixture
def ledger_ids(bk: BookKeeper) -> list[int]:
    """What was written before anything happened."""
    return [write_ledger(bk) for _ in range(10)]


@pytest.mark.parametrize("cluster", [4], indirect=True)
@pytest.mark.parametrize("is_healed", [True, False], ids=["auto-recovery", "by hand"])
def test_a_bookie_that_is_lost_for_good_is_forgotten_once_nothing_names_it(
    cluster: LocalCluster, bk: BookKeeper, ledger_ids: list[int], tmp_path: Path, is_healed: bool
) -> None:
    lost, uri = cluster.bookies[0], cluster.metadata_service_uri
    if is_healed:
        cluster.start_auto_recovery(0)
    with Walk("A bookie is lost for good", uri, tmp_path, **facts_of(lost)) as walk:
        lose(lost)
        assert "away: it has a cookie, and no process" in walk.do("look")
        watched = walk.do("watch")
        assert "auditor" in watched
        assert f"ledgers name {lost.bookie_id}" in watched
        if not is_healed:
            assert "nothing is left on it" in walk.do("recover")
        assert f"forgot {lost.bookie_id}" in walk.do("forget")
        assert lost.bookie_id not in walk.do("done")

    assert_whole_without(bk, uri, ledger_ids, lost.bookie_id)


@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_a_bookie_gets_back_on_new_disks_what_it_had(
    cluster: LocalCluster, bk: BookKeeper, ledger_ids: list[int], tmp_path: Path
) -> None:
    lost, uri = cluster.bookies[0], cluster.metadata_service_uri
    cluster.start_auto_recovery(0)
    with Walk("A bookie is lost for good", uri, tmp_path, **facts_of(lost)) as walk:
        lose(lost)
        walk.begin("replace")
        assert "away" not in walk.do("done")
        # It is as good as the others: without one of them all is read.
        cluster.bookies[1].kill()
        assert_all_can_be_read(bk, ledger_ids)


@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_a_bookie_is_added_and_takes_new_ledgers(
    cluster: LocalCluster, bk: BookKeeper, ledger_ids: list[int], tmp_path: Path
) -> None:
    uri, taken, settings = cluster.metadata_service_uri, set[int](), tmp_path / "bookie.toml"
    ports = {name: free_port(taken) for name in ("PORT", "SOCKET_PORT", "RPC_PORT", "HTTP_PORT")}
    new = {"BOOKIE": f"{LOOPBACK}:{ports['PORT']}", **ports}
    with Walk(
        "Add a bookie", uri, tmp_path, **new, DISK=tmp_path / "disk", CONFIG=settings
    ) as walk:
        walk.save("settings", settings)
        walk.begin("start")
        assert f"bookie {new['BOOKIE']}: writable" in walk.do("done")
        with bk.create_ledger(ensemble_size=4, write_quorum=4, ack_quorum=4) as writer:
            assert writer.append(b"on all four") == 0
        assert_all_can_be_read(bk, ledger_ids)


@pytest.mark.parametrize("cluster", [4], indirect=True)
def test_a_bookie_is_retired_and_no_ledger_has_fewer_copies(
    cluster: LocalCluster, bk: BookKeeper, ledger_ids: list[int], tmp_path: Path
) -> None:
    retired, uri = cluster.bookies[2], cluster.metadata_service_uri
    with Walk("Retire a bookie", uri, tmp_path, **facts_of(retired)) as walk:
        assert f"ledgers name {retired.bookie_id}" in walk.do("look")
        assert "nothing is left on it" in walk.do("decommission")
        assert command(uri, "ledgers", "verify", "--all")["passed"]
        assert f"forgot {retired.bookie_id}" in walk.do("stop")
        assert retired.bookie_id not in walk.do("done")

    assert_whole_without(bk, uri, ledger_ids, retired.bookie_id)


@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_bookies_are_restarted_one_at_a_time_under_a_writer(
    cluster: LocalCluster, bk: BookKeeper, ledger_ids: list[int], tmp_path: Path
) -> None:
    uri, healer = cluster.metadata_service_uri, cluster.start_auto_recovery(0)
    writer = bk.create_ledger()
    with Walk("Restart bookies, one at a time", uri, tmp_path) as walk:
        walk.do("look")
        assert "disabled" in walk.do("disable")
        for number, bookie in enumerate(cluster.bookies):
            facts = facts_of(bookie)
            writer.append(PAYLOADS[3 * number])
            walk.do("stop", **facts)
            writer.append(PAYLOADS[3 * number + 1])
            assert "a start would go on with them" in walk.do("check", **facts)
            walk.begin("start", **facts)
            assert '"is_registered": true' in walk.do("ready", **facts)
            writer.append(PAYLOADS[3 * number + 2])
        assert "ledgers of lost bookies marked" not in healer.log_path.read_text(encoding="utf-8")
        writer.close()
        walk.do("done")

        assert set(states(uri).values()) == {"writable"}
        assert_all_can_be_read(bk, ledger_ids)
        with bk.open_ledger(writer.ledger_id) as reader:
            assert [bytes(entry.payload) for entry in reader.read(0, 8)] == PAYLOADS[:9]
