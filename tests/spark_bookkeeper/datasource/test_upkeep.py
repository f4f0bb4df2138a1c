"""Those who write a log have it cleaned: behind their commits, now and then, never in their way."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.datasource.write import upkeep
from tests.spark_bookkeeper.datasource.world import FakeSpark

SCHEMA = StructType([StructField("id", LongType())])
HOUR_MS = 3_600_000


def rows(*ids: int) -> list[list[pa.RecordBatch]]:
    return [[pa.record_batch({"id": pa.array(ids, pa.int64())})]]


def test_what_was_overwritten_goes_without_an_operator(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(rows(1), SCHEMA)
    world.write(rows(2), SCHEMA, is_overwrite=True)
    world.run_unattended()
    assert len(world.client.ledgers) == 2
    world.now_ms += HOUR_MS
    monkeypatch.setattr(upkeep, "COLLECT_INTERVAL_S", 0.0)

    world.write(rows(3), SCHEMA)
    world.run_unattended()

    assert world.read().column("id").to_pylist() == [2, 3]
    assert len(world.client.ledgers) == 2


def test_a_process_collects_a_log_once_in_a_while(world: FakeSpark) -> None:
    for number in range(3):
        world.write(rows(number), SCHEMA)

    assert len(world.client.unattended) == 1


def test_a_collection_that_fails_is_a_warning(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    world.write(rows(1), SCHEMA)
    world.client.store.fault = lambda operation, path: Fault.LOST_REQUEST
    caplog.set_level(logging.WARNING)

    world.run_unattended()

    assert "collection not finished; the next one goes on. log=orders" in caplog.text
