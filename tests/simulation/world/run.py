"""One seed, from an empty cluster to a verdict: chaos, healing, liveness, checks.

After the chaos the network is sound, every bookie runs (but for one the atlas may leave dead) and
the metadata answers. Then whoever still works must come to an end, every ledger must close by
recovery without an operator within a bounded time, and a fresh reader must be able to read it all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, replace

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.settings import ClientSettings
from tests.simulation.kit.loop import NothingLeftError, SimLoop
from tests.simulation.world.checkers import violations_of
from tests.simulation.world.cluster import SimClient, World, fork
from tests.simulation.world.faults import Nemesis, Swarm, draw_swarm
from tests.simulation.world.garbage import keeps_garbage
from tests.simulation.world.healing import Healers, HealingPlan, draw_healing, until_whole
from tests.simulation.world.history import History, Opened, PhaseBegun
from tests.simulation.world.lines import Carrier
from tests.simulation.world.marks import marks_of
from tests.simulation.world.space import Filler, SpacePlan, draw_space, gentle
from tests.simulation.world.stores import StoreFaults
from tests.simulation.world.workload import Workload

_CHAOS_US_MAX = 8_000_000
_LIVENESS_S_MAX = 90
"""Virtual time the healed cluster has for everything; actors' own limits are seconds."""
_SETTLED_S_MAX = 30
"""The same for its bookies; one that was sealed looks every five seconds whether it may start."""
_LAST_ROUNDS = 100
"""Of the loop, within which every task ends that is cancelled."""


@dataclass(slots=True)
class Outcome:
    """What a seed led to."""

    seed: int
    swarm: Swarm
    space: SpacePlan
    history: History
    violations: list[str]
    injected: Counter[str]
    marks: list[str]
    steps: int
    virtual_us: int
    carrier: Carrier

    @property
    def replay(self) -> str:
        carrier = "" if self.carrier is Carrier.MESSAGES else f"--{self.carrier.value} "
        return f"python -m tests.simulation {carrier}--seed {self.seed} --trace"


def run_seed(seed: int, *, carrier: Carrier = Carrier.MESSAGES) -> Outcome:
    """Run one seed in a loop of its own."""
    loop = SimLoop()
    if carrier is Carrier.RPC:
        loop.steps_max *= 4  # an entry is a message
    asyncio.set_event_loop(loop)
    try:
        swarm = draw_swarm(fork(seed, "swarm"))
        space = draw_space(fork(seed, "space plan"), swarm)
        if space.is_gentle:
            swarm = gentle(swarm)
        run = Run(loop, seed, swarm, space, draw_healing(fork(seed, "healing")), carrier)
        stuck = ""
        try:
            loop.run_until_complete(run.everything())
        except NothingLeftError as error:
            stuck = f"L3 EveryOperationEnds: {error}"
        outcome = run.outcome(stuck)
    finally:
        _end_everything(loop)
        asyncio.set_event_loop(None)
        loop.close()
    return outcome


def _end_everything(loop: SimLoop) -> None:
    """Leave nothing pending in the loop, whatever ended the run: Python would do so at a later time, and complain."""
    loop.steps_max *= 2
    for _ in range(_LAST_ROUNDS):
        for task in (pending := asyncio.all_tasks(loop)):
            task.cancel()
        if not pending:
            return
        loop.run_until_complete(asyncio.sleep(0))
    raise AssertionError(f"cancelled in vain: {asyncio.all_tasks(loop)}")


