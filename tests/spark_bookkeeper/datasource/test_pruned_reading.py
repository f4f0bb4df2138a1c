"""Reads with filters: what cannot match is not fetched, what is wanted is, and loss is still seen."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    StringStartsWith,
)
from pyspark.sql.types import LongType

from spark_bookkeeper.datasource.errors import RowsMissingError
from spark_bookkeeper.datasource.options.model import ReadOptions
from spark_bookkeeper.datasource.payload.entry_cutter import CutEntry
from spark_bookkeeper.datasource.payload.envelope import parse_envelope
from spark_bookkeeper.datasource.payload.footer import FOOTER_KEY, FooterBuilder
from spark_bookkeeper.datasource.read import batch as read_batch
from spark_bookkeeper.datasource.read.batch import BookKeeperBatchReader
from spark_bookkeeper.datasource.read.readable import Readable
from spark_bookkeeper.datasource.read.task import ReadPartition
from spark_bookkeeper.datasource.schema import arrow_schema, log_schema_of
from tests.doubles.ledger_client import FakeLedger
from tests.spark_bookkeeper.datasource.rows import RAW, SCHEMA, batch, columns, ids, raw_batch
from tests.spark_bookkeeper.datasource.streaming import append, values
from tests.spark_bookkeeper.datasource.world import FakeSpark, many_entries, marked, resized

ID, NAME = ("id",), ("name",)


def between(first: int, end: int) -> list[Filter]:
    return [GreaterThanOrEqual(ID, first), LessThan(ID, end)]


def matching(found: Sequence[int], first: int, end: int) -> list[int]:
    """What Spark, filtering again, leaves of the rows."""
    return [value for value in found if first <= value < end]


def test_only_entries_that_may_match_are_fetched(world: FakeSpark) -> None:
    entries = len(many_entries(world, partitions=1).payloads) - 1

    found = ids(world.read(filters=between(500, 510)))

    assert matching(found, 500, 510) == list(range(500, 510))
    assert entries > 5
    assert world.client.entries_read[0] == (0, entries)  # the footer
    assert 2 <= len(world.client.entries_read) <= 3


def test_ranges_that_cannot_match_are_not_even_opened(world: FakeSpark) -> None:
    many_entries(world, 2_000, partitions=4)

    assert world.read(filters=[EqualTo(ID, 5_000)]).num_rows == 0
    assert world.read(filters=[StringStartsWith(NAME, "x")]).num_rows == 0
    assert world.client.entries_read == []
    found = ids(world.read(filters=between(1_200, 1_210)))
    assert matching(found, 1_200, 1_210) == list(range(1_200, 1_210))
    assert {ledger_id for ledger_id, _ in world.client.entries_read} == {2}


def test_gaps_between_entries_are_no_missing_rows(world: FakeSpark) -> None:
    many_entries(world, partitions=1)

    found = ids(world.read(filters=[In(ID, (0, 400, 999))]))

    assert {0, 400, 999} <= set(found)
    assert len(found) < 500
    assert found == sorted(found)


@pytest.mark.parametrize("options", [{}, {"minpartitions": "5"}, {"maxrowsperpartition": "60"}])
@pytest.mark.parametrize(("first", "end"), [(0, 1000), (37, 963), (499, 501)])
def test_filters_and_positions_go_together(
    world: FakeSpark, first: int, end: int, options: dict[str, Any]
) -> None:
    many_entries(world)
    options["startingoffsets"], options["endingoffsets"] = f'{{"row":{first}}}', f'{{"row":{end}}}'

    found = world.read(filters=between(450, 550), includemetadata="true", **options)

    low, high = max(first, 450), min(end, 550)
    assert matching(ids(found), low, high) == list(range(low, high))
    assert ids(found) == found.column("_position").to_pylist()


def test_metadata_columns_prune_too(world: FakeSpark) -> None:
    many_entries(world)
    wanted = GreaterThanOrEqual(("_position",), 990)

    found = world.read(filters=[wanted], includemetadata="true")

    assert set(range(990, 1000)) <= set(found.column("_position").to_pylist())
    assert {ledger_id for ledger_id, _ in world.client.entries_read} == {1}
    assert len(world.client.entries_read) <= 3
    raw: dict[str, Any] = {"payloadformat": "raw", "log": "raw"}
    world.write([[raw_batch(b"a", b"b")], [raw_batch(b"c")]], RAW, **raw)
    third = EqualTo(("_position",), 2)
    assert values(world.read(filters=[third], log="raw", includemetadata="true")) == [b"c"]


def test_times_of_rows_prune_ranges_but_not_those_of_writers_outside_spark(
    world: FakeSpark,
) -> None:
    many_entries(world)
    day = timedelta(days=1)
    committed = datetime.fromtimestamp(world.now_ms / 1000, UTC)
    before = LessThan(("_timestamp",), committed)

    assert world.read(filters=[before], includemetadata="true").num_rows == 0
    assert world.client.entries_read == []

    world.write([[raw_batch(b"a")]], RAW, payloadformat="raw", log="outside")
    (ledger,) = list(world.client.ledgers.values())[-1:]
    begun_ms = int((committed - day).timestamp() * 1000)
    ledger.metadata = replace(ledger.metadata, custom_metadata={}, created_ms=begun_ms)

    found = world.read(filters=[before], log="outside", includemetadata="true")

    assert found.column("_timestamp").to_pylist() == [committed - day]


def test_ledgers_read_by_id_are_pruned_by_their_footers(world: FakeSpark) -> None:
    many_entries(world)

    found = ids(world.read(filters=between(700, 710), ledger="1"))

    assert matching(found, 700, 710) == list(range(700, 710))
    assert len(world.client.entries_read) <= 3


def without_footer(ledger: FakeLedger) -> None:
    del ledger.payloads[-1]
    marked(ledger, {})


def with_footer_of_other_rows(ledger: FakeLedger) -> None:
    other = FooterBuilder(arrow_schema(SCHEMA), 8)
    for at in range(len(ledger.payloads) - 1):
        other.add(CutEntry(b"", batch(at, 1), at))
    encoded = other.encode(0, 0)
    assert encoded is not None
    ledger.payloads[-1] = encoded


def with_footer_of_a_later_version(ledger: FakeLedger) -> None:
    marked(ledger, {**ledger.metadata.custom_metadata, FOOTER_KEY: b"2"})


@pytest.mark.parametrize(
    "change", [without_footer, with_footer_of_other_rows, with_footer_of_a_later_version]
)
def test_without_a_footer_that_agrees_with_the_log_all_entries_are_read(
    world: FakeSpark, change: Callable[[FakeLedger], None]
) -> None:
    change(many_entries(world, partitions=1))

    assert ids(world.read(filters=between(500, 510))) == list(range(1000))


def test_columns_without_bounds_prune_nothing(world: FakeSpark) -> None:
    world.write([[batch(0, 200)]], SCHEMA, entrybytes="2k", statscolumns="1")

    assert ids(world.read(filters=[EqualTo(NAME, "none")])) == list(range(200))


@pytest.mark.parametrize("change", [-1, 1])
def test_an_entry_of_other_rows_than_its_footer_says_is_noticed(
    world: FakeSpark, change: int
) -> None:
    payloads = many_entries(world, partitions=1).payloads
    at = len(payloads) // 2
    found = parse_envelope(payloads[at])
    payloads[at] = resized(payloads[at], change)

    with pytest.raises(RowsMissingError, match="ledger_id=0"):
        world.read(filters=between(found.first_row, found.first_row + 1))


def test_an_entry_in_the_place_of_another_is_noticed(world: FakeSpark) -> None:
    payloads = many_entries(world, partitions=1).payloads
    found = parse_envelope(payloads[4])
    payloads[4] = payloads[3]

    with pytest.raises(RowsMissingError, match=f"expected={found.first_row} "):
        world.read(filters=between(found.first_row, found.first_row + 1))


def test_a_task_says_how_many_entries_it_fetched(
    world: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    entries = len(many_entries(world, partitions=1).payloads) - 1

    with caplog.at_level(logging.INFO, "spark_bookkeeper.reads"):
        world.read(filters=between(0, 1))

    planned, ended = (
        record.getMessage() for record in caplog.records if record.name == "spark_bookkeeper.reads"
    )
    assert "ranges=1 ranges_pruned=0" in planned
    assert f"entries_fetched=2 entries_planned={entries} rows=" in ended


def test_pushed_filters_look_to_spark_like_a_method_nobody_overrode() -> None:
    schema = log_schema_of(SCHEMA)
    options = ReadOptions(metadata_service_uri="zk+hierarchical://fake/ledgers", log="orders")
    reader = BookKeeperBatchReader(options, Readable(schema, "arrow", log_id=1), SCHEMA)
    filters: list[Filter] = [EqualTo(ID, 1)]

    unsupported = list(reader.pushFilters(filters))
    copy = pickle.loads(pickle.dumps(reader))

    assert all(given is kept for given, kept in zip(filters, unsupported, strict=True))
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters  # type: ignore[attr-defined]
    assert copy.pushFilters.predicate == reader.pushFilters.predicate  # type: ignore[attr-defined]
    assert copy.pushFilters.predicate.columns == {"id"}


def test_filters_on_an_added_column_keep_what_was_written_before_it(world: FakeSpark) -> None:
    append(world, 0, 3)
    wider = columns(id=LongType(), extra=LongType())
    rows = pa.record_batch({"id": pa.array([3, 4]), "extra": pa.array([7, 9])})
    world.write([[rows]], wider, mergeschema="true")

    # Older ranges have no bounds of it.
    assert ids(world.read(filters=[EqualTo(("extra",), 9)])) == [0, 1, 2, 3, 4]
    assert ids(world.read(filters=[IsNull(("extra",))])) == [0, 1, 2]
    assert ids(world.read(filters=[EqualTo(ID, 1)])) == [0, 1, 2]


def test_a_read_of_nothing_still_gives_spark_a_partition(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_entries(world)
    monkeypatch.setattr(read_batch, "open_session", lambda options: world.session)
    reader = BookKeeperBatchReader(*world.find(), SCHEMA)

    assert list(reader.pushFilters([EqualTo(ID, 5_000)])) == [EqualTo(ID, 5_000)]
    (partition,) = reader.partitions()

    assert isinstance(partition, ReadPartition)
    assert partition.slices == ()
