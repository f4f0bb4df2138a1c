"""Those who keep a log small beside its writers: optimizers, retention, consumers that hold it back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.log.cleaning.optimize import Group, Instalment, Rewritten
from spark_bookkeeper.log.format.epoch import LedgerWritten
from spark_bookkeeper.log.format.model import Retention
from spark_bookkeeper.log.rules.grouping import GroupLimits
from spark_bookkeeper.log.rules.rewriting import rewritten
from tests.simulation.commits.history import Actor, CommitCalled, Planned
from tests.simulation.commits.others import SPAN_MS
from tests.simulation.commits.swarm import Swarm
from tests.simulation.commits.world import LOG, Process, ProcessDied, World

LIMITS = GroupLimits(target_bytes=900, ranges_min=2)
ROW_BYTES = 100


class Optimization:
    """One optimizer's instalment: its driver, and a process for each attempt at a group."""

    def __init__(self, world: World, name: str, swarm: Swarm) -> None:
        self.world = world
        self.name = name
        self.swarm = swarm
        self.driver = world.process(Actor(f"optimize {name}", "optimize"))
        self.stream = self.driver.stream

    async def run(self) -> None:
        """All of it."""
        if self.stream.one_in(self.swarm.driver_dies):
            self.driver.kill_in(1_000 * self.stream.below(200))
        await tolerant(self.driver, self._drive())

    async def _drive(self) -> None:
        instalment = await self.plan()
        if instalment is None:
            return
        found = await asyncio.gather(
            *(self.group(instalment, number) for number in range(len(instalment.groups)))
        )
        await self.commit(instalment, [one for one in found if one is not None])

    async def plan(self) -> Instalment | None:
        """What to rewrite."""
        instalment = await self.driver.layer.optimizer.plan(self.world.log_id, LOG, LIMITS)
        if instalment is not None:
            self.world.history.record(Planned(self.driver.actor, instalment.epoch.number))
        return instalment

    async def group(self, instalment: Instalment, number: int) -> Rewritten | None:
        """One group, at times by two attempts at once; the first to finish counts."""
        copies = [asyncio.ensure_future(self._try(instalment, number, 1))]
        if self.stream.one_in(self.swarm.speculation):
            copies.append(asyncio.ensure_future(self._try(instalment, number, 2)))
        done, pending = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        first = next(copy for copy in copies if copy in done).result()
        return await pending.pop() if first is None and pending else first

    async def _try(self, instalment: Instalment, number: int, attempt: int) -> Rewritten | None:
        try:
            return await self.attempt(instalment, number, attempt)
        except (BookKeeperError, ProcessDied) as failed:
            self.world.history.note(f"rewrite failed: {failed!r}")
            return None

    async def attempt(self, instalment: Instalment, number: int, attempt: int = 1) -> Rewritten:
        """One attempt at one group, in a process of its own."""
        epoch = instalment.epoch.number
        name = f"rewrite {self.name} g{number} a{attempt}"
        task = self.world.process(Actor(name, "rewrite", "", epoch, number, attempt))
        if task.stream.one_in(self.swarm.task_dies):
            task.kill_in(500 * task.stream.below(20))
        return await task.run(self._rewrite(task, instalment, number, attempt))

    async def _rewrite(
        self, task: Process, instalment: Instalment, number: int, attempt: int
    ) -> Rewritten:
        if task.stream.one_in(self.swarm.task_late):
            await asyncio.sleep(0.01 * task.stream.below(200))
        group, ledgers = instalment.groups[number], self.world.ledgers
        rows = self._rows(group)
        claim = task.layer.optimizer.claim(instalment, number, attempt)
        with claim.explain_refusals():
            ledger = await ledgers.create(task.store, claim.extra_operations)
        await ledgers.append(ledger, rows)
        await ledgers.close(ledger)
        count = len(rows)
        written = LedgerWritten(
            ledger.ledger_id, count - 1, count, ROW_BYTES * count, group[0].schema_id
        )
        return Rewritten(number, (rewritten(group, written),))

    def _rows(self, group: Group) -> list[str]:
        ledgers = self.world.ledgers
        rows: list[str] = []
        for item in group:
            if not ledgers.exists(item.ledger_id):
                raise NoSuchLedgerError(item.ledger_id)
            held: Sequence[str] = ledgers.made[item.ledger_id].rows
            rows += held[item.first_entry : item.last_entry + 1]
        return rows

    async def commit(self, instalment: Instalment, made: Sequence[Rewritten]) -> None:
        """Commit what tasks made, and note what was offered."""
        history, epoch = self.world.history, instalment.epoch.number
        offered = tuple(item.ledger_id for one in made for item in one.made)
        history.record(CommitCalled(self.driver.actor, epoch, "", offered, True))
        result = await self.driver.layer.optimizer.commit(instalment, made)
        history.marks["groups exchanged"] += result.groups
        history.marks["groups given up"] += result.given_up


async def optimizer(world: World, name: str, swarm: Swarm) -> None:
    """Optimizes now and then."""
    stream = world.choices.stream(f"optimizer {name}")
    for number in range(4):
        await asyncio.sleep(stream.below(SPAN_MS // 2) / 1000)
        await Optimization(world, f"{name}.{number}", swarm).run()


async def retainer(world: World) -> None:
    """Drops old rows by size or age, but none that a live consumer needs."""
    stream = world.choices.stream("retainer")
    for number in range(4):
        await asyncio.sleep(stream.below(SPAN_MS) / 1000)
        process = world.process(Actor(f"retain {number}", "retain"))
        if stream.one_in(4):
            process.kill_in(1_000 * stream.below(40))
        limits = Retention(
            size_bytes=ROW_BYTES * stream.below(8),
            time_ms=(None, 50, 400)[stream.below(3)],
            is_consumed_kept=True,
        )
        if stream.one_in(3):
            change = process.layer.change_retention(world.log_id, LOG, lambda _, to=limits: to)  # type: ignore[misc]
            await tolerant(process, change)
        else:
            await tolerant(process, process.layer.drop_expired(world.log_id, LOG, limits))


async def consumer(world: World, name: str) -> None:
    """Comes, reads on for a while, lapses, and comes again; at times it is forgotten."""
    stream = world.choices.stream(f"consumer {name}")
    for number in range(6):
        await asyncio.sleep(stream.below(SPAN_MS // 2) / 1000)
        process = world.process(Actor(f"consumer {name}.{number}", "consumer"))
        consumers = process.layer.consumers(world.log_id, LOG)
        if stream.one_in(4):
            await tolerant(process, consumers.forget(name))
            continue
        head = world.observer.head
        row = head.base_row + stream.below(head.next_row - head.base_row + 1)
        await tolerant(process, consumers.advance(name, row, 20 + stream.below(400)))
        world.history.marks["consumer was told"] += 1


async def tolerant(process: Process, work: Coroutine[Any, Any, object]) -> None:
    """Do it; what fails is tried again by others, another time."""
    try:
        await process.run(work)
    except (BookKeeperError, ProcessDied) as failed:
        process.world.history.note(f"{process.actor} failed: {failed!r}")
