"""A batch write, driven as Spark drives it: what becomes visible, what is left behind."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructType

from spark_bookkeeper.datasource.errors import (
    OptionsError,
    SchemaMismatchError,
    UnsupportedTypeError,
    ValueInvalidError,
)
from spark_bookkeeper.datasource.payload.footer import FOOTER_KEY
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError, UnauthorizedError
from spark_bookkeeper.log.errors import LogConflictError, NoSuchLogError
from tests.spark_bookkeeper.datasource.formats import EVERY_FORMAT
from tests.spark_bookkeeper.datasource.rows import RAW, SCHEMA, batch, columns, ids, raw_batch
from tests.spark_bookkeeper.datasource.world import FakeSpark


@EVERY_FORMAT
def test_rows_of_all_partitions_become_visible_together_and_in_order(world: FakeSpark) -> None:
    plan = world.plan(SCHEMA)
    late = world.attempt(plan, 1, [batch(10, 5)])
    early = world.attempt(plan, 0, [batch(0, 5), batch(5, 5)])
    assert ids(world.read()) == []

    world.commit(plan, [early, late])

    assert ids(world.read()) == list(range(15))
    assert all(ledger.is_closed for ledger in world.client.ledgers.values())
    assert world.tokens() == []


@EVERY_FORMAT
def test_an_overwrite_replaces_even_by_nothing_and_positions_go_on(world: FakeSpark) -> None:
    world.write([[batch(0, 3)]], SCHEMA)
    world.write([[batch(100, 2)]], SCHEMA, is_overwrite=True)

    found = world.read(includemetadata="true")

    assert ids(found) == [100, 101]
    assert found.column("_position").to_pylist() == [3, 4]
    world.write([[]], SCHEMA, is_overwrite=True)
    assert ids(world.read()) == []


@EVERY_FORMAT
def test_an_overwrite_that_raced_an_append_fails_and_changes_nothing(world: FakeSpark) -> None:
    world.write([[batch(0, 3)]], SCHEMA)
    plan = world.plan(SCHEMA, is_overwrite=True)
    message = world.attempt(plan, 0, [batch(100, 2)])
    world.write([[batch(3, 1)]], SCHEMA)

    with pytest.raises(LogConflictError):
        world.commit(plan, [message])
    world.abort(plan, [message])

    assert ids(world.read()) == [0, 1, 2, 3]
    assert len(world.client.ledgers) == 2


@EVERY_FORMAT
def test_a_partition_without_rows_creates_no_ledger_but_the_log(world: FakeSpark) -> None:
    world.write([[]], SCHEMA)
    assert world.read().num_rows == 0
    assert world.client.ledgers == {}

    world.write([[], [batch(0, 0)], [batch(0, 2)]], SCHEMA)

    assert ids(world.read()) == [0, 1]
    assert len(world.client.ledgers) == 1


@EVERY_FORMAT
def test_a_plan_survives_the_way_to_the_executors(world: FakeSpark) -> None:
    plan = pickle.loads(pickle.dumps(world.plan(SCHEMA)))
    message = pickle.loads(pickle.dumps(world.attempt(plan, 0, [batch(0, 4)])))

    world.commit(plan, [message])

    assert ids(world.read()) == [0, 1, 2, 3]


@EVERY_FORMAT
@pytest.mark.parametrize("merge", ["false", "true"])
def test_rows_without_columns_are_refused_and_not_lost(world: FakeSpark, merge: str) -> None:
    """Spark's Arrow batches of no columns say that they have no rows."""
    with pytest.raises(SchemaMismatchError, match="a DataFrame without columns"):
        world.plan(StructType([]), mergeschema=merge)
    world.write([[batch(0, 1)]], SCHEMA)

    with pytest.raises(SchemaMismatchError, match="a DataFrame without columns"):
        world.plan(StructType([]), mergeschema=merge)


