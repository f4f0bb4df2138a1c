"""A batch read, driven as Spark drives it: exactly the rows, exactly the schema, or an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType

from bookkeeper_metadata.errors import NoSuchLedgerError
from spark_bookkeeper.datasource.errors import OptionsError, PayloadCorruptError, RowsMissingError
from spark_bookkeeper.datasource.schema import arrow_schema
from spark_bookkeeper.ledger.errors import UnauthorizedError
from spark_bookkeeper.log.errors import (
    DataLossError,
    LogRecreatedError,
    NoMatchingTimestampError,
    NoSuchLogError,
)
from tests.spark_bookkeeper.datasource.rows import RAW, SCHEMA, batch, columns, ids, raw_batch
from tests.spark_bookkeeper.datasource.streaming import append, drop_before
from tests.spark_bookkeeper.datasource.world import (
    FakeSpark,
    foreign_ledger,
    many_entries,
    marked,
    resized,
)


@pytest.mark.parametrize(("first", "end"), [(0, 1000), (3, 4), (499, 501), (37, 963), (500, 1000)])
def test_a_read_between_rows_is_exact(world: FakeSpark, first: int, end: int) -> None:
    many_entries(world)

    found = world.read(startingoffsets=f'{{"row":{first}}}', endingoffsets=f'{{"row":{end}}}')

    assert ids(found) == list(range(first, end))


def test_the_footer_spares_entries_that_hold_none_of_the_rows(world: FakeSpark) -> None:
    entries = len(many_entries(world, partitions=1).payloads) - 1

    world.read(startingoffsets='{"row":500}', endingoffsets='{"row":501}')

    assert entries > 5
    assert len(world.client.entries_read) == 2  # the footer and one entry


def test_without_a_footer_the_rows_are_found_all_the_same(world: FakeSpark) -> None:
    ledger = many_entries(world, partitions=1)
    del ledger.payloads[-1]
    marked(ledger, {})

    found = world.read(startingoffsets='{"row":500}', endingoffsets='{"row":510}')

    assert ids(found) == list(range(500, 510))


@pytest.mark.parametrize(
    "options",
    [{"minpartitions": "7"}, {"maxrowsperpartition": "100"}, {"maxbytesperpartition": "3k"}],
)
def test_a_split_read_gives_every_row_once(world: FakeSpark, options: dict[str, Any]) -> None:
    many_entries(world)

    assert ids(world.read(**options)) == list(range(1000))
    between = world.read(startingoffsets='{"row":123}', endingoffsets='{"row":877}', **options)
    assert ids(between) == list(range(123, 877))


def test_raw_rows_between_offsets_are_entries(world: FakeSpark) -> None:
    values = [f"v{n}".encode() for n in range(20)]
    world.write([[raw_batch(*values[:10])], [raw_batch(*values[10:])]], RAW, payloadformat="raw")

    between: dict[str, Any] = {"startingoffsets": '{"row":7}', "endingoffsets": '{"row":13}'}
    found = world.read(includemetadata="true", **between)

    assert found.column("value").to_pylist() == values[7:13]
    assert found.column("_entry").to_pylist() == [7, 8, 9, 0, 1, 2]
    assert found.column("_position").to_pylist() == list(range(7, 13))


def test_raw_text_that_is_no_utf8_is_an_error_by_its_place(world: FakeSpark) -> None:
    text = columns(value=StringType())
    world.write([[pa.record_batch({"value": ["ok"]})]], text, payloadformat="raw")
    world.client.ledgers[0].payloads[0] = b"\xff"

    with pytest.raises(PayloadCorruptError, match="ledger_id=0 entry_id=0"):
        world.read()


def test_offsets_of_a_recreated_log_are_refused(world: FakeSpark) -> None:
    world.write([[batch(0, 2)]], SCHEMA)
    log_id = world.nodes().log_id

    assert ids(world.read(startingoffsets=f'{{"log":{log_id},"row":1}}')) == [1]
    with pytest.raises(LogRecreatedError):
        world.read(startingoffsets=f'{{"log":{log_id + 1},"row":1}}')
    with pytest.raises(OptionsError, match="two different logs"):
        world.read(startingoffsets='{"log":1,"row":1}', endingoffsets='{"log":2,"row":1}')


def test_latest_to_latest_is_nothing_and_backwards_is_refused(world: FakeSpark) -> None:
    append(world, 0, 9)

    assert ids(world.read(startingoffsets="latest")) == []
    assert ids(world.read(endingoffsets="earliest")) == []
    with pytest.raises(OptionsError, match="ends before it begins; end_row=4 first_row=5"):
        world.read(startingoffsets='{"row":5}', endingoffsets='{"row":4}')


def test_a_read_may_begin_and_end_at_the_time_of_a_commit(world: FakeSpark) -> None:
    begun_ms, hour_ms = world.now_ms, 3_600_000
    for at in range(3):
        world.now_ms = begun_ms + at * hour_ms
        append(world, at, 1)

    since = {at: ids(world.read(startingtimestamp=str(begun_ms + at))) for at in (-1, 0, 1)}
    before = {at: ids(world.read(endingtimestamp=str(begun_ms + at))) for at in (0, 1, 9 * hour_ms)}
    within = ids(
        world.read(startingtimestamp=str(begun_ms + 1), endingtimestamp=str(begun_ms + 2 * hour_ms))
    )

    assert since == {-1: [0, 1, 2], 0: [0, 1, 2], 1: [1, 2]}
    assert before == {0: [], 1: [0], 9 * hour_ms: [0, 1, 2]}
    assert within == [1]
    assert ids(world.read(startingtimestamp="2023-11-14T23:13:20Z")) == [1, 2]
    with pytest.raises(OptionsError, match="ends before it begins; end_row=0 first_row=1"):
        world.read(startingtimestamp=str(begun_ms + 1), endingtimestamp=str(begun_ms))
    later: dict[str, Any] = {"startingtimestamp": str(begun_ms + 3 * hour_ms)}
    with pytest.raises(NoMatchingTimestampError, match=r"last_commit=2023-11-15T00:13:20\.000Z"):
        world.read(**later)
    assert ids(world.read(**later, startingtimestampstrategy="latest")) == []
    drop_before(world, 2)
    assert ids(world.read(startingtimestamp=str(begun_ms))) == [2]


def test_rows_that_are_gone_or_not_there_are_an_error(world: FakeSpark) -> None:
    world.write([[batch(0, 3)]], SCHEMA)
    world.write([[batch(3, 3)]], SCHEMA, is_overwrite=True)

    with pytest.raises(DataLossError):
        world.read(startingoffsets='{"row":1}')
    with pytest.raises(DataLossError):
        world.read(endingoffsets='{"row":7}')
    kept = world.read(startingoffsets='{"row":1}', failondataloss="false")
    assert ids(kept) == [3, 4, 5]


def test_a_log_that_is_not_there_or_has_another_password_is_an_error(world: FakeSpark) -> None:
    with pytest.raises(NoSuchLogError):
        world.read()
    world.write([[batch(0, 3)]], SCHEMA, password="right")

    assert ids(world.read(password="right")) == [0, 1, 2]
    with pytest.raises(UnauthorizedError):
        world.read(password="wrong")


def test_a_foreign_ledger_is_entries_and_a_missing_one_an_error(world: FakeSpark) -> None:
    foreign_ledger(world, 70, b"x", b"", b"z")
    foreign_ledger(world, 71, b"w")

    found = world.read(ledger="70,71")

    assert found.to_pydict() == {
        "_ledger": [70, 70, 70, 71],
        "_entry": [0, 1, 2, 0],
        "value": [b"x", b"", b"z", b"w"],
    }
    assert world.read(ledger="70", columns="value").column_names == ["value"]
    foreign_ledger(world, 72)
    assert world.read(ledger="72").num_rows == 0
    with pytest.raises(NoSuchLedgerError):
        world.read(ledger="73")


def test_ledgers_read_by_id_show_their_columns_and_are_not_mixed_with_others(
    world: FakeSpark,
) -> None:
    many_entries(world)

    assert ids(world.read(ledger="1")) == list(range(500, 1000))
    assert ids(world.read(ledger="1", minpartitions="4")) == list(range(500, 1000))
    foreign_ledger(world, 70, b"x")
    with pytest.raises(OptionsError, match="different columns"):
        world.read(ledger="0,70")


def test_an_entry_that_disappeared_or_that_is_foreign_is_an_error(world: FakeSpark) -> None:
    payloads = many_entries(world, partitions=1).payloads
    payloads[3] = payloads[4]

    with pytest.raises(RowsMissingError, match="ledger_id=0"):
        world.read()
    payloads[2] = b"something else" * 10
    with pytest.raises(PayloadCorruptError, match="ledger_id=0 entry_id=2"):
        world.read()


@pytest.mark.parametrize("change", [-1, 1])
def test_a_last_entry_of_fewer_or_more_rows_is_noticed(world: FakeSpark, change: int) -> None:
    payloads = many_entries(world, partitions=1).payloads
    payloads[-2] = resized(payloads[-2], change)

    with pytest.raises(RowsMissingError, match=rf"expected=1000 found={1000 + change}"):
        world.read()


@pytest.mark.parametrize("has_footer", [True, False])
@pytest.mark.parametrize("parts", ["2", "4"])
def test_tasks_that_share_a_ledger_miss_and_double_no_row_where_they_meet(
    world: FakeSpark, parts: str, has_footer: bool
) -> None:
    """Each saw that its own entries follow each other, and nobody looked between two tasks."""
    ledger = many_entries(world, partitions=1)
    if not has_footer:
        del ledger.payloads[-1]
        marked(ledger, {})
    sound = list(ledger.payloads)
    for at in range(len(sound) - has_footer):
        for wrong in (resized(sound[at], -1), sound[at - 1] if at else sound[1]):
            ledger.payloads[:] = sound
            ledger.payloads[at] = wrong
            with pytest.raises(RowsMissingError, match="ledger_id=0"):
                world.read(minpartitions=parts)


def test_a_read_that_ends_early_reads_no_entry_beyond_its_end(world: FakeSpark) -> None:
    ledger = many_entries(world, partitions=1)
    marked(ledger, {})

    world.read(endingoffsets='{"row":1}')

    assert world.client.entries_read == [(0, 0)]


def test_many_small_ledgers_are_read_in_order_with_exactly_the_schema(world: FakeSpark) -> None:
    for at in range(40):
        append(world, at, 1)

    found = world.read()

    assert ids(found) == list(range(40))
    assert found.schema.equals(arrow_schema(SCHEMA))
