"""A batch write, driven as Spark drives it: what becomes visible, what is left behind."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.datasource.errors import (
    OptionsError,
    SchemaMismatchError,
    ValueInvalidError,
)
from spark_bookkeeper.datasource.payload.footer import FOOTER_KEY
from spark_bookkeeper.ledger.errors import (
    LedgerFencedError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from spark_bookkeeper.log.errors import (
    CommitRefusedError,
    EpochFencedError,
    LogConflictError,
    NoSuchLogError,
    TxnAppReusedError,
)
from spark_bookkeeper.log.format.epoch import TaskMessage
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.spark_bookkeeper.datasource.fakes import FakeWriter, World

SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])
RAW = StructType([StructField("value", BinaryType())])


def batch(first: int, count: int) -> pa.RecordBatch:
    ids = list(range(first, first + count))
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})


def ids(table: pa.Table) -> list[int]:
    return table.column("id").to_pylist() if table.num_columns else []


def raw_batch(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def test_rows_of_all_partitions_become_visible_together_and_in_order(world: World) -> None:
    plan = world.plan(SCHEMA)
    late = world.attempt(plan, 1, [batch(10, 5)])
    early = world.attempt(plan, 0, [batch(0, 5), batch(5, 5)])
    assert ids(world.read()) == []

    world.commit(plan, [early, late])

    assert ids(world.read()) == list(range(15))
    assert all(ledger.is_closed for ledger in world.client.ledgers.values())
    assert world.tokens() == []


def test_appends_add_behind_what_is_there(world: World) -> None:
    world.write([[batch(0, 3)]], SCHEMA)
    world.write([[batch(3, 3)]], SCHEMA)

    assert ids(world.read()) == list(range(6))


def test_an_overwrite_replaces_and_positions_go_on(world: World) -> None:
    world.write([[batch(0, 3)]], SCHEMA)
    world.write([[batch(100, 2)]], SCHEMA, is_overwrite=True)

    found = world.read(includemetadata="true")

    assert ids(found) == [100, 101]
    assert found.column("_position").to_pylist() == [3, 4]


def test_an_overwrite_with_no_rows_empties_the_log(world: World) -> None:
    world.write([[batch(0, 3)]], SCHEMA)
    world.write([[]], SCHEMA, is_overwrite=True)

    assert ids(world.read()) == []


def test_an_overwrite_that_raced_an_append_fails_and_changes_nothing(world: World) -> None:
    world.write([[batch(0, 3)]], SCHEMA)
    plan = world.plan(SCHEMA, is_overwrite=True)
    message = world.attempt(plan, 0, [batch(100, 2)])
    world.write([[batch(3, 1)]], SCHEMA)

    with pytest.raises(LogConflictError):
        world.commit(plan, [message])
    world.abort(plan, [message])

    assert ids(world.read()) == [0, 1, 2, 3]
    assert len(world.client.ledgers) == 2


def test_a_partition_without_rows_creates_no_ledger(world: World) -> None:
    world.write([[], [batch(0, 0)], [batch(0, 2)]], SCHEMA)

    assert ids(world.read()) == [0, 1]
    assert len(world.client.ledgers) == 1


def test_a_failed_first_write_takes_the_log_it_created_along(world: World) -> None:
    plan = pickle.loads(pickle.dumps(world.plan(SCHEMA)))
    world.attempt(plan, 0, [batch(0, 3)])

    world.abort(plan, [None])

    assert world.client.run(world.session.catalog.names()) == []
    assert world.client.ledgers == {}
    with pytest.raises(NoSuchLogError):
        world.read()


def test_a_failed_write_leaves_a_log_that_was_there_or_that_another_writes(world: World) -> None:
    first, second = world.plan(SCHEMA), world.plan(SCHEMA)

    world.abort(first, [None])
    world.commit(second, [world.attempt(second, 0, [batch(0, 3)])])
    world.abort(world.plan(SCHEMA), [None])
    world.abort(first, [None])

    assert ids(world.read()) == [0, 1, 2]


def test_a_write_that_is_committed_or_may_be_keeps_the_log_it_created(world: World) -> None:
    """Spark aborts after a failed commit too."""
    plan = world.plan(SCHEMA)
    message = world.attempt(plan, 0, [batch(0, 3)])
    world.commit(plan, [message])

    world.abort(plan, [message])

    assert ids(world.read()) == [0, 1, 2]


def test_a_plan_whose_log_a_failed_write_takes_away_creates_it_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.plan(SCHEMA)
    find = world.session.catalog.find

    async def find_and_lose(name: str) -> LogNodes:
        found = await find(name)
        monkeypatch.undo()
        await world.session.sweeper.abort(
            [
                TaskMessage(
                    epoch=first.epoch, job=first.batch_job(""), partition=0, task_attempt_id=0
                )
            ],
            log="orders",
        )
        assert await world.session.catalog.delete_unused("orders", first.epoch.log_id)
        return found

    monkeypatch.setattr(world.session.catalog, "find", find_and_lose)
    second = world.plan(SCHEMA)
    world.commit(second, [world.attempt(second, 0, [batch(0, 3)])])

    assert second.epoch.log_id != first.epoch.log_id
    assert second.has_created_log
    assert ids(world.read()) == [0, 1, 2]


def test_a_write_without_rows_still_creates_the_log(world: World) -> None:
    world.write([[]], SCHEMA)

    assert world.read().num_rows == 0
    assert world.client.ledgers == {}


def test_a_plan_survives_the_way_to_the_executors(world: World) -> None:
    plan = pickle.loads(pickle.dumps(world.plan(SCHEMA)))
    message = pickle.loads(pickle.dumps(world.attempt(plan, 0, [batch(0, 4)])))

    world.commit(plan, [message])

    assert ids(world.read()) == [0, 1, 2, 3]


def test_a_schema_too_large_for_the_metadata_is_refused_in_words(world: World) -> None:
    wide = StructType([StructField("c" * 100 + str(n), LongType()) for n in range(3000)])

    with pytest.raises(OptionsError, match="log orders cannot be created: a schema has at most"):
        world.plan(wide)


@pytest.mark.parametrize("merge", ["false", "true"])
def test_rows_without_columns_are_refused_and_not_lost(world: World, merge: str) -> None:
    """Spark's Arrow batches of no columns say that they have no rows."""
    with pytest.raises(SchemaMismatchError, match="a DataFrame without columns"):
        world.plan(StructType([]), mergeschema=merge)
    world.write([[batch(0, 1)]], SCHEMA)

    with pytest.raises(SchemaMismatchError, match="a DataFrame without columns"):
        world.plan(StructType([]), mergeschema=merge)


