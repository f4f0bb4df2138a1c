"""Planning a read: exactly the rows asked for, from head and chunks alone."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.store.operations import Node
from spark_bookkeeper.log.errors import DataLossError, NoSuchLogError
from spark_bookkeeper.log.format.columns import ColumnRange
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten
from spark_bookkeeper.log.format.serde import encode_head
from tests.doubles.stores import Script, ScriptedStore
from tests.spark_bookkeeper.log.world import LogWorld, message_of


async def append_many(
    world: LogWorld, log_id: int, count: int, columns: int = 0, *, name: str = "many"
) -> None:
    """One commit of ``count`` ledgers of ten rows that exist in the log's metadata only."""
    job = Job.of_batch(name)
    epoch = await world.logs.jobs.plan(log_id, "orders", job=job)
    bounds = tuple(ColumnRange(f"l_column_{index}", 1, 10**9) for index in range(columns))
    messages = [
        message_of(
            epoch,
            job,
            index,
            attempt=index,
            written=LedgerWritten(10**9 + index, 3, 10, 1_000, 0, bounds),
        )
        for index in range(count)
    ]
    await world.logs.committer.commit(messages, log="orders")


def chunks_read(script: Script) -> int:
    return sum("/chunks/" in path for path in script.paths("get"))


async def test_rows_select_the_ranges_that_hold_them(world: LogWorld, log_id: int) -> None:
    await append_many(world, log_id, 10)
    view = world.logs.view(log_id, log="orders")

    found = await view.ranges(15, 40)
    nothing = await view.ranges(20, 20)
    everything = await view.ranges()

    assert [item.first_row for item in found.ranges] == [10, 20, 30]
    assert (found.from_row, found.to_row) == (15, 40)
    assert nothing.ranges == ()
    assert len(everything.ranges) == 10


async def test_only_chunks_that_overlap_are_read(world: LogWorld, log_id: int) -> None:
    await append_many(world, log_id, 20_000)
    script = Script()

    found = await world.client(fault=script).view(log_id, log="orders").ranges(100_000, 100_010)

    assert [item.first_row for item in found.ranges] == [100_000]
    assert chunks_read(script) == 1


@pytest.mark.slow
@pytest.mark.parametrize("columns", [0, pytest.param(8, marks=pytest.mark.full)])
async def test_a_hundred_thousand_ranges_are_all_read(
    world: LogWorld, log_id: int, columns: int
) -> None:
    await append_many(world, log_id, 100_000, columns)

    found = await world.logs.view(log_id, log="orders").ranges()

    assert len(found.ranges) == 100_000


async def test_positions_are_resolved(world: LogWorld, log_id: int) -> None:
    await world.append(log_id, Job.of_batch("b-1"))
    await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
    view = world.logs.view(log_id, log="orders")

    assert await view.pin("earliest") == 20
    assert await view.pin("latest") == 40
    assert await view.pin(33) == 33
    for wrong in ("newest", -1):
        with pytest.raises(ValueError, match="position"):
            await view.pin(wrong)


async def test_trimmed_rows_are_an_error_unless_skipped(world: LogWorld, log_id: int) -> None:
    await world.append(log_id, Job.of_batch("b-1"))
    await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
    view = world.logs.view(log_id, log="orders")

    with pytest.raises(DataLossError, match="failOnDataLoss"):
        await view.ranges(5)
    skipped = await view.ranges(5, is_trimmed_skipped=True)
    before = await view.ranges(5, 15, is_trimmed_skipped=True)

    assert (skipped.from_row, skipped.to_row) == (20, 40)
    assert before.ranges == ()


async def test_rows_beyond_the_end_are_an_error_never_fewer_rows(
    world: LogWorld, log_id: int
) -> None:
    await world.append(log_id, Job.of_batch("b-1"))
    view = world.logs.view(log_id, log="orders")

    with pytest.raises(DataLossError):
        await view.ranges(0, 21)
    with pytest.raises(DataLossError):
        await view.ranges(21)
    with pytest.raises(ValueError, match="end before"):
        await view.ranges(10, 5)


