"""Who heals: processes of auto-recovery in some worlds, killed and started again like any other.

In these worlds the bookies end their limbo and look at what rests, too. Drawn apart from all else, so that
it comes with any of the faults. At the end every copy that the metadata promises has to be there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from bookie_server.core.presence import Presence
from bookie_server.core.shares import Share, shares_of
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.serde import parse_metadata
from spark_bookkeeper.replication.auto_recovery import run_auto_recovery
from spark_bookkeeper.replication.settings import ReplicationSettings
from spark_bookkeeper.settings import ClientSettings
from tests.simulation.world.history import Deleted
from tests.simulation.world.lines import HEALERS
from tests.simulation.world.stores import ROOT

if TYPE_CHECKING:
    from bookkeeper_metadata.model import LedgerMetadata
    from tests.simulation.world.bookies import SimBookie
    from tests.simulation.world.cluster import SimClient, World
    from tests.simulation.world.faults import Atlas

_BITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingPlan:
    """What one seed has of it."""

    healers: int = 0
    """Processes of auto-recovery; 0: nobody heals, and bookies do not try."""
    lost_bookie_delay_ms: int = 0
    open_ledger_grace_ms: int = 300
    mean_life_us: int = 0
    """How long one runs before it is killed; 0: to the end."""
    check_interval_ms: int = 1_500
    """Between two walks through all ledgers."""
    mean_rot_us: int = 0
    """Between two bits that rot in the entry logs of the one bookie whose disk may lose something; 0: none do."""
    last_harm: str = ""
    """What happens to that disk at last, when every ledger is closed: its bits ``rot``, or it is ``lost``."""


def draw_healing(random: Random) -> HealingPlan:
    """Most worlds are as they were: nobody heals."""
    if random.random() > 0.4:
        return HealingPlan()
    return HealingPlan(
        healers=random.choice((1, 1, 2, 3)),
        lost_bookie_delay_ms=random.choice((0, 0, 500, 3_000)),
        open_ledger_grace_ms=random.choice((0, 300, 2_000)),
        mean_life_us=random.choice((0, 0, 300_000, 1_500_000)),
        check_interval_ms=random.choice((1_500, 6_000, 20_000)),
        mean_rot_us=random.choice((0, 0, 200_000, 1_000_000)),
        last_harm=random.choice(("", "rot", "rot", "lost", "lost")),
    )


class Healers:
    """The processes of one world; ``begin`` starts them."""

    def __init__(self, world: World, plan: HealingPlan) -> None:
        self._world = world
        self._plan = plan
        self._random = world.random("healers")
        self._started = 0
        self._victim: str | None = None
        self.may_die = True
        """Until everything else is healed."""

    def begin(self, atlas: Atlas) -> None:
        """Start all of them."""
        for _ in range(self._plan.healers):
            self._start()
        if atlas.may_stay_down in (None, atlas.may_rot):
            self._victim = atlas.may_rot
        if self._plan.mean_rot_us and self._victim is not None:
            self._rot_later(self._victim)

    def harm_at_last(self) -> None:
        """All ledgers are closed: what happens now only a mender can put right."""
        if self._victim is None or self._victim in self._world.kept_down:
            return
        bookie = self._world.bookies[self._victim]
        self._world.count(f"healing after {self._plan.last_harm or 'nothing'}")
        match self._plan.last_harm:
            case "rot":
                for _ in range(_BITS):
                    bookie.rot_at_rest(self._random)
            case "lost":
                bookie.operator.lose_disks()
            case _:
                pass

    def _rot_later(self, name: str) -> None:
        pause_us = 1 + int(self._random.expovariate(1) * self._plan.mean_rot_us)
        self._world.loop.after(pause_us, self._rot, name)

    def _rot(self, name: str) -> None:
        if self.may_die:
            self._world.bookies[name].rot_at_rest(self._random)
            self._world.count("F6 stored bit flipped", name)
            self._rot_later(name)

    def _start(self) -> None:
        world, plan = self._world, self._plan
        settings = ClientSettings()
        connection = replace(settings.connection, add_timeout_ms=1_000, read_timeout_ms=1_000)
        self._started += 1
        client = world.client(
            f"{HEALERS} {self._started}", replace(settings, connection=connection)
        )
        healing = run_auto_recovery(
            client.ledgers.cluster,
            ReplicationSettings(
                lost_bookie_delay_ms=plan.lost_bookie_delay_ms,
                open_ledger_grace_ms=plan.open_ledger_grace_ms,
                bookie_check_interval_ms=2_000,
                replicas_check_interval_ms=plan.check_interval_ms,
                ledgers_check_interval_ms=2 * plan.check_interval_ms,
                retry_ms_min=100,
                retry_ms_max=1_000,
                poll_ms=100,
            ),
            holder=client.name,
            clock_ms=lambda: world.loop.now_us // 1_000,
        )
        client.owner.start(healing, client.name).add_done_callback(self._ended)
        if plan.mean_life_us:
            life_us = 1 + int(self._random.expovariate(1) * plan.mean_life_us)
            world.loop.after(life_us, self._kill, client)

    def _ended(self, process: asyncio.Task[None]) -> None:
        if not process.cancelled() and (error := process.exception()) is not None:
            self._world.loop.failures.append(f"healer: {error!r}")
        # Killed, by whomever: a supervisor starts another one.
        self._world.loop.after(self._random.randrange(10_000, 300_000), self._start)

    def _kill(self, client: SimClient) -> None:
        if self.may_die and not client.owner.is_dead:
            self._world.count("F1 healer killed")
            client.kill()


async def until_whole(world: World) -> None:
    """Wait until every copy is there that can be."""
    while lacking := what_lacks(world):
        world.still_lacking = lacking
        await asyncio.sleep(0.1)
    world.still_lacking = ""


def what_lacks(world: World) -> str:
    """The first copy that is not there and could be; none: nothing lacks."""
    deleted = {event.ledger for event in world.history.of(Deleted)}
    tree, paths = world.tree, Paths(ROOT)
    up = {name: each for name, each in world.bookies.items() if name not in world.kept_down}
    for path in tree.paths():
        ledger_id = paths.ledger_id(path)
        node = tree.node(path)
        if ledger_id is None or ledger_id in deleted or node is None:
            continue
        metadata = parse_metadata(node.value, path)
        for share in shares_of(metadata):
            if lack := _lack(up, ledger_id, metadata, share):
                return lack
    return ""


def _lack(up: dict[str, SimBookie], ledger_id: int, metadata: LedgerMetadata, share: Share) -> str:
    where = f"ledger {ledger_id} fragment {share.fragment.first_entry} on {share.bookie_id}"
    bookie = up.get(share.bookie_id)
    if bookie is None:
        spare = up.keys() - set(share.fragment.ensemble)
        return f"{where}: it is lost, and {sorted(spare)} could take its place" if spare else ""
    serving = bookie._bookie
    if serving is None:
        return f"{where}: it does not serve"
    if metadata.is_closed and ledger_id in serving.ledgers_in_limbo():
        return f"{where}: in limbo"
    first = share.fragment.first_entry
    while first <= share.last_entry:
        plan = serving.storage.contents.plan_read(
            ledger_id, first, share.last_entry, stripe=share.stripe, size_bytes_max=1 << 20
        )
        outcome = serving.storage.execute(plan)
        for span in outcome.spans:
            if span.presence in (Presence.ABSENT, Presence.DAMAGED):
                return f"{where}: entry {span.first} is {span.presence.name}"
        further = outcome.of(Presence.NOT_REACHED)
        if not further:
            break
        first = further[0][0]
    return ""