def test_columns_are_matched_by_name(world: World) -> None:
    world.write([[batch(0, 1)]], SCHEMA)
    turned = StructType([SCHEMA["name"], SCHEMA["id"]])

    world.write([[batch(1, 1).select(["name", "id"])]], turned)

    assert ids(world.read()) == [0, 1]


def test_other_columns_are_refused_before_any_ledger_or_token(world: World) -> None:
    world.write([[batch(0, 1)]], SCHEMA)
    ledgers = dict(world.client.ledgers)

    with pytest.raises(SchemaMismatchError, match="id: is int, the log has bigint"):
        world.plan(StructType([StructField("id", IntegerType()), SCHEMA["name"]]))

    assert world.client.ledgers == ledgers
    assert world.tokens() == []


def test_a_missing_log_is_created_unless_forbidden(world: World) -> None:
    with pytest.raises(NoSuchLogError):
        world.plan(SCHEMA, createlog="false")

    assert world.plan(SCHEMA).epoch.log == "orders"


def test_settings_are_the_logs_and_a_write_may_override_them(world: World) -> None:
    world.plan(SCHEMA, writequorum="2", ackquorum="2", compression="lz4")

    kept = world.plan(SCHEMA).settings
    assert (kept.write_quorum, kept.compression) == (2, "lz4")
    changed = world.plan(SCHEMA, compression="none", digesttype="crc32").settings
    assert (changed.write_quorum, changed.compression) == (2, "none")
    assert changed.digest_type.name == "CRC32"