async def test_reader_that_races_an_overwrite_starts_again(world: LogWorld, log_id: int) -> None:
    await append_many(world, log_id, 5_000)
    stale = await world.nodes(log_id).head()
    await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
    for name in world.tree.children(world.paths.log(log_id).chunks) or []:
        world.tree.delete(world.paths.log(log_id).chunk(name), None)

    old = encode_head(stale.head)
    store, synced = ScriptedStore(world.tree), Script()

    def from_the_past(path: str, node: Node | None) -> Node | None:
        if synced.paths("sync") or node is None or not path.endswith("/head"):
            return node
        return Node(old, stale.version, node.created_ms)

    store.fault, store.answer = synced, from_the_past
    view = world.client(store).view(log_id, log="orders")

    found = await view.ranges()

    assert sum(item.rows for item in found.ranges) == 20


async def test_chunk_that_is_lost_for_good_is_an_error(world: LogWorld, log_id: int) -> None:
    await append_many(world, log_id, 5_000)
    name = (world.tree.children(world.paths.log(log_id).chunks) or [])[0]
    world.tree.delete(world.paths.log(log_id).chunk(name), None)

    with pytest.raises(MetadataCorruptError, match=name):
        await world.visible(log_id)


async def test_reading_no_log_says_so() -> None:
    with pytest.raises(NoSuchLogError):
        await LogWorld().visible(77)


async def test_column_bounds_come_on_demand(world: LogWorld, log_id: int) -> None:
    await append_many(world, log_id, 3_000, columns=2)
    view = world.logs.view(log_id, log="orders")

    without = await view.ranges()
    one = await view.ranges(columns={"l_column_1"})

    assert without.ranges[0].columns == ()
    bounds = one.ranges[0].column("l_column_1")
    assert bounds is not None
    assert bounds.maximum == 10**9
    assert one.ranges[0].column("l_column_0") is None


async def test_rows_are_found_by_the_time_they_were_committed(world: LogWorld, log_id: int) -> None:
    times = [100, 200, 200, 350]
    for at, world.now_ms in enumerate(times):
        await world.append(log_id, Job.of_batch(f"b-{at}"))
    view = world.logs.view(log_id, log="orders")

    found = [(await view.row_at_time(ms)).row for ms in (0, 100, 101, 200, 201, 350, 351)]

    assert found == [0, 0, 20, 20, 60, 60, None]


async def test_a_log_without_rows_has_none_at_any_time(world: LogWorld, log_id: int) -> None:
    assert (await world.logs.view(log_id, log="orders").row_at_time(0)).row is None
    with pytest.raises(NoSuchLogError):
        await world.logs.view(77, log="orders").row_at_time(0)


async def test_rows_by_time_are_found_through_one_chunk_per_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_bookkeeper.log.rules.transitions.REFS_MAX", 8)
    monkeypatch.setattr("spark_bookkeeper.log.rules.transitions.FOLD", 4)
    monkeypatch.setattr("spark_bookkeeper.log.rules.transitions.INLINE_BYTES_MAX", 128)
    monkeypatch.setattr("spark_bookkeeper.log.rules.transitions.CHUNK_BYTES_MAX", 512)

    world = LogWorld()
    log_id = await world.create_log()
    times: list[int] = []
    for at in range(60):
        # A clock that goes back counts as standing still.
        world.now_ms += (7, 0, 11, -5)[at % 4]
        await append_many(world, log_id, 5, name=f"b-{at}")
        times += [max([world.now_ms, *times[-1:]])] * 5
    script = Script()
    view = world.client(fault=script).view(log_id, log="orders")
    head = (await world.nodes(log_id).head()).head
    levels = max(ref.level for ref in head.chunks) + 1

    for wanted in range(times[0] - 1, times[-1] + 2):
        script.seen.clear()
        at = bisect_left(times, wanted)
        found = await view.row_at_time(wanted)
        assert found.row == (at * 10 if at < len(times) else None)
        assert chunks_read(script) <= levels
    assert levels > 1


async def test_a_search_by_time_that_races_an_overwrite_starts_again(
    world: LogWorld, log_id: int
) -> None:
    await append_many(world, log_id, 5_000)
    chunks = world.paths.log(log_id).chunks
    store, overwritten = ScriptedStore(world.tree), False

    async def overwrite_before_the_first_chunk_is_read(operation: str, path: str) -> None:
        nonlocal overwritten
        if operation == "get" and path.startswith(chunks) and not overwritten:
            overwritten = True
            await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
            for name in world.tree.children(chunks) or []:
                world.tree.delete(f"{chunks}/{name}", None)

    store.before = overwrite_before_the_first_chunk_is_read
    view = world.client(store).view(log_id, log="orders")

    found = (await view.row_at_time(0)).row

    assert found == 50_000
