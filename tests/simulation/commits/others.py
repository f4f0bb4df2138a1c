"""Who else is at a log: collections, truncation, writers outside Spark, readers, leaping clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import ExtraOperations
from spark_bookkeeper.ledger.errors import LedgerFencedError
from spark_bookkeeper.ledger.pending_adds import AppendCallback
from spark_bookkeeper.log.errors import DataLossError
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.writing.tail import Tenure
from tests.simulation.commits.history import Actor, Read, ReadRefused
from tests.simulation.commits.ledgers import SimLedger
from tests.simulation.commits.swarm import Swarm
from tests.simulation.commits.world import DAY_MS, HOUR_MS, LOG, Process, ProcessDied, World

SPAN_MS = 600
"""Virtual time over which they come by."""


async def collector(world: World, name: str) -> None:
    """Collects a few times, and may die in the middle."""
    stream = world.choices.stream(f"collector {name}")
    for number in range(8):
        await asyncio.sleep(stream.below(SPAN_MS // 3) / 1000)
        process = world.process(Actor(f"gc {name}.{number}", "gc"))
        if stream.one_in(6):
            process.kill_in(1_000 * stream.below(80))
        await _tolerant(process, process.collect())


async def clock(world: World, swarm: Swarm) -> None:
    """Leaps past the retention of garbage, or past the time any job may take."""
    stream = world.choices.stream("clock")
    for _ in range(4):
        await asyncio.sleep(stream.below(SPAN_MS) / 1000)
        if stream.one_in(swarm.clock_jumps):
            leap_ms = (2 * HOUR_MS, 8 * DAY_MS)[stream.below(2)]
            world.history.note(f"the clock leaps by {leap_ms // HOUR_MS} hours")
            world.history.marks["clock leapt"] += 1
            world.jumped_ms += leap_ms


async def truncator(world: World) -> None:
    """Drops the oldest rows now and then."""
    stream = world.choices.stream("truncator")
    for number in range(3):
        await asyncio.sleep(stream.below(SPAN_MS) / 1000)
        process = world.process(Actor(f"truncate {number}", "truncate"))
        if stream.one_in(4):
            process.kill_in(1_000 * stream.below(40))
        head = world.observer.head
        row = head.base_row + stream.below(head.next_row - head.base_row + 1)
        await _tolerant(process, process.truncate(row))


class _Appender:
    """The writer's side of a model ledger, as a tenure wants it; rows go in directly."""

    def __init__(self, ledger: SimLedger) -> None:
        self.ledger = ledger
        self.ledger_id = ledger.ledger_id
        self.payload_size_max = 1 << 20
        self.on_release: Callable[[int], None] | None = None

    def push(self, payloads: Sequence[bytes], complete: AppendCallback) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def abandon(self, error: BookKeeperError) -> None:
        raise NotImplementedError


async def writer(world: World, name: str) -> None:
    """A writer outside Spark: takes the log over, appends, rolls, and resigns or dies."""
    stream = world.choices.stream(f"writer {name}")
    await asyncio.sleep(stream.below(SPAN_MS) / 1000)
    process = world.process(Actor(f"writer {name}", "writer", f"writer-{name}"))
    if stream.one_in(2):
        process.kill_in(1_000 * stream.below(300))

    async def create(settings: LogSettings, extra_operations: ExtraOperations) -> _Appender:
        return _Appender(await world.ledgers.create(process.store, extra_operations))

    async def lead() -> None:
        own: set[int | None] = set()

        def check(found: int | None) -> None:
            if own and found not in own:
                raise LedgerFencedError(-1 if found is None else found)

        for number in range(1 + stream.below(3)):
            tenure: Tenure = await process.tail().follow(create, check=check)
            own.add(tenure.appender.ledger_id)
            ledger = world.ledgers.made[tenure.appender.ledger_id]
            rows = [f"{name}.{number}.{i}" for i in range(stream.below(4))]
            await world.ledgers.append(ledger, rows)
            await asyncio.sleep(0.01 * stream.below(20))
            await world.ledgers.close(ledger)
        await process.tail().close(only=frozenset(filter(None, own)))

    await _tolerant(process, lead())


async def reader(world: World, name: str) -> None:
    """Follows the log by row numbers: one process plans, another one reads; some rows twice."""
    stream = world.choices.stream(f"reader {name}")
    plans = world.process(Actor(f"reader {name}", "reader"))
    position = 0
    for number in range(10):
        await asyncio.sleep(stream.below(SPAN_MS // 2) / 1000)
        try:
            end = await plans.run(plans.layer.view(world.log_id, LOG).pin("latest"))
        except BookKeeperError:
            continue
        reads = world.process(Actor(f"reader {name}.{number}", "reader"))
        for from_row in {position, max(0, position - stream.below(3))}:
            await read_rows(world, reads, from_row, max(from_row, end))
        position = max(position, end, world.observer.head.base_row)


async def read_rows(world: World, process: Process, from_row: int, to_row: int) -> None:
    """Read rows and note what came of it."""
    history, observer = world.history, world.observer
    before = observer.head
    try:
        rows = await process.run(_read(process, from_row, to_row))
    except DataLossError:
        after = observer.head
        was_there = before.base_row <= from_row and to_row <= before.next_row
        still_is = after.base_row <= from_row and to_row <= after.next_row
        history.record(ReadRefused(process.actor, from_row, to_row, was_there and still_is))
        history.marks["read refused"] += 1
    except (BookKeeperError, ProcessDied) as failed:
        history.note(f"{process.actor} failed: {failed!r}")
    else:
        history.record(Read(process.actor, from_row, to_row, rows))
        history.marks["rows read"] += len(rows) > 0


async def _read(process: Process, from_row: int, to_row: int) -> tuple[str, ...]:
    world = process.world
    found = await process.layer.view(world.log_id, LOG).ranges(from_row, to_row)
    rows: list[str] = []
    for part in found.ranges:
        if not world.ledgers.exists(part.ledger_id):
            raise NoSuchLedgerError(part.ledger_id)
        held = world.ledgers.made[part.ledger_id].rows[: part.rows]
        first, last = max(from_row, part.first_row), min(to_row, part.next_row)
        rows += held[first - part.first_row : last - part.first_row]
    return tuple(rows)


async def _tolerant(process: Process, work: Coroutine[Any, Any, None]) -> None:
    """Do it; what fails is tried again by others, another time."""
    try:
        await process.run(work)
    except (BookKeeperError, ProcessDied, ValueError) as failed:
        process.world.history.note(f"{process.actor} failed: {failed!r}")