def test_impossible_quorums_and_another_payload_format_are_refused(world: World) -> None:
    with pytest.raises(
        OptionsError, match=r"quorums must satisfy .*write_quorum=4, ensemble_size=3"
    ):
        world.plan(SCHEMA, writequorum="4")
    world.plan(SCHEMA)
    with pytest.raises(OptionsError, match="payloadFormat: the log has arrow, not raw"):
        world.plan(SCHEMA, payloadformat="raw")


def test_a_ledger_says_whose_it_is_and_what_is_in_it(world: World) -> None:
    world.write([[batch(0, 1)]], SCHEMA, password="secret")

    (ledger,) = world.client.ledgers.values()
    custom = ledger.metadata.custom_metadata
    assert custom["log"] == b"orders"
    assert custom["sparkPayload"] == b"arrow"
    assert custom["sparkSchema"] == f"{world.nodes().log_id}/0".encode()
    assert custom[FOOTER_KEY] == b"1"
    assert ledger.metadata.password == b"secret"


def test_what_is_in_flight_is_bounded(world: World) -> None:
    rows = batch(0, 20_000)

    world.write([[rows]], SCHEMA, entrybytes="4k", maxinflightbytes="16k", compression="none")

    assert len(world.client.ledgers[0].payloads) > 50
    assert world.client.in_flight_bytes_peak <= 16 * 1024 + 8 * 1024
    assert world.client.in_flight_bytes == 0


def fail_at(entry: int, error: Exception, world: World, ledger: int | None = None) -> None:
    def hook(ledger_id: int, entry_id: int) -> None:
        if entry_id == entry and ledger in (None, ledger_id):
            raise error

    world.client.before_append = hook


def test_a_failed_task_shows_nothing_and_a_retry_shows_everything_once(world: World) -> None:
    plan = world.plan(SCHEMA, entrybytes="2k", compression="none")
    rows = [batch(0, 500), batch(500, 500)]
    fail_at(3, NotEnoughBookiesError(3, ()), world, ledger=0)
    with pytest.raises(NotEnoughBookiesError):
        world.attempt(plan, 0, rows)

    retried = world.attempt(plan, 0, rows)

    # The retry has fenced what the failed attempt left open.
    assert world.client.ledgers[0].is_fenced
    world.commit(plan, [retried])
    assert ids(world.read()) == list(range(1000))
    assert list(world.client.ledgers) == [1]


def test_a_speculative_copy_that_lost_is_swept_and_never_seen(world: World) -> None:
    plan = world.plan(SCHEMA)
    loser = world.attempt(plan, 0, [batch(0, 5)])
    winner = world.attempt(plan, 0, [batch(0, 5)])
    assert loser.written is not None
    assert not world.client.ledgers[loser.written.ledger_id].is_fenced

    world.commit(plan, [winner])

    assert ids(world.read()) == [0, 1, 2, 3, 4]
    assert loser.written.ledger_id not in world.client.ledgers


def test_a_zombie_that_wakes_up_after_the_commit_cannot_claim(world: World) -> None:
    plan = world.plan(SCHEMA)
    world.commit(plan, [world.attempt(plan, 0, [batch(0, 5)])])

    with pytest.raises(EpochFencedError):
        world.attempt(plan, 0, [batch(0, 5)])

    assert ids(world.read()) == [0, 1, 2, 3, 4]
    assert len(world.client.ledgers) == 1


def test_a_zombie_in_the_middle_of_its_ledger_is_fenced_by_the_abort(world: World) -> None:
    world.write([[]], SCHEMA)
    plan = world.plan(SCHEMA, entrybytes="2k", compression="none")

    def abort_meanwhile(ledger_id: int, entry_id: int) -> None:
        if entry_id == 2:
            world.client.before_append = lambda ledger_id, entry_id: None
            # The sweep fences before it deletes; the fake keeps what a bookie would refuse.
            ledger = world.client.ledgers[ledger_id]
            world.abort(plan, [None])
            assert ledger_id not in world.client.ledgers
            assert ledger.is_fenced

    world.client.before_append = abort_meanwhile
    with pytest.raises(LedgerFencedError):
        world.attempt(plan, 0, [batch(0, 1000)])

    assert world.client.ledgers == {}
    assert world.tokens() == []


