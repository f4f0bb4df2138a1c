"""Who fills disks and frees them again, and who makes bookies read-only by hand.

Other data on a bookie's disk grows and shrinks at any moment, to a level that lies anywhere between
nothing free and plenty; some bookies are then started on the full disk. Drawn apart from the other
faults, so that it comes with any of them. Some runs are *gentle*: nothing else goes wrong in them, and
as many bookies as an ensemble needs never fill, so that nothing excuses a writer that ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from bookie_server.space.watch import LOOK_S
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.readonly import ReadonlyWishes
from tests.simulation.kit.loop import Owner
from tests.simulation.world import space_history as s
from tests.simulation.world.bookies import SimBookie
from tests.simulation.world.network import NetworkFaults
from tests.simulation.world.stores import ROOT, SimStore, StoreFaults
from tests.simulation.world.workers import DiskPace

if TYPE_CHECKING:
    from tests.simulation.world.cluster import World
    from tests.simulation.world.faults import Swarm

_KIB = 1024
LEVELS = (
    (0, 8), (0, 64), (64, 256), (64, 256), (128, 256), (256, 384), (256, 384), (320, 384), (384, 512),
    (512, 640),
)  # fmt: skip
"""KiB that are left free, from one to the other; the limits are those of the bookies' settings."""


MARGIN = 384, 512
"""Not enough for a bookie that was read-only to take entries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacePlan:
    """What one seed does to the free space of its bookies."""

    fills: bool = False
    by_hand: bool = False
    victims: int = 0
    """Bookies whose disks may fill, or that may be made read-only."""
    at_first: int = 0
    """Of these, so many begin full."""
    mean_pause_us: int = 500_000
    look_s: float = LOOK_S
    is_gentle: bool = False

    @property
    def is_active(self) -> bool:
        """Whether anything happens."""
        return self.fills or self.by_hand


def draw_space(random: Random, swarm: Swarm) -> SpacePlan:
    """This seed's part; ``swarm`` is what else goes wrong."""
    needed = max(quorum[0] for quorum in swarm.quorums)
    fills, by_hand = random.random() < 0.3, random.random() < 0.15
    is_gentle = random.random() < 0.2 and swarm.bookies > needed and (fills or by_hand)
    some = random.choice((random.randrange(1, swarm.bookies + 1), swarm.bookies))
    victims = swarm.bookies - needed if is_gentle else some
    return SpacePlan(
        fills=fills,
        by_hand=by_hand,
        victims=victims,
        at_first=random.randrange(victims + 1) if fills else 0,
        mean_pause_us=random.choice((150_000, 500_000, 1_200_000)),
        look_s=random.choice((LOOK_S, 0.1, 0.1)),
        is_gentle=is_gentle,
    )


def gentle(swarm: Swarm) -> Swarm:
    """The same cluster where nothing else goes wrong."""
    plan = replace(swarm.plan, pace=DiskPace())
    weather = {"network": NetworkFaults(), "store": StoreFaults()}
    quiet = {"actions": (), "aims": (), "away_at_first": 0, "keeps_one_down": False}
    return replace(swarm, plan=plan, **weather, **quiet)  # type: ignore[arg-type]


class Filler:
    """Acts upon a plan until it is told to stop."""

    def __init__(self, world: World, plan: SpacePlan) -> None:
        self._world = world
        self._plan = plan
        self._random = world.random("space")
        bookies = list(world.bookies.values())
        self._victims = self._random.sample(bookies, min(plan.victims, len(bookies)))
        self._owner = Owner("operator")
        self._store = SimStore(world.tree, self._owner, world.weather)
        if plan.is_active:
            for bookie in bookies:
                bookie.look_s = plan.look_s
        if plan.is_gentle:
            world.history.record(s.Gentle())

    async def run(self) -> None:
        """Act at random moments."""
        plan, random = self._plan, self._random
        if not plan.is_active:
            return
        for bookie in self._victims[: plan.at_first]:
            self._fill(bookie, starts=random.random() < 0.2)
        while True:
            await asyncio.sleep(random.randrange(2 * plan.mean_pause_us) / 1_000_000)
            bookie = random.choice(self._victims)
            if plan.by_hand and (not plan.fills or random.random() < 0.4):
                wish = self._wish(bookie, is_made=random.random() < 0.6)
                self._owner.start(wish, f"wish-{bookie.name}")
            elif random.random() < 0.4:
                self._world.count("F5 disk freed", bookie.name)
                low, high = MARGIN
                is_margin = random.random() < 0.4
                bookie.fill(random.randrange(low * _KIB, high * _KIB) if is_margin else None)
            else:
                self._fill(bookie, starts=random.random() < 0.1)

    def free_all(self) -> None:
        """Every disk has room, and nobody wants a bookie to be read-only."""
        self._owner.kill()
        for bookie in self._world.bookies.values():
            bookie.fill(None)
            path = Paths(ROOT).readonly_wish(bookie.name)
            if self._world.tree.node(path) is not None:
                self._world.tree.delete(path, None)

    def _fill(self, bookie: SimBookie, *, starts: bool) -> None:
        """``starts``: the bookie's process ends, so that the next one starts on what is left."""
        low, high = self._random.choice(LEVELS[:4] if starts else LEVELS)
        self._world.count("F5 disk filled", bookie.name)
        bookie.fill(self._random.randrange(low * _KIB, high * _KIB))
        if starts:
            bookie.kill("to start on a full disk")

    async def _wish(self, bookie: SimBookie, *, is_made: bool) -> None:
        wishes = ReadonlyWishes(self._store, ROOT)
        self._world.count("F5 read-only by hand" if is_made else "F5 writable by hand", bookie.name)
        with suppress(MetadataUnavailableError):  # done or not: the next one may succeed
            await (wishes.make if is_made else wishes.withdraw)(bookie.name)
