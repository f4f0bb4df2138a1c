"""Reading a log that somebody writes outside Spark: its open ledger up to what is confirmed of it."""

from __future__ import annotations

import json

import pytest

from spark_bookkeeper.ledger.errors import NoSuchEntryError
from spark_bookkeeper.log.errors import DataLossError, NoMatchingTimestampError
from tests.spark_bookkeeper.datasource.lag import Lag
from tests.spark_bookkeeper.datasource.rows import RAW, raw_batch
from tests.spark_bookkeeper.datasource.streaming import (
    EARLIEST,
    OutsideWriter,
    StreamQuery,
    drop_before,
    values,
)
from tests.spark_bookkeeper.datasource.world import FakeSpark


@pytest.fixture
def writer(world: FakeSpark) -> OutsideWriter:
    """Leads a log of two rows that Spark wrote."""
    world.write([[raw_batch(b"0", b"1")]], RAW, payloadformat="raw")
    return OutsideWriter(world)


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % at for at in range(first, end)]


def test_a_batch_read_includes_what_is_confirmed(writer: OutsideWriter) -> None:
    writer.append(*numbered(2, 7))
    writer.confirm(2)

    assert values(writer.world.read()) == numbered(0, 5)
    assert values(writer.world.read(startingoffsets='{"row":3}')) == numbered(3, 5)
    assert values(writer.world.read(startingoffsets="latest")) == []
    with pytest.raises(DataLossError, match="wanted_row=6 first_row=0 next_row=5"):
        writer.world.read(endingoffsets='{"row":6}')


def test_rows_of_the_open_ledger_are_numbered_through(writer: OutsideWriter) -> None:
    writer.append(*numbered(2, 5))

    found = writer.world.read(includemetadata="true")

    assert found["_position"].to_pylist() == list(range(5))
    assert found["_entry"].to_pylist() == [0, 1, 0, 1, 2]


def test_a_stream_follows_the_open_ledger_over_rolls(writer: OutsideWriter) -> None:
    query = StreamQuery(writer.world, **EARLIEST)
    found, row = values(query.trigger()), 2
    for _ in range(3):
        writer.append(*numbered(row, row + 2))
        found += values(query.trigger())
        writer.append(*numbered(row + 2, row + 3))
        writer.roll()
        writer.append(*numbered(row + 3, row + 4))
        found += values(query.trigger())
        row += 4

    assert found == numbered(0, 14)
    assert query.trigger() is None


def test_a_stream_goes_no_further_than_is_confirmed(writer: OutsideWriter) -> None:
    query = StreamQuery(writer.world, **EARLIEST)
    writer.append(*numbered(2, 7))
    writer.confirm(1)

    assert values(query.trigger()) == numbered(0, 4)
    assert query.trigger() is None
    assert query.follower.end_offset() == {"log": writer.world.nodes().log_id, "row": 4}
    writer.confirm(None)
    assert values(query.trigger()) == numbered(4, 7)


@pytest.mark.parametrize("change", ["nothing", "more", "roll", "roll twice", "close", "forgotten"])
def test_a_batch_planned_again_has_the_same_rows(writer: OutsideWriter, change: str) -> None:
    query = StreamQuery(writer.world, **EARLIEST, maxrowspertrigger="6", includemetadata="true")
    writer.append(*numbered(2, 5))
    query.trigger()
    writer.append(*numbered(5, 12))
    query.plan()
    before = query.read()
    writer.world.now_ms += 1_000

    if change == "more":
        writer.append(*numbered(12, 20))
    elif change.startswith("roll"):
        writer.append(*numbered(12, 14))
        writer.roll()
        writer.append(b"x")
        if change == "roll twice":
            writer.roll()
    elif change == "close":
        writer.close()
    elif change == "forgotten":
        writer.confirm(3)  # other bookies answer, who have heard of less
    query.restart()

    assert query.read().to_pylist() == before.to_pylist()
    assert values(before) == numbered(5, 11)


def test_bookies_that_know_of_less_than_was_read_move_no_stream_back(writer: OutsideWriter) -> None:
    query = StreamQuery(writer.world, **EARLIEST)
    writer.append(*numbered(2, 7))
    query.trigger()
    writer.confirm(1)
    query.restart()

    assert query.trigger() is None
    assert query.follower.end_offset() == {"log": writer.world.nodes().log_id, "row": 7}
    writer.append(b"7")
    writer.confirm(None)
    assert values(query.trigger()) == [b"7"]