def test_a_write_given_up_between_claim_and_ledger_creates_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.plan(SCHEMA)
    create = world.client.create_ledger

    def give_up_first(**arguments: Any) -> FakeWriter:
        world.abort(plan, [None])
        return create(**arguments)

    monkeypatch.setattr(world.client, "create_ledger", give_up_first)
    with pytest.raises(EpochFencedError, match="its token is not live any more"):
        world.attempt(plan, 0, [batch(0, 5)])

    assert world.client.ledgers == {}


def test_an_abort_without_any_message_leaves_nothing_behind(world: World) -> None:
    world.write([[]], SCHEMA)
    plan = world.plan(SCHEMA)
    fail_at(0, NotEnoughBookiesError(3, ()), world)
    with pytest.raises(NotEnoughBookiesError):
        world.attempt(plan, 0, [batch(0, 5)])

    world.abort(plan, [None, None])

    assert world.client.ledgers == {}
    assert world.tokens() == []


def test_a_commit_with_a_message_missing_is_refused(world: World) -> None:
    plan = world.plan(SCHEMA)
    message = world.attempt(plan, 0, [batch(0, 5)])

    with pytest.raises(CommitRefusedError, match="1 of 2 tasks sent no commit message"):
        world.commit(plan, [message, None])

    assert ids(world.read()) == []


