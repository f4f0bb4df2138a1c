"""mergeSchema: columns are added with the rows that have them, and older rows have nulls there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as sql
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, IsNotNull, IsNull

from spark_bookkeeper.datasource.errors import SchemaMismatchError, UnsupportedTypeError
from spark_bookkeeper.datasource.evolution import covers, merged
from spark_bookkeeper.datasource.schema import log_schema_of
from spark_bookkeeper.datasource.write.plan import WritePlan
from spark_bookkeeper.log.errors import CommitRefusedError, LogConflictError, SchemaConflictError
from spark_bookkeeper.log.format.epoch import TaskMessage
from tests.spark_bookkeeper.datasource.rows import columns
from tests.spark_bookkeeper.datasource.world import FakeSpark

LONG, TEXT = sql.LongType(), sql.StringType()


def write(world: FakeSpark, schema: sql.StructType, *rows: tuple[Any, ...], **options: Any) -> None:
    world.write([[batch(schema, *rows)]], schema, **options)


def batch(schema: sql.StructType, *rows: tuple[Any, ...]) -> pa.RecordBatch:
    arrow = log_schema_of(schema).arrow
    values = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(values, arrow)


def attempted(
    world: FakeSpark, schema: sql.StructType, *rows: tuple[Any, ...], **options: Any
) -> tuple[WritePlan, TaskMessage]:
    """A write of one task that is done, and not committed."""
    plan = world.plan(schema, **options)
    return plan, world.attempt(plan, 0, [batch(schema, *rows)])


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist(maps_as_pydicts="strict")]


def mismatch(stored: sql.StructType, given: sql.StructType) -> tuple[str, ...]:
    with pytest.raises(SchemaMismatchError) as caught:
        merged("orders", log_schema_of(stored), given)
    return caught.value.differences


@pytest.mark.parametrize("payload_format", ["arrow", "avro"])
def test_new_columns_come_behind_the_logs_and_are_null_in_older_rows(
    world: FakeSpark, payload_format: str
) -> None:
    write(world, columns(id=LONG, name=TEXT), (1, "one"), payloadformat=payload_format)
    write(
        world, columns(day=sql.IntegerType(), id=LONG, name=TEXT), (7, 2, "two"), mergeschema="true"
    )

    found = world.read()

    assert found.column_names == ["id", "name", "day"]
    assert rows(found) == [(1, "one", None), (2, "two", 7)]
    assert rows(world.read(columns="day,id")) == [(None, 1), (7, 2)]
    assert rows(world.read(columns="day")) == [(None,), (7,)]
    assert rows(world.read(schema=columns(name=TEXT))) == [("one",), ("two",)]
    # By its id a ledger shows the columns it was written with.
    assert rows(world.read(ledger="0")) == [(1, "one")]
    assert rows(world.read(ledger="1")) == [(2, "two", 7)]
    placed = world.read(columns="day", includemetadata="true")
    assert placed.column("_position").to_pylist() == [0, 1]


def test_a_column_the_frame_lacks_is_written_as_nulls(world: FakeSpark) -> None:
    write(world, columns(id=LONG, name=TEXT), (1, "one"))
    write(world, columns(name=TEXT), ("two",), mergeschema="true")
    write(world, columns(extra=LONG), (3,), mergeschema="true")

    assert rows(world.read()) == [(1, "one", None), (None, "two", None), (None, None, 3)]


def test_without_the_option_columns_are_as_strict_as_ever(world: FakeSpark) -> None:
    write(world, columns(id=LONG), (1,))

    with pytest.raises(SchemaMismatchError, match="name: is string, the log has no such column"):
        world.plan(columns(id=LONG, name=TEXT))
    write(world, columns(id=LONG, name=TEXT), (2, "two"), mergeschema="true")
    with pytest.raises(SchemaMismatchError, match="name: missing, the log has string"):
        world.plan(columns(id=LONG))


@pytest.mark.parametrize("payload_format", ["arrow", "avro"])
def test_fields_are_added_inside_structs_lists_and_maps(
    world: FakeSpark, payload_format: str
) -> None:
    old, new = columns(x=LONG), columns(y=TEXT, x=LONG)
    before = columns(s=old, items=sql.ArrayType(old), pairs=sql.MapType(TEXT, old))
    after = columns(s=new, items=sql.ArrayType(new), pairs=sql.MapType(TEXT, new))
    write(
        world, before, ({"x": 1}, [{"x": 1}, None], [("k", {"x": 1})]), (None, None, None),
        payloadformat=payload_format,
    )  # fmt: skip

    two = {"y": "b", "x": 2}
    write(world, after, (two, [two], [("k", two)]), mergeschema="true")

    one, swapped = {"x": 1, "y": None}, {"x": 2, "y": "b"}
    assert world.read().to_pylist(maps_as_pydicts="strict") == [
        {"s": one, "items": [one, None], "pairs": {"k": one}},
        {"s": None, "items": None, "pairs": None},
        {"s": swapped, "items": [swapped], "pairs": {"k": swapped}},
    ]


def test_types_never_change_and_every_difference_is_told() -> None:
    stored = columns(
        id=LONG,
        s=columns(a=LONG),
        l=sql.ArrayType(LONG),
        m=sql.MapType(TEXT, LONG),
        k=sql.MapType(TEXT, LONG),
    )
    given = columns(
        id=sql.IntegerType(),
        s=columns(a=TEXT, b=LONG),
        l=sql.ArrayType(TEXT),
        m=sql.MapType(TEXT, TEXT),
        k=sql.MapType(LONG, LONG),
        fine=LONG,
        ID=LONG,
    )

    assert [line.partition(";")[0] for line in mismatch(stored, given)] == [
        "id: is int, the log has bigint",
        "s.a: is string, the log has bigint",
        "l.element: is string, the log has bigint",
        "m.value: is string, the log has bigint",
        "k: is map<bigint,bigint>, the log has map<string,bigint>",
        "ID: there is id, names differ in case only",
    ]


def test_a_name_twice_is_refused() -> None:
    twice = sql.StructType([sql.StructField("b", LONG), sql.StructField("b", LONG)])

    assert mismatch(columns(a=LONG), twice) == ("a column name stands twice",)
    nested = mismatch(columns(a=columns(x=LONG)), columns(a=twice))
    assert nested == ("a: a field name stands twice",)
    by_case = mismatch(columns(a=LONG), columns(b=LONG, B=LONG))
    assert by_case == ("B: there is b, names differ in case only",)


def test_new_columns_must_be_storable(world: FakeSpark) -> None:
    write(world, columns(id=LONG), (1,), payloadformat="avro")

    with pytest.raises(UnsupportedTypeError, match="columns=month"):
        world.plan(columns(id=LONG, month=sql.YearMonthIntervalType()), mergeschema="true")
    with pytest.raises(UnsupportedTypeError, match="pairs"):
        world.plan(columns(id=LONG, pairs=sql.MapType(LONG, LONG)), mergeschema="true")
    assert world.tokens() == []


def test_what_an_encoded_schema_covers() -> None:
    small = log_schema_of(columns(a=LONG)).encode()
    large = log_schema_of(columns(a=LONG, b=TEXT, c=TEXT)).encode()
    other = log_schema_of(columns(a=TEXT)).encode()
    # Footers number columns: one that lies elsewhere in the newest schema would be taken for another.
    elsewhere = log_schema_of(columns(a=LONG, c=TEXT)).encode()

    assert covers(large, small)
    assert not covers(large, elsewhere)
    assert covers(small, small)
    assert not covers(small, large)
    assert not covers(large, other)


def test_nothing_new_is_no_new_schema(world: FakeSpark) -> None:
    write(world, columns(id=LONG, name=TEXT), (1, "one"), mergeschema="true")
    write(world, columns(name=TEXT, id=LONG), ("two", 2), mergeschema="true")

    assert sorted(world.client.run(world.nodes().schemas())) == [0]
    assert rows(world.read()) == [(1, "one"), (2, "two")]


def test_a_failed_write_adds_no_column(world: FakeSpark) -> None:
    write(world, columns(id=LONG), (1,))
    plan, message = attempted(world, columns(id=LONG, name=TEXT), (2, "two"), mergeschema="true")

    world.abort(plan, [message])

    assert world.read().column_names == ["id"]
    assert sorted(world.client.run(world.nodes().schemas())) == [0]


def test_an_append_planned_before_the_columns_came_is_read_with_nulls(world: FakeSpark) -> None:
    narrow, wider = columns(id=LONG), columns(id=LONG, name=TEXT)
    write(world, narrow, (1,))
    plan, message = attempted(world, narrow, (3,))
    write(world, wider, (2, "two"), mergeschema="true")

    world.commit(plan, [message])

    assert rows(world.read()) == [(1, None), (2, "two"), (3, None)]


def test_two_that_add_the_same_column_both_succeed(world: FakeSpark) -> None:
    wider = columns(id=LONG, name=TEXT)
    write(world, columns(id=LONG), (1,))
    both = [attempted(world, wider, (n, str(n)), mergeschema="true") for n in (2, 3)]

    for plan, message in both:
        world.commit(plan, [message])

    assert rows(world.read()) == [(1, None), (2, "2"), (3, "3")]
    assert rows(world.read(columns="name")) == [(None,), ("2",), ("3",)]


def test_of_two_that_add_different_columns_the_second_runs_again(world: FakeSpark) -> None:
    first, second = columns(id=LONG, a=TEXT), columns(id=LONG, b=TEXT)
    write(world, columns(id=LONG), (1,))
    plan, message = attempted(world, second, (3, "b"), mergeschema="true")
    write(world, first, (2, "a"), mergeschema="true")

    with pytest.raises(SchemaConflictError, match="run it again"):
        world.commit(plan, [message])
    world.abort(plan, [message])
    write(world, second, (3, "b"), mergeschema="true")

    assert rows(world.read()) == [(1, None, None), (2, "a", None), (3, None, "b")]
    assert len(world.client.ledgers) == 3


def test_an_overwrite_may_add_columns(world: FakeSpark) -> None:
    write(world, columns(id=LONG), (1,))
    wider = columns(id=LONG, day=sql.DateType())
    first, late = (
        attempted(world, wider, (2, None), is_overwrite=True, mergeschema="true") for _ in range(2)
    )

    world.commit(first[0], [first[1]])
    with pytest.raises(LogConflictError):
        world.commit(late[0], [late[1]])

    assert rows(world.read()) == [(2, None)]


def test_a_transaction_that_added_columns_is_skipped_when_it_comes_again(world: FakeSpark) -> None:
    wider = columns(id=LONG, name=TEXT)
    once: dict[str, Any] = {"txnappid": "etl", "txnversion": "1", "mergeschema": "true"}
    write(world, columns(id=LONG), (1,))
    write(world, wider, (2, "two"), **once)
    schemas = world.client.run(world.nodes().schemas())

    write(world, wider, (2, "two"), **once)

    assert rows(world.read()) == [(1, None), (2, "two")]
    assert world.client.run(world.nodes().schemas()) == schemas


def test_a_read_planned_before_the_columns_came_goes_on_with_those_it_has(world: FakeSpark) -> None:
    narrow, wider = columns(s=columns(x=LONG)), columns(n=TEXT, s=columns(x=LONG, y=LONG))
    write(world, narrow, ({"x": 1},))
    planned = world.find()

    write(world, wider, ("new", {"x": 2, "y": 3}), mergeschema="true")

    assert world.read_planned(*planned).to_pylist() == [{"s": {"x": 1}}, {"s": {"x": 2}}]


def test_a_micro_batch_adds_columns_once_though_its_commit_knows_no_plan(world: FakeSpark) -> None:
    narrow, wider = columns(id=LONG), columns(id=LONG, name=TEXT)
    write(world, narrow, (1,))
    plans = [world.plan(wider, mergeschema="true") for _ in range(2)]
    rows_of_batch = batch(wider, (2, "two"))
    first, again = (world.stream_attempt(plan, 0, [rows_of_batch], "q", 0) for plan in plans)

    # The later plan's claim ended the earlier one, as when a driver was restarted in between.
    with pytest.raises(CommitRefusedError):
        world.stream_commit([first], 0)
    world.stream_commit([again], 0)
    replay = world.plan(wider, mergeschema="true")
    world.stream_commit([world.stream_attempt(replay, 0, [rows_of_batch], "q", 0)], 0)

    assert rows(world.read()) == [(1, None), (2, "two")]
    assert sorted(world.client.run(world.nodes().schemas())) == [0, plans[1].epoch.schema_id]
    assert world.tokens() == []


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (EqualTo(("new",), 2_500), lambda row, new: new == 2_500),
        (IsNull(("new",)), lambda row, new: new is None),
        (IsNotNull(("new",)), lambda row, new: new is not None),
        (EqualTo(("id",), 4_001), lambda row, new: row == 4_001),
        (GreaterThan(("id",), 3_998), lambda row, new: row > 3_998),
    ],
)
def test_filters_prune_by_the_columns_each_range_has(
    world: FakeSpark, condition: Filter, holds: Callable[[int, int | None], bool]
) -> None:
    old, new = columns(id=LONG), columns(new=LONG, id=LONG)
    write(world, old, *((n,) for n in range(1_000)), entrybytes="2k")
    late, message = attempted(world, old, *((n,) for n in range(4_000, 5_000)), entrybytes="2k")
    write(world, new, *((n, n) for n in range(1_000, 4_000)), mergeschema="true", entrybytes="2k")
    world.commit(late, [message])

    found = set(world.read(filters=[condition]).column("id").to_pylist())

    every = {n: n if 1_000 <= n < 4_000 else None for n in range(5_000)}
    assert found >= {row for row, value in every.items() if holds(row, value)}
    if isinstance(condition, EqualTo):
        assert len(found) < 3_000
