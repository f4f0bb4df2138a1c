"""Planning a read: exactly the rows asked for, from head and chunks alone."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.store.operations import Node
from spark_bookkeeper.log.errors import DataLossError, NoSuchLogError
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.serde import encode_head
from spark_bookkeeper.log.reading.view import LogView
from tests.doubles.stores import Script, ScriptedStore
from tests.spark_bookkeeper.log.world import LogWorld, shrink_chunks


def chunks_read(script: Script) -> int:
    return sum("/chunks/" in path for path in script.paths("get"))


def delete_chunks(world: LogWorld) -> None:
    """As a collection does when nothing refers to them any more."""
    for name in world.chunks():
        world.tree.delete(world.nodes().tree.chunk(name), None)


@pytest.fixture
async def overwritten(world: LogWorld) -> LogView:
    """A log of the rows 20 to 39."""
    await world.append(Job.of_batch("b-1"))
    await world.append(Job.of_batch("b-2"), is_overwrite=True)
    return world.view()


async def test_rows_select_the_ranges_that_hold_them(world: LogWorld) -> None:
    await world.append_many(10)
    view = world.view()

    found = await view.ranges(15, 40)

    assert [item.first_row for item in found.ranges] == [10, 20, 30]
    assert (found.from_row, found.to_row) == (15, 40)
    assert (await view.ranges(20, 20)).ranges == ()
    assert len((await view.ranges()).ranges) == 10


async def test_only_chunks_that_overlap_are_read(world: LogWorld) -> None:
    await world.append_many(20_000)
    script = Script()

    found = await world.session(fault=script).view().ranges(100_000, 100_010)

    assert [item.first_row for item in found.ranges] == [100_000]
    assert chunks_read(script) == 1


@pytest.mark.slow
@pytest.mark.parametrize("columns", [0, pytest.param(8, marks=pytest.mark.full)])
async def test_a_hundred_thousand_ranges_are_all_read(world: LogWorld, columns: int) -> None:
    await world.append_many(100_000, columns)

    assert len(await world.visible()) == 100_000


async def test_positions_are_resolved(overwritten: LogView) -> None:
    assert await overwritten.pin("earliest") == 20
    assert await overwritten.pin("latest") == 40
    assert await overwritten.pin(33) == 33
    for wrong in ("newest", -1):
        with pytest.raises(ValueError, match="position"):
            await overwritten.pin(wrong)


async def test_trimmed_rows_are_an_error_unless_skipped(overwritten: LogView) -> None:
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        await overwritten.ranges(5)
    skipped = await overwritten.ranges(5, is_trimmed_skipped=True)
    before = await overwritten.ranges(5, 15, is_trimmed_skipped=True)

    assert (skipped.from_row, skipped.to_row) == (20, 40)
    assert before.ranges == ()


async def test_rows_beyond_the_end_are_an_error_never_fewer_rows(world: LogWorld) -> None:
    await world.append(Job.of_batch("b-1"))
    view = world.view()

    with pytest.raises(DataLossError):
        await view.ranges(0, 21)
    with pytest.raises(DataLossError):
        await view.ranges(21)
    with pytest.raises(ValueError, match="end before"):
        await view.ranges(10, 5)


async def test_reader_that_races_an_overwrite_starts_again(world: LogWorld) -> None:
    await world.append_many(5_000)
    stale = await world.nodes().head()
    await world.append(Job.of_batch("b-2"), is_overwrite=True)
    delete_chunks(world)

    old = encode_head(stale.head)
    store, synced = ScriptedStore(world.tree), Script()

    def from_the_past(path: str, node: Node | None) -> Node | None:
        if synced.paths("sync") or node is None or not path.endswith("/head"):
            return node
        return Node(old, stale.version, node.created_ms)

    store.fault, store.answer = synced, from_the_past

    assert await world.session(store).rows() == 20


async def test_chunk_that_is_lost_for_good_is_an_error(world: LogWorld) -> None:
    await world.append_many(5_000)
    name = world.chunks()[0]
    world.tree.delete(world.nodes().tree.chunk(name), None)

    with pytest.raises(MetadataCorruptError, match=name):
        await world.visible()


async def test_reading_no_log_says_so() -> None:
    view = LogWorld().logs.view(77, "orders")

    with pytest.raises(NoSuchLogError):
        await view.ranges()
    with pytest.raises(NoSuchLogError):
        await view.row_at_time(0)


async def test_column_bounds_come_on_demand(world: LogWorld) -> None:
    await world.append_many(3_000, columns=2)
    view = world.view()

    without = await view.ranges()
    one = await view.ranges(columns={"l_column_1"})

    assert without.ranges[0].columns == ()
    bounds = one.ranges[0].column("l_column_1")
    assert bounds is not None
    assert bounds.maximum == 10**9
    assert one.ranges[0].column("l_column_0") is None


async def test_rows_are_found_by_the_time_they_were_committed(world: LogWorld) -> None:
    view = world.view()
    assert (await view.row_at_time(0)).row is None

    for at, world.now_ms in enumerate([100, 200, 200, 350]):
        await world.append(Job.of_batch(f"b-{at}"))

    found = [(await view.row_at_time(ms)).row for ms in (0, 100, 101, 200, 201, 350, 351)]
    assert found == [0, 0, 20, 20, 60, 60, None]


async def test_rows_by_time_are_found_through_one_chunk_per_level(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_chunks(monkeypatch, inline=128, chunk=512, refs=8, fold=4)
    times: list[int] = []
    for at in range(60):
        # A clock that goes back counts as standing still.
        world.now_ms += (7, 0, 11, -5)[at % 4]
        await world.append_many(5, name=f"b-{at}")
        times += [max([world.now_ms, *times[-1:]])] * 5
    script = Script()
    view = world.session(fault=script).view()
    levels = max(ref.level for ref in (await world.head()).chunks) + 1

    for wanted in range(times[0] - 1, times[-1] + 2):
        script.seen.clear()
        at = bisect_left(times, wanted)
        found = await view.row_at_time(wanted)
        assert found.row == (at * 10 if at < len(times) else None)
        assert chunks_read(script) <= levels
    assert levels > 1


async def test_a_search_by_time_that_races_an_overwrite_starts_again(world: LogWorld) -> None:
    await world.append_many(5_000)
    store, overwritten = ScriptedStore(world.tree), False

    async def overwrite_before_the_first_chunk_is_read(operation: str, path: str) -> None:
        nonlocal overwritten
        if operation == "get" and "/chunks/" in path and not overwritten:
            overwritten = True
            await world.append(Job.of_batch("b-2"), is_overwrite=True)
            delete_chunks(world)

    store.before = overwrite_before_the_first_chunk_is_read

    assert (await world.session(store).view().row_at_time(0)).row == 50_000
