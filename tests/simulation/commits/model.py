"""One schedule, from an empty log to a verdict: chaos, healing, everything collected, checks.

A schedule is its decisions: drawn from a seed and recorded, or replayed from a record
(:mod:`tests.simulation.kit.choices`). When whoever takes part is through, nothing is lost any more,
what is under way arrives, the log is freed of writers outside Spark, the clock leaps past every
timeout, and collections run: then nothing may be left but what is visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.log.format.epoch import Job, Txn
from spark_bookkeeper.log.rules import chunks
from tests.simulation.commits import others, upkeep
from tests.simulation.commits.checkers import violations_of
from tests.simulation.commits.history import Actor, Escaped, History, Left, Stuck
from tests.simulation.commits.spark import Order, Query, write_once
from tests.simulation.commits.swarm import Swarm, draw_swarm
from tests.simulation.commits.world import DAY_MS, Process, ProcessDied, World
from tests.simulation.kit.choices import Choices, Record
from tests.simulation.kit.loop import NothingLeftError, SimLoop

CHAOS_S_MAX = 20
"""Virtual time until everything is healed, whoever still works."""
HEALED_S_MAX = 600
"""Virtual time everybody has to come to an end then; a stuck commit alone waits 40 s."""
LATE_S = 5
"""After that long every late mutation has arrived."""
COLLECTIONS = 2
"""The second one removes what only the first one's work made removable."""
STEPS_MAX = 3_000_000
Act = Callable[[World], Awaitable[None]]
"""What happens to the log."""


@dataclass(slots=True)
class Outcome:
    """What a schedule led to."""

    seed: int
    record: dict[str, list[int]]
    history: History
    violations: tuple[str, ...]
    steps: int


def run_schedule(seed: int, *, record: Record | None = None, is_traced: bool = False) -> Outcome:
    """Run one schedule in a loop of its own."""
    choices = Choices(seed, record)
    swarm = draw_swarm(choices.stream("swarm"))

    async def act(world: World) -> None:
        world.weather = swarm.weather
        world.ledgers.failing = swarm.bookies_away
        await _chaos(world, swarm)

    return run_world(choices, act, is_traced=is_traced, inline_bytes=swarm.inline_bytes)