@EVERY_FORMAT
def test_columns_are_matched_by_name(world: FakeSpark) -> None:
    world.write([[batch(0, 1)]], SCHEMA)

    world.write([[batch(1, 1).select(["name", "id"])]], columns(name=StringType(), id=LongType()))

    assert ids(world.read()) == [0, 1]


def test_other_columns_are_refused_before_any_ledger_or_token(world: FakeSpark) -> None:
    world.write([[batch(0, 1)]], SCHEMA)
    ledgers = dict(world.client.ledgers)

    with pytest.raises(SchemaMismatchError, match="id: is int, the log has bigint"):
        world.plan(columns(id=IntegerType(), name=StringType()))

    assert world.client.ledgers == ledgers
    assert world.tokens() == []


@EVERY_FORMAT
def test_a_missing_log_is_created_unless_forbidden(world: FakeSpark) -> None:
    with pytest.raises(NoSuchLogError):
        world.plan(SCHEMA, createlog="false")

    assert world.plan(SCHEMA).epoch.log == "orders"


@EVERY_FORMAT
def test_settings_are_the_logs_and_a_write_may_override_them(world: FakeSpark) -> None:
    world.plan(SCHEMA, writequorum="2", ackquorum="2", compression="lz4")

    kept = world.plan(SCHEMA).settings
    assert (kept.write_quorum, kept.compression) == (2, "lz4")
    changed = world.plan(SCHEMA, compression="none", digesttype="crc32").settings
    assert (changed.write_quorum, changed.compression) == (2, "none")
    assert changed.digest_type.name == "CRC32"


def test_impossible_quorums_and_another_payload_format_are_refused(world: FakeSpark) -> None:
    with pytest.raises(OptionsError, match=r"quorums must .*write_quorum=4, ensemble_size=3"):
        world.plan(SCHEMA, writequorum="4")
    world.plan(SCHEMA)
    with pytest.raises(OptionsError, match="payloadFormat: the log has arrow, not raw"):
        world.plan(SCHEMA, payloadformat="raw")


def test_more_copies_at_once_than_an_entry_has_are_refused(world: FakeSpark) -> None:
    """Silently lowered, a wish for five copies would look granted."""
    message = "minWriteQuorum must not be above writeQuorum; "
    with pytest.raises(OptionsError, match=message + "5 > 3"):
        world.plan(SCHEMA, minwritequorum="5")
    world.plan(SCHEMA, writequorum="2", ackquorum="2", minwritequorum="2")
    with pytest.raises(OptionsError, match=message + "3 > 2"):  # the log's own
        world.plan(SCHEMA, minwritequorum="3")


def test_a_ledger_says_whose_it_is_and_what_is_in_it(world: FakeSpark) -> None:
    world.write([[batch(0, 1)]], SCHEMA, password="secret")

    (ledger,) = world.client.ledgers.values()
    custom = ledger.metadata.custom_metadata
    assert custom["log"] == b"orders"
    assert custom["sparkPayload"] == b"arrow"
    assert custom["sparkSchema"] == f"{world.nodes().log_id}/0".encode()
    assert custom[FOOTER_KEY] == b"1"
    assert ledger.metadata.password == b"secret"


@EVERY_FORMAT
def test_what_is_in_flight_is_bounded(world: FakeSpark) -> None:
    rows = batch(0, 20_000)

    world.write([[rows]], SCHEMA, entrybytes="4k", maxinflightbytes="16k", compression="none")

    assert len(world.client.ledgers[0].payloads) > 50
    assert world.client.in_flight_bytes_peak <= 16 * 1024 + 8 * 1024
    assert world.client.in_flight_bytes == 0


def test_raw_values_are_entries_and_have_no_footer(world: FakeSpark) -> None:
    world.write([[raw_batch(b"a", b"")], [raw_batch(b"c")]], RAW, payloadformat="raw")

    assert [ledger.payloads for ledger in world.client.ledgers.values()] == [[b"a", b""], [b"c"]]
    assert world.read().column("value").to_pylist() == [b"a", b"", b"c"]


