"""The cursor a streaming query leaves for retention: behind what it read, never where it begins."""

from __future__ import annotations

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.log.cleaning.consumers import CursorHolder
from spark_bookkeeper.log.format.model import Cursor, Retention
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, ids
from tests.spark_bookkeeper.datasource.streaming import StreamQuery, append, rows
from tests.spark_bookkeeper.datasource.world import FakeSpark

OPTIONS = {"startingoffsets": "earliest", "consumer": "report", "maxrowspertrigger": "10"}
WEEK_MS = 7 * 86_400_000


@pytest.fixture(autouse=True)
def log(world: FakeSpark) -> None:
    world.write([[batch(0, 100)]], SCHEMA)


def cursor(world: FakeSpark, consumer: str = "report") -> Cursor | None:
    found = world.client.run(world.nodes().cursors()).get(consumer)
    return None if found is None else found.cursor


def is_live(world: FakeSpark) -> bool:
    return world.client.run(world.nodes().cursors())["report"].is_live(world.now_ms)


def test_a_cursor_is_there_before_anything_is_read(world: FakeSpark) -> None:
    query = StreamQuery(world, **{**OPTIONS, "startingoffsets": '{"row":40}'})
    assert cursor(world) is None

    query.plan()

    assert cursor(world) == Cursor(40, world.now_ms, WEEK_MS)


def test_a_new_query_begins_behind_what_went_before_its_cursor_was_there(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention comes between the look at the log and the cursor; after it, it waits."""
    append(world, 100, 1)
    limits = Retention(size_bytes=0, is_consumed_kept=True)
    log_id, heartbeat = world.nodes().log_id, CursorHolder.heartbeat
    dropped: list[int] = []

    async def dropping(holder: CursorHolder, row: int) -> None:
        dropped.append((await world.session.drop_expired(log_id, "orders", limits)).first_row)
        await heartbeat(holder, row)

    monkeypatch.setattr(CursorHolder, "heartbeat", dropping)
    query = StreamQuery(world, **OPTIONS)

    assert [rows(batch) for batch in query.available_now()] == [[100]]
    assert dropped[:2] == [100, 100]


def test_a_query_without_the_option_leaves_no_cursor(world: FakeSpark) -> None:
    StreamQuery(world, startingoffsets="earliest").available_now()

    assert world.client.run(world.nodes().cursors()) == {}


def test_the_cursor_stays_behind_what_is_committed(world: FakeSpark) -> None:
    query = StreamQuery(world, **OPTIONS)
    seen = []
    for _ in range(3):
        query.trigger()
        found = cursor(world)
        seen.append(found and found.row)

    assert seen == [0, 10, 20]


def test_a_restart_that_repeats_a_batch_moves_no_cursor_ahead_of_it(world: FakeSpark) -> None:
    query = StreamQuery(world, **OPTIONS)
    query.trigger()
    query.plan()
    query.restart()

    assert ids(query.read()) == list(range(10, 20))
    assert cursor(world) == Cursor(10, world.now_ms, WEEK_MS)
    query.trigger()
    query.plan()
    assert cursor(world) == Cursor(20, world.now_ms, WEEK_MS)


def test_a_query_begins_where_its_checkpoint_says_wherever_its_cursor_is(world: FakeSpark) -> None:
    first = StreamQuery(world, **OPTIONS)
    first.available_now()

    second = StreamQuery(world, **OPTIONS)

    assert rows(second.trigger()) == list(range(10))
    assert cursor(world) == Cursor(90, world.now_ms, WEEK_MS)


def test_a_query_that_finds_nothing_new_keeps_its_cursor_alive(world: FakeSpark) -> None:
    query = StreamQuery(world, **OPTIONS, consumertimeout="1h")
    query.available_now()

    for _ in range(48):
        world.now_ms += 450_000
        assert query.trigger() is None
        assert is_live(world)

    world.now_ms += 3_600_001
    assert not is_live(world)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_lost_reply_about_a_cursor_changes_no_rows(world: FakeSpark, fault: Fault) -> None:
    query = StreamQuery(world, **OPTIONS)
    query.trigger()
    world.client.store.fault = lambda name, path: fault if "consumers" in path else None
    with pytest.raises(MetadataUnavailableError):
        query.plan()
    world.client.store.fault = None
    query.restart()

    assert rows(query.trigger()) == list(range(10, 20))