def run_world(
    choices: Choices, act: Act, *, is_traced: bool = False, inline_bytes: int = 150
) -> Outcome:
    """Found a log, let ``act`` happen to it, heal, collect, check."""
    loop = SimLoop()
    loop.steps_max = STEPS_MAX
    asyncio.set_event_loop(loop)
    world = World(loop, choices, is_traced=is_traced)
    small = patch.multiple(
        chunks, INLINE_BYTES_MAX=inline_bytes, CHUNK_BYTES_MAX=200, REFS_MAX=4, FOLD=3
    )
    try:
        with small:
            loop.run_until_complete(_everything(world, act))
    except NothingLeftError as error:
        world.history.record(Stuck(str(error)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        world.history.record(Escaped(repr(error)))
    finally:
        _clear(world)
        asyncio.set_event_loop(None)
        loop.close()
    for failure in loop.failures:
        world.history.record(Escaped(f"from a callback: {failure}"))
    history = world.history
    return Outcome(choices.seed, choices.record, history, violations_of(history), loop.steps)


async def _everything(world: World, act: Act) -> None:
    await world.create_log()
    try:
        async with asyncio.timeout(HEALED_S_MAX):
            await act(world)
            _heal(world)
            await world.settle()
            await asyncio.sleep(LATE_S)
            world.script.deliver()
    except TimeoutError as late:
        world.history.record(Stuck(f"somebody never ends: {late}"))
        return
    await _clean(world)


def _heal(world: World) -> None:
    # Sessions hold the weather they were born into, so it is changed and not replaced.
    weather = world.weather
    weather.slow = weather.lost = weather.late = weather.stale = 0
    world.ledgers.failing = 0
    world.script.holds.clear()
    world.script.fates.clear()


async def _clean(world: World) -> None:
    """Nobody works any more: collect until nothing is left to collect, and say what is."""
    end = world.process(Actor("end", "end"))
    await _must(world, end, end.tail().close())
    for number in range(COLLECTIONS):
        # Each time: the log's own retention may drop what only the next collection deletes.
        world.jumped_ms += 8 * DAY_MS
        gc = world.process(Actor(f"gc end{number}", "gc"))
        await _must(world, gc, gc.collect())
    for what, names in world.observer.left().items():
        world.history.record(Left(what, names))
    head = world.observer.head
    reads = world.process(Actor("reader end", "reader"))
    await others.read_rows(world, reads, head.base_row, head.next_row)


async def _must(world: World, process: Process, work: Coroutine[Any, Any, object]) -> None:
    try:
        await process.run(work)
    except (BookKeeperError, ProcessDied) as failed:
        world.history.record(Stuck(f"{process.actor} failed in a healed world: {failed!r}"))


async def _chaos(world: World, swarm: Swarm) -> None:
    """Everybody at once."""
    stream, columns = world.choices.stream("cast"), world.choices.stream("columns")
    work = [_query(world, swarm, f"q{number}") for number in range(swarm.queries)]
    if swarm.batch_writes:
        for number in range(2 + stream.below(2)):
            rows = tuple(f"b{number}.{i}" for i in range(1 + stream.below(5)))
            is_overwrite = stream.one_in(swarm.overwrites)
            column = f"cb{number}" if columns.one_in(swarm.evolutions) else ""
            order = Order(f"b{number}", Job.of_batch(f"b{number}"), rows, is_overwrite, column)
            work.append(_after(stream.below(900), write_once(world, swarm, order, f"b{number}")))
    work += [others.collector(world, str(number)) for number in range(swarm.collections)]
    work += [others.reader(world, str(number)) for number in range(swarm.readers)]
    if swarm.truncations:
        work.append(others.truncator(world))
    work += [upkeep.optimizer(world, str(number), swarm) for number in range(swarm.optimizations)]
    work += [upkeep.consumer(world, f"c{number}") for number in range(swarm.consumers)]
    if swarm.retentions:
        work.append(upkeep.retainer(world))
    if swarm.writers:
        work += [others.writer(world, f"w{number}") for number in range(swarm.writers)]
    work.append(others.clock(world, swarm))
    tasks = [asyncio.ensure_future(each) for each in work]
    _, pending = await asyncio.wait(tasks, timeout=CHAOS_S_MAX)
    _heal(world)
    if pending:
        # A log left to a writer that died blocks Spark until somebody frees it.
        freeing = world.process(Actor("takeover", "end"))
        await _must(world, freeing, freeing.tail().close())
    for task in tasks:
        await task


async def _query(world: World, swarm: Swarm, name: str) -> None:
    stream = world.choices.stream(f"orders {name}")
    columns = world.choices.stream(f"columns {name}")
    orders = []

    def job(query_id: str, batch: int) -> Job:
        if swarm.is_foreach:
            return Job.of_batch("unused", Txn(f"app {name}", batch, query_id=query_id))
        return Job.of_stream(query_id, batch)

    for batch in range(swarm.batches):
        rows = tuple(f"{name}.{batch}.{i}" for i in range(stream.below(7)))
        is_overwrite = stream.one_in(swarm.overwrites)
        column = f"c{name}" if columns.one_in(swarm.evolutions) else ""
        orders.append(Order(f"{name}/{batch}", job(name, batch), rows, is_overwrite, column))
    await Query(world, swarm, name, orders).run()
    if stream.one_in(3):
        # The checkpoint was deleted: another query id, the same source from its beginning.
        again = f"{name}again"
        rows = tuple(f"again {row}" for row in orders[0].rows)
        await write_once(world, swarm, Order(f"{again}/0", job(again, 0), rows), again)


async def _after(delay_ms: int, work: Awaitable[None]) -> None:
    await asyncio.sleep(delay_ms / 1000)
    await work


def _clear(world: World) -> None:
    """End every process, so that nothing is left pending in the loop."""
    world.loop.steps_max = 2 * STEPS_MAX
    for process in world.processes:
        process.owner.kill()
    for task in asyncio.all_tasks(world.loop):
        task.cancel()
    for _ in range(3):
        world.loop.run_until_complete(asyncio.sleep(0))