@pytest.mark.parametrize("rolls", [1, 2])
def test_a_run_whose_metadata_lags_behind_the_checkpoint_reads_the_same_rows(
    writer: OutsideWriter, monkeypatch: pytest.MonkeyPatch, rolls: int
) -> None:
    query = StreamQuery(writer.world, **EARLIEST)
    writer.append(*numbered(2, 4))
    lag = Lag(writer.world, monkeypatch)
    for _ in range(rolls):
        writer.roll()
    writer.append(*numbered(4, 9))
    query.plan()
    before = values(query.read())
    query.restart()
    lag.begin()

    assert values(query.read()) == before == numbered(0, 9)
    assert lag.is_over


def test_a_run_whose_metadata_lags_behind_finds_nothing_new_yet(
    writer: OutsideWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = StreamQuery(writer.world, **EARLIEST)
    writer.append(*numbered(2, 4))
    lag = Lag(writer.world, monkeypatch)
    writer.roll()
    writer.append(*numbered(4, 9))
    query.trigger()
    query.restart()
    lag.begin()

    assert query.trigger() is None


def test_an_old_head_that_names_a_ledger_long_gone_is_looked_at_again(
    writer: OutsideWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag = Lag(writer.world, monkeypatch)
    gone = writer.ledger_id
    writer.append(*numbered(2, 4))
    writer.roll()
    drop_before(writer.world, 4)
    del writer.world.client.ledgers[gone]
    query = StreamQuery(writer.world, **EARLIEST)
    query.trigger()
    writer.append(*numbered(4, 6))
    query.restart()
    lag.begin()

    assert values(query.trigger()) == numbered(4, 6)


def test_a_position_behind_the_end_of_a_log_without_a_writer_is_data_loss(
    writer: OutsideWriter,
) -> None:
    query = StreamQuery(writer.world, **EARLIEST)
    query.trigger()
    writer.close()
    query.ends[-1] = json.dumps({"log": writer.world.nodes().log_id, "row": 50})

    with pytest.raises(DataLossError, match=r"wanted_row=50 first_row=0 next_row=2"):
        query.trigger()


def test_a_forged_position_in_the_open_ledger_reads_nothing_rather_than_less(
    writer: OutsideWriter,
) -> None:
    writer.append(*numbered(2, 4))
    query = StreamQuery(writer.world, **EARLIEST)
    query.ends = [json.dumps({"from": 0, "log": writer.world.nodes().log_id, "row": 50})]

    with pytest.raises(NoSuchEntryError):
        query.read()


def test_a_stream_begins_at_the_end_of_what_is_confirmed(writer: OutsideWriter) -> None:
    writer.append(*numbered(2, 5))
    query = StreamQuery(writer.world)
    assert values(query.trigger()) == []

    writer.append(*numbered(5, 7))

    assert values(query.trigger()) == numbered(5, 7)


def test_limits_cut_the_open_ledger_too(writer: OutsideWriter) -> None:
    writer.append(*[b"%04d" % at for at in range(98)])

    by_rows = StreamQuery(writer.world, **EARLIEST, maxrowspertrigger="30").available_now()
    by_bytes = StreamQuery(writer.world, **EARLIEST, maxbytespertrigger="100").available_now()

    assert [found.num_rows for found in by_rows] == [30, 30, 30, 10]
    assert [found.num_rows for found in by_bytes] == [26, 25, 25, 24]


def test_rows_without_a_time_yet_count_as_committed_since_any_time_past(
    writer: OutsideWriter,
) -> None:
    writer.append(*numbered(2, 5))
    writer.world.now_ms += 1_000
    past, future = str(writer.world.now_ms), str(writer.world.now_ms + 1)

    assert values(StreamQuery(writer.world, startingtimestamp=past).trigger()) == numbered(2, 5)
    assert values(writer.world.read(startingtimestamp=past)) == numbered(2, 5)
    assert values(writer.world.read(endingtimestamp=past)) == numbered(0, 2)
    with pytest.raises(NoMatchingTimestampError):
        StreamQuery(writer.world, startingtimestamp=future).trigger()