class Run:
    """The phases of one seed."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        swarm: Swarm,
        space: SpacePlan,
        healing: HealingPlan,
        carrier: Carrier,
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.swarm = swarm
        self.space = space
        self.healing = healing
        self.carrier = carrier
        self.violations: list[str] = []
        self._is_finished = False

    async def everything(self) -> None:
        """All phases in order."""
        self.world = World(
            self.loop,
            self.seed,
            plan=self.swarm.plan,
            bookies=self.swarm.bookies,
            heals=bool(self.healing.healers),
            carrier=self.carrier,
        )
        self.load = Workload(self.world, self.swarm, is_gentle=self.space.is_gentle)
        self.nemesis = Nemesis(self.world, self.swarm)
        self.filler = Filler(self.world, self.space)
        self.healers = Healers(self.world, self.healing)
        await self.world.start()
        self.healers.begin(self.nemesis.atlas)
        await self._chaos()
        await self._heal()
        if self.space.is_active:
            await self._serve_on_full_disks()
        self.filler.free_all()
        await self._within("L4 EveryBookieTakesEntries", self.world.settle(), _SETTLED_S_MAX)
        await self._within("L3 EveryOperationEnds", self._wind_down())
        await self._within("L1 EveryLedgerCloses", self._close_everything())
        if self.healing.healers:
            self.world.history.record(PhaseBegun("making whole"))
            self.healers.harm_at_last()
            await self._within("L8 EveryCopyIsThere", until_whole(self.world))
        await self._within("L7 SpaceComesBack", self._collect_everything(), _SETTLED_S_MAX)
        self._is_finished = True

    def outcome(self, stuck: str) -> Outcome:
        """The verdict."""
        world = self.world
        found = [stuck] if stuck else []
        found += self.violations + self.load.defects
        found += [f"an error escaped from a callback: {failure}" for failure in self.loop.failures]
        found += violations_of(world.history)
        return Outcome(
            self.seed,
            self.swarm,
            self.space,
            world.history,
            found,
            world.injected,
            marks_of(world.history, world.injected),
            self.loop.steps,
            self.loop.now_us,
            self.carrier,
        )

    # -- phases -----------------------------------------------------------------------------------------

    async def _chaos(self) -> None:
        world, swarm = self.world, self.swarm
        world.history.record(PhaseBegun("chaos"))
        world.network.faults = swarm.network
        world.weather.faults = swarm.store
        self.load.begin()
        nemesis = asyncio.create_task(self.nemesis.run(), name="nemesis")
        filler = asyncio.create_task(self.filler.run(), name="filler")
        end_us = self.loop.now_us + _CHAOS_US_MAX
        while self.load.is_busy and self.loop.now_us < end_us:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        self.nemesis.stop()
        nemesis.cancel()
        filler.cancel()

    async def _heal(self) -> None:
        world = self.world
        world.history.record(PhaseBegun("healing"))
        self.healers.may_die = False
        world.network.heal()
        world.weather.faults = StoreFaults()
        world.weather.out_until_us = 0
        kept_down = self.nemesis.atlas.may_stay_down
        if kept_down is not None:
            world.kept_down.append(kept_down)
            world.bookies[kept_down].kill()
        for client in world.clients:
            client.owner.resume()
        for bookie in world.bookies.values():
            bookie.heal()
            if bookie.name not in world.kept_down:
                bookie.start()

    async def _serve_on_full_disks(self) -> None:
        """Whatever is full still serves what it has, and says what it is."""
        world = self.world
        world.history.record(PhaseBegun("full"))
        await self._within("L5 EveryBookieSaysWhatItTakes", world.settle(), _SETTLED_S_MAX)
        settings = ClientSettings()
        connection = replace(settings.connection, add_timeout_ms=1_000, read_timeout_ms=1_000)
        reader = world.client("early reader", replace(settings, connection=connection))
        reading = reader.owner.start(self._read_closed(reader), reader.name)
        await self._within("L6 ReadsGoOn", reading, _SETTLED_S_MAX)
        reader.kill()

    async def _read_closed(self, client: SimClient) -> None:
        """Every ledger that is closed by now, unless it is deleted meanwhile."""
        async for ledger in client.ledgers.list_ledgers():
            while ledger not in self.load.deleted:
                reader = await self.load.open(client, ledger, recovery=False)
                if reader is not None and (
                    not reader.is_closed or await self.load.read_all(client, reader)
                ):
                    break
                await asyncio.sleep(0.3)

    async def _wind_down(self) -> None:
        """Whoever still works comes to an end; in some seeds by force."""
        world = self.world
        world.history.record(PhaseBegun("winding down"))
        if world.random("end").random() < 0.5:
            self.load.end()
            return
        self.load.is_over = True
        while self.load.is_busy:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.1)

    async def _close_everything(self) -> None:
        world = self.world
        world.history.record(PhaseBegun("liveness"))
        settings = ClientSettings()
        connection = replace(settings.connection, add_timeout_ms=1_000, read_timeout_ms=1_000)
        closer = world.client("closer", replace(settings, connection=connection))
        reader = world.client("reader", replace(settings, connection=connection))
        for client, act in ((closer, self._recover_all), (reader, self._read_all)):
            await client.owner.start(act(client), client.name)

    async def _collect_everything(self) -> None:
        """Of deleted ledgers no bookie keeps anything, nor an entry log that no ledger is in."""
        world = self.world
        world.history.record(PhaseBegun("collecting"))
        living = {ledger_id async for ledger_id in world.clients[-1].ledgers.list_ledgers()}
        for bookie in world.bookies.values():
            while bookie.name not in world.kept_down and keeps_garbage(bookie, living):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def _recover_all(self, client: SimClient) -> None:
        async for ledger in client.ledgers.list_ledgers():
            while not await self._recover_and_read(client, ledger):  # noqa: ASYNC110
                await asyncio.sleep(0.3)

    async def _recover_and_read(self, client: SimClient, ledger: int) -> bool:
        reader = await self.load.open(client, ledger, recovery=True)
        return reader is not None and await self.load.read_all(client, reader)

    async def _read_all(self, client: SimClient) -> None:
        """Once, by somebody who knows nothing but the ids."""
        async for ledger in client.ledgers.list_ledgers():
            reader = await self.load.open(client, ledger, recovery=False)
            if reader is None or not await self.load.read_all(client, reader):
                self.violations.append(f"I2 AckedReadable: ledger {ledger} is not readable whole")

    async def _within(
        self, claim: str, work: Awaitable[None], most_s: int = _LIVENESS_S_MAX
    ) -> None:
        try:
            async with asyncio.timeout(most_s):
                await work
        except TimeoutError:
            last = [event for event in self.world.history.events if not isinstance(event, Opened)]
            detail = self.world.still_lacking or (str(last[-1]) if last else "")
            self.violations.append(f"{claim}: not within {most_s} s; last {detail}")
        except BookKeeperError as error:
            self.violations.append(f"{claim}: {error!r}")