def test_an_abort_after_a_commit_whose_reply_was_lost_takes_nothing_away(world: World) -> None:
    plan = world.plan(SCHEMA)
    message = world.attempt(plan, 0, [batch(0, 5)])
    world.commit(plan, [message])

    # Spark calls this when it believes that the commit failed.
    world.abort(plan, [message])

    assert ids(world.read()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("at", range(12))
def test_any_one_lost_message_of_plan_claim_or_commit_writes_rows_once(
    world: World, fault: Fault, at: int
) -> None:
    world.write([[batch(0, 2)]], SCHEMA)
    seen = 0

    def lose(operation: str, path: str) -> Fault | None:
        nonlocal seen
        if operation not in ("create", "put", "multi", "sequence"):
            return None
        seen += 1
        return fault if seen == at + 1 else None

    world.client.store.fault = lose
    plan = None
    try:
        plan = world.plan(SCHEMA)
        world.commit(plan, [world.attempt(plan, 0, [batch(2, 2)])])
        is_done = True
    except Exception:  # noqa: BLE001  whatever it is, Spark would abort
        is_done = False
        world.client.store.fault = None
        if plan is not None:
            world.abort(plan, [None])
    world.client.store.fault = None

    assert ids(world.read()) == ([0, 1, 2, 3] if is_done else [0, 1])


def test_a_transaction_is_committed_once_and_its_repeat_reads_no_input(world: World) -> None:
    txn: dict[str, Any] = {"txnappid": "job", "txnversion": "7"}
    world.write([[batch(0, 3)]], SCHEMA, **txn)
    plan = world.plan(SCHEMA, **txn)

    # The second batch would be refused, were it looked at.
    message = world.attempt(plan, 0, [batch(0, 3), pa.record_batch({"wrong": [1]})])
    assert message.is_already_committed
    world.commit(plan, [message])

    assert ids(world.read()) == [0, 1, 2]
    world.write([[batch(3, 1)]], SCHEMA, txnappid="job", txnversion="8")
    assert ids(world.read()) == [0, 1, 2, 3]


def test_a_transaction_id_of_another_query_is_an_error_not_a_skip(world: World) -> None:
    txn: dict[str, Any] = {"txnappid": "job", "txnversion": "0"}
    plan = world.plan(SCHEMA, **txn)
    world.commit(plan, [world.attempt(plan, 0, [batch(0, 1)], query_id="first")])
    plan = world.plan(SCHEMA, **txn)
    message = world.attempt(plan, 0, [batch(0, 1)], query_id="second")

    with pytest.raises(TxnAppReusedError):
        world.commit(plan, [message])


def test_raw_values_are_entries_and_have_no_footer(world: World) -> None:
    world.write([[raw_batch(b"a", b"")], [raw_batch(b"c")]], RAW, payloadformat="raw")

    assert [ledger.payloads for ledger in world.client.ledgers.values()] == [[b"a", b""], [b"c"]]
    assert world.read().column("value").to_pylist() == [b"a", b"", b"c"]


@pytest.mark.parametrize("payload_format", ["arrow", "avro", "raw"])
def test_a_text_that_no_reader_would_take_is_not_written(world: World, payload_format: str) -> None:
    """Spark's texts are bytes: what it casts from binary need not be UTF-8."""
    text = pa.array([b"fine", b"\xff"]).view(pa.string())
    schema = StructType([StructField("value", StringType())])
    plan = world.plan(schema, payloadformat=payload_format)

    with pytest.raises(ValueInvalidError, match=r"column=value cause=Invalid.* UTF8"):
        world.attempt(plan, 0, [pa.record_batch({"value": text})])


def test_raw_refuses_other_columns_and_null_values(world: World) -> None:
    with pytest.raises(SchemaMismatchError, match="one column value of binary or string"):
        world.plan(SCHEMA, payloadformat="raw")
    plan = world.plan(RAW, payloadformat="raw")
    nulls = pa.record_batch({"value": pa.array([b"a", None], pa.binary())})

    with pytest.raises(ValueError, match="cannot store null"):
        world.attempt(plan, 0, [nulls])


def test_a_commit_records_bounds_of_the_first_columns(world: World) -> None:
    world.write([[batch(5, 3), batch(100, 2)]], SCHEMA)

    view = world.session.view(world.nodes().log_id, "orders")
    (written,) = world.client.run(view.ranges(columns=None)).ranges

    bounds = [(c.column, c.minimum, c.maximum, c.nulls) for c in written.columns]
    assert bounds == [("id", 5, 101, 0), ("name", "n100", "n7", 0)]
    assert (written.rows, written.last_entry) == (5, 0)


def test_an_append_under_another_password_is_refused_and_an_overwrite_changes_it(
    world: World,
) -> None:
    """Rows of two passwords in one log could not be read together by anybody."""
    world.write([[batch(0, 1)]], SCHEMA, password="secret")

    with pytest.raises(UnauthorizedError):
        world.plan(SCHEMA, password="other")
    assert world.tokens() == []

    world.write([[batch(5, 1)]], SCHEMA, password="other", is_overwrite=True)
    world.write([[batch(6, 1)]], SCHEMA, password="other")
    assert ids(world.read(password="other")) == [5, 6]


def test_the_password_is_compared_where_the_head_lists_no_range(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bookkeeper.log.rules.transitions.INLINE_BYTES_MAX", 1)
    world.write([[batch(0, 1)]], SCHEMA, password="secret")
    assert world.client.run(world.nodes().head()).head.ranges == ()

    with pytest.raises(UnauthorizedError):
        world.plan(SCHEMA, password="other")
    world.write([[batch(1, 1)]], SCHEMA, password="secret")


def test_a_log_is_not_created_with_settings_that_no_ledger_could_have(world: World) -> None:
    """Its settings would stay, and refuse every later write that does not name its own."""
    with pytest.raises(NotEnoughBookiesError):
        world.plan(SCHEMA, ensembleSize="9")

    with pytest.raises(NoSuchLogError):
        world.nodes()


def test_a_first_write_that_cannot_read_its_password_leaves_no_log(
    world: World, tmp_path: Path
) -> None:
    with pytest.raises(OptionsError, match="option passwordFile"):
        world.plan(SCHEMA, passwordFile=str(tmp_path / "none"))

    with pytest.raises(NoSuchLogError):
        world.nodes()


def test_columns_that_differ_in_case_only_make_no_log(world: World) -> None:
    twins = StructType([StructField("id", LongType()), StructField("ID", LongType())])

    with pytest.raises(SchemaMismatchError, match="stands twice, case apart"):
        world.plan(twins)

    with pytest.raises(NoSuchLogError):
        world.nodes()
