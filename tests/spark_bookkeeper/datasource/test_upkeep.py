"""Those who write a log have it cleaned: behind their commits, now and then, never in their way."""

from __future__ import annotations

import logging

import pytest

from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.datasource.write import upkeep
from tests.spark_bookkeeper.datasource.rows import ids
from tests.spark_bookkeeper.datasource.streaming import append, overwrite
from tests.spark_bookkeeper.datasource.world import FakeSpark

HOUR_MS = 3_600_000


def test_what_was_overwritten_goes_without_an_operator(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(world, 1, 1)
    overwrite(world, 2, 1)
    world.run_unattended()
    assert len(world.client.ledgers) == 2
    world.now_ms += HOUR_MS
    monkeypatch.setattr(upkeep, "COLLECT_INTERVAL_S", 0.0)

    append(world, 3, 1)
    world.run_unattended()

    assert ids(world.read()) == [2, 3]
    assert len(world.client.ledgers) == 2


def test_a_log_loses_what_its_retention_lets_go_behind_its_commits(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "COLLECT_INTERVAL_S", 0.0)
    append(world, 1, 1, retentiontime="2h", deletedledgerretention="1h")
    # Later writes keep what the log was made with.
    append(world, 2, 1, retentiontime="1d", deletedledgerretention="1h")
    world.run_unattended()
    assert ids(world.read()) == [1, 2]
    world.now_ms += 3 * HOUR_MS

    append(world, 3, 1, deletedledgerretention="1h")
    world.run_unattended()

    assert ids(world.read()) == [3]
    assert len(world.client.ledgers) == 3
    world.now_ms += HOUR_MS
    append(world, 4, 1)
    world.run_unattended()
    assert len(world.client.ledgers) == 2


def test_a_process_collects_a_log_once_in_a_while(world: FakeSpark) -> None:
    for number in range(3):
        append(world, number, 1)

    assert len(world.client.unattended) == 1


def test_a_collection_that_fails_is_a_warning(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    append(world, 1, 1)
    world.client.store.fault = lambda operation, path: Fault.LOST_REQUEST
    caplog.set_level(logging.WARNING)

    world.run_unattended()

    assert "collection not finished; the next one goes on. log=orders" in caplog.text
