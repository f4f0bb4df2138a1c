"""World: one log, its metadata service with a past, model ledgers, and processes that come and go.

The log layer is the product's own - plans, claims, commits, sweeps, collections, truncation,
take-over - one :class:`Process` each with a session of its own. A world decides nothing: who does
what when is in :mod:`tests.simulation.commits.spark` and :mod:`tests.simulation.commits.others`,
what goes wrong in the swarm or in a directed schedule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

from bookkeeper_metadata.foundation.backoff import backoff_ms
from bookkeeper_metadata.model import Fragment, LedgerMetadata, LedgerState
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.settings import RetentionSettings
from spark_bookkeeper.log.writing.tail import LogTail
from tests.simulation.commits.history import Actor, History
from tests.simulation.commits.ledgers import Ledgers
from tests.simulation.commits.observer import Observer
from tests.simulation.commits.script import Script
from tests.simulation.commits.sessions import Session, Weather
from tests.simulation.commits.tree import PREFIX, ROOT, PastTree
from tests.simulation.kit.choices import Choices
from tests.simulation.kit.loop import Owner, SimLoop

T = TypeVar("T")
LOG = "orders"
EPOCH_MS = 1_700_000_000_000
"""Wall clock at the beginning of a run."""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class ProcessDied(Exception):
    """Whoever was to answer is gone."""


class World:
    """Everything of one run; made inside its loop."""

    def __init__(self, loop: SimLoop, choices: Choices, *, is_traced: bool = False) -> None:
        self.loop = loop
        self.choices = choices
        self.jumped_ms = 0
        self.history = History(lambda: loop.now_us, is_traced=is_traced)
        self.tree = PastTree(self.clock_ms)
        self.tree.make_parents(f"{PREFIX}0")
        self.weather = Weather()
        self.script = Script()
        self.observer = Observer(self.tree, self.history, self.clock_ms)
        self.ledgers = Ledgers(
            self.tree, choices.stream("ledgers"), self.history, self.observer.token_of
        )
        self.processes: list[Process] = []
        self._names: set[str] = set()

    def clock_ms(self) -> int:
        """Everybody's wall clock."""
        return EPOCH_MS + self.jumped_ms + self.loop.now_us // 1000

    async def create_log(self) -> None:
        """Create the log all is about."""
        founder = self.process(Actor("founder", "end"))
        self.log_id = await founder.layer.catalog.create(
            LOG, LogSettings(payload_format="raw"), b"schema"
        )
        tree = founder.nodes().tree
        self.history.prefix = tree.root
        self.observer.watch(tree)

    def process(self, actor: Actor) -> Process:
        """A new process; its name must be new too."""
        assert actor.name not in self._names, f"there is a process {actor.name} already"
        self._names.add(actor.name)
        process = Process(self, actor)
        self.processes.append(process)
        return process

    async def settle(self) -> None:
        """Wait until no process does anything any more."""
        while any(process.is_busy for process in self.processes):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


class Process:
    """One process: a session, the log layer over it, and whatever it runs."""

    def __init__(self, world: World, actor: Actor) -> None:
        self.world = world
        self.actor = actor
        self.owner = Owner(actor.name)
        self.stream = world.choices.stream(actor.name)
        self.store = Session(
            world.tree,
            actor,
            self.stream,
            weather=world.weather,
            script=world.script,
            observer=world.observer,
        )
        self.layer = LogLayer(
            self.store,
            ROOT,
            fence=self._fence,
            delete_ledger=self._delete,
            clock_ms=world.clock_ms,
            random=Random(len(world.processes)),
            retention=RetentionSettings(),
            pause=self._pause,
        )

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this as this process.

        Raises:
            ProcessDied: it was killed meanwhile.
        """
        task = self.owner.start(work, self.actor.name)
        await asyncio.wait([task])
        if task.cancelled():
            raise ProcessDied(self.actor.name)
        return task.result()  # type: ignore[no-any-return]

    def kill(self) -> None:
        """End it without a word; what it sent is on its way."""
        self.world.history.note(f"{self.actor} is killed")
        self.world.history.marks[f"{self.actor.kind} killed"] += 1
        self.owner.kill()

    def kill_in(self, delay_us: int) -> None:
        """The same later, unless it has ended by then."""
        self.world.loop.after(delay_us, self._kill_if_busy)

    def nodes(self) -> LogNodes:
        """The log's nodes as this process reads them."""
        return self.layer.nodes(self.world.log_id, LOG)

    async def collect(self) -> None:
        """Collect what the log no longer needs."""
        await self.layer.collector.collect(self.world.log_id, log=LOG)

    async def truncate(self, before_row: int) -> None:
        """Drop the log's oldest rows."""
        await self.layer.truncate(self.world.log_id, LOG, before_row)

    def tail(self) -> LogTail:
        """The log's open end."""
        return LogTail(self.nodes(), self._recover, clock_ms=self.world.clock_ms, pause=self._pause)

    @property
    def is_busy(self) -> bool:
        """Whether it still does anything."""
        return any(not task.done() for task in self.owner.tasks)

    def _kill_if_busy(self) -> None:
        if not self.owner.is_dead and self.is_busy:
            self.kill()

    async def _fence(self, ledger_id: int) -> None:
        await self.world.ledgers.fence(ledger_id, self.actor)

    async def _delete(self, ledger_id: int) -> None:
        await self.world.ledgers.delete(ledger_id, self.actor)

    async def _recover(self, ledger_id: int) -> LedgerMetadata:
        await self._fence(ledger_id)
        rows = len(self.world.ledgers.made[ledger_id].rows)
        return LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            fragments=(Fragment(0, ("b:1",)),),
            state=LedgerState.CLOSED,
            last_entry=rows - 1,
            length=100 * rows,
        )

    async def _pause(self, retry: int) -> None:
        await asyncio.sleep((1 + backoff_ms(retry, _Drawn(self))) / 1000)


class _Drawn(Random):
    """What a pause needs of a generator, from the process's own decisions."""

    def __init__(self, process: Process) -> None:
        super().__init__(0)
        self._stream = process.stream

    def randint(self, a: int, b: int) -> int:
        return self._stream.between(a, b)
