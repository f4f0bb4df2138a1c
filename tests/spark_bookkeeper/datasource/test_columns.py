"""Which columns a batch read shows: chosen, ordered, a user's own schema, metadata."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from bookkeeper_metadata.errors import MetadataCorruptError
from spark_bookkeeper.datasource.errors import OptionsError, SchemaMismatchError
from spark_bookkeeper.datasource.read.partitions import PlanLimits, plan
from spark_bookkeeper.datasource.read.readable import METADATA_FIELDS
from spark_bookkeeper.datasource.read.task import read_slices
from spark_bookkeeper.log.format.model import LedgerRange
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, columns
from tests.spark_bookkeeper.datasource.test_stream_writing import QUERY, micro_batch
from tests.spark_bookkeeper.datasource.world import FakeSpark, many_entries, marked


def test_columns_are_chosen_by_the_option_or_by_a_users_schema(world: FakeSpark) -> None:
    world.write([[batch(0, 2)]], SCHEMA)

    assert world.read(columns="name").to_pydict() == {"name": ["n0", "n1"]}
    assert world.read(columns="name,id").column_names == ["name", "id"]
    with pytest.raises(OptionsError, match="no nome; there are id, name"):
        world.read(columns="nome")
    assert world.read(StructType([SCHEMA["name"]])).to_pydict() == {"name": ["n0", "n1"]}
    with pytest.raises(SchemaMismatchError, match="id: is string, the log has bigint"):
        world.read(columns(id=StringType()))


def test_metadata_columns_say_where_a_row_is(world: FakeSpark) -> None:
    many_entries(world)

    found = world.read(includemetadata="true")

    assert found.column("_position").to_pylist() == list(range(1000))
    assert set(found.column("_ledger").to_pylist()) == {0, 1}
    entries = found.column("_entry").to_pylist()
    assert entries[0] == 0
    assert entries[499] == len(world.client.ledgers[0].payloads) - 2
    assert set(found.column("_timestamp").cast(pa.int64()).to_pylist()) == {world.now_ms * 1000}
    assert found.column("_query_id").null_count == 1000


def test_metadata_columns_do_not_hide_the_logs_own(world: FakeSpark) -> None:
    world.write([[pa.record_batch({"_entry": [1]})]], columns(_entry=LongType()))

    with pytest.raises(OptionsError, match="the log has columns _entry of its own"):
        world.read(includemetadata="true")


def test_a_nested_field_or_a_name_in_another_case_is_refused_clearly(world: FakeSpark) -> None:
    inner = StructType([StructField("in.ner", LongType())])
    schema = StructType([StructField("outer", inner), StructField("do.t", LongType())])
    world.write([[pa.record_batch({"outer": [{"in.ner": 1}], "do.t": [2]})]], schema)

    assert world.read(columns="do.t").to_pydict() == {"do.t": [2]}
    with pytest.raises(OptionsError, match=r"outer\.in\.ner is inside a column.*name outer"):
        world.read(columns="outer.in.ner,do.t")
    with pytest.raises(OptionsError, match="no Outer; there is outer: names differ in case"):
        world.read(columns="Outer")


def test_columns_metadata_and_a_users_schema_go_together(world: FakeSpark) -> None:
    world.write([[batch(0, 2)]], SCHEMA)
    own = StructType([METADATA_FIELDS["_position"], SCHEMA["name"]])

    everything = world.read(columns="name,id", includemetadata="true")
    some = world.read(own, columns="name", includemetadata="true")

    assert everything.column_names == ["name", "id", *METADATA_FIELDS.names]
    assert some.to_pydict() == {"_position": [0, 1], "name": ["n0", "n1"]}
    with pytest.raises(SchemaMismatchError, match="id: is bigint, the log has no such column"):
        world.read(SCHEMA, columns="name")
    with pytest.raises(SchemaMismatchError, match="_position"):
        world.read(own)


def test_rows_of_a_stream_say_which_query_and_batch_wrote_them(world: FakeSpark) -> None:
    micro_batch(world, 6, [1, 2])
    micro_batch(world, 7, [3])
    world.write([[pa.record_batch({"id": [4]})]], columns(id=LongType()))

    found = world.read(includemetadata="true")

    assert found.column("_batch_id").to_pylist() == [6, 6, 7, None]
    assert found.column("_query_id").to_pylist() == [QUERY, QUERY, QUERY, None]


def test_a_batch_number_that_is_none_is_an_error_by_its_ledger(world: FakeSpark) -> None:
    micro_batch(world, 6, [1])
    ledger = world.client.ledgers[0]
    marked(ledger, {**ledger.metadata.custom_metadata, "sparkBatchId": b"six"})

    with pytest.raises(MetadataCorruptError, match=r"Id is no number: b'six'\. path=ledger 0"):
        world.read(includemetadata="true")


def test_rows_of_a_range_without_a_commit_time_have_no_timestamp(world: FakeSpark) -> None:
    world.write([[batch(0, 2)]], SCHEMA)
    given, readable = world.find(includemetadata="true")
    wanted = StructType([METADATA_FIELDS["_timestamp"]])
    open_range = LedgerRange(0, 0, 0, 0, 2, 10, 0, 0)
    ((slices,),) = [plan([open_range], 0, 2, PlanLimits(), row_is_entry=False)]

    (found,) = read_slices(world.session, given, readable, wanted, slices)

    assert found.to_pydict() == {"_timestamp": [None, None]}
    assert wanted["_timestamp"].dataType == TimestampType()


@pytest.mark.parametrize("ledgers", ["0", "1", "0,1", "1,0"])
def test_ledgers_by_id_say_where_their_rows_lie_and_who_wrote_them(
    world: FakeSpark, ledgers: str
) -> None:
    """More rows than entries: entries were taken for rows, and the read failed."""
    for number in range(2):
        plan = world.plan(SCHEMA)
        message = world.stream_attempt(plan, 0, [batch(100 * number, 100)], "query", number)
        world.stream_commit([message], number)
    wanted = [int(each) for each in ledgers.split(",")]

    found = world.read(ledger=ledgers, includemetadata="true").to_pydict()

    assert found["id"] == [row for each in wanted for row in range(100 * each, 100 * each + 100)]
    assert found["_ledger"] == found["_batch_id"] == [each for each in wanted for _ in range(100)]
    assert found["_position"] == list(range(100)) * len(wanted)
    assert set(found["_query_id"]) == {"query"}
    assert set(found["_timestamp"]) == {None}