@pytest.mark.parametrize("payload_format", ["arrow", "avro", "raw"])
def test_a_text_that_no_reader_would_take_is_not_written(
    world: FakeSpark, payload_format: str
) -> None:
    """Spark's texts are bytes: what it casts from binary need not be UTF-8."""
    text = pa.array([b"fine", b"\xff"]).view(pa.string())
    plan = world.plan(columns(value=StringType()), payloadformat=payload_format)

    with pytest.raises(ValueInvalidError, match=r"column=value cause=Invalid.* UTF8"):
        world.attempt(plan, 0, [pa.record_batch({"value": text})])


def test_raw_refuses_null_values(world: FakeSpark) -> None:
    plan = world.plan(RAW, payloadformat="raw")
    nulls = pa.record_batch({"value": pa.array([b"a", None], pa.binary())})

    with pytest.raises(ValueError, match="cannot store null"):
        world.attempt(plan, 0, [nulls])


def test_a_commit_records_bounds_of_the_first_columns(world: FakeSpark) -> None:
    world.write([[batch(5, 3), batch(100, 2)]], SCHEMA)

    view = world.session.view(world.nodes().log_id, "orders")
    (written,) = world.client.run(view.ranges(columns=None)).ranges

    bounds = [(c.column, c.minimum, c.maximum, c.nulls) for c in written.columns]
    assert bounds == [("id", 5, 101, 0), ("name", "n100", "n7", 0)]
    assert (written.rows, written.last_entry) == (5, 0)


@EVERY_FORMAT
def test_an_append_under_another_password_is_refused_and_an_overwrite_changes_it(
    world: FakeSpark,
) -> None:
    """Rows of two passwords in one log could not be read together by anybody."""
    world.write([[batch(0, 1)]], SCHEMA, password="secret")

    with pytest.raises(UnauthorizedError):
        world.plan(SCHEMA, password="other")
    assert world.tokens() == []

    world.write([[batch(5, 1)]], SCHEMA, password="other", is_overwrite=True)
    world.write([[batch(6, 1)]], SCHEMA, password="other")
    assert ids(world.read(password="other")) == [5, 6]


@EVERY_FORMAT
def test_the_password_is_compared_where_the_head_lists_no_range(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bookkeeper.log.rules.chunks.INLINE_BYTES_MAX", 1)
    world.write([[batch(0, 1)]], SCHEMA, password="secret")
    assert world.client.run(world.nodes().head()).head.ranges == ()

    with pytest.raises(UnauthorizedError):
        world.plan(SCHEMA, password="other")
    world.write([[batch(1, 1)]], SCHEMA, password="secret")


NUMBERED = MapType(LongType(), StringType())


@pytest.mark.parametrize(
    ("schema", "options", "error", "message"),
    [
        # The settings would stay, and refuse every later write that does not name its own.
        (SCHEMA, {"ensembleSize": "9"}, NotEnoughBookiesError, "not enough bookies"),
        (SCHEMA, {"passwordFile": "/none"}, OptionsError, "option passwordFile"),
        (SCHEMA, {"payloadformat": "raw"}, SchemaMismatchError, "one column value of binary or"),
        (columns(id=LongType(), ID=LongType()), {}, SchemaMismatchError, "twice, case apart"),
        (columns(fine=LongType(), pairs=NUMBERED, deep=columns(m=NUMBERED)),
         {"payloadformat": "avro"}, UnsupportedTypeError,
         r"pairs \(keys of an Avro map.*deep\.m \(keys"),
        # A schema that is too large for the metadata.
        (columns(**{"c" * 100 + str(n): LongType() for n in range(3000)}), {}, OptionsError,
         "log orders cannot be created: a schema has at most"),
    ],
)  # fmt: skip
def test_a_first_write_that_is_refused_leaves_no_log(
    world: FakeSpark,
    schema: StructType,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        world.plan(schema, **options)

    with pytest.raises(NoSuchLogError):
        world.nodes()
