"""Faults: what may go wrong in a run, how much of it at once, and the nemesis that brings it about.

Each seed enables a random subset of fault classes at random rates (a *swarm*), because all of them
always hide bugs that need quiet elsewhere. The classes are those of the fault model (F1-F19 in the
names; a disk that is full for a while comes with read-only mode, beside "full"). An *atlas* bounds the damage: stored bytes rot on one bookie only, and only where every
ledger keeps two copies; otherwise a loss would prove nothing.

Two ways to choose the moment: a clock, and *aim* - when the history shows a certain event, a
process that took part is killed. Random moments alone miss the bugs that live in short windows.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from random import Random

from tests.simulation.world import history as h
from tests.simulation.world.bookies import SimBookie
from tests.simulation.world.cluster import World
from tests.simulation.world.network import NetworkFaults
from tests.simulation.world.plan import BookiePlan
from tests.simulation.world.stores import StoreFaults
from tests.simulation.world.workers import DiskPace

QUORUMS = (
    (3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 2, 1), (3, 3, 3), (3, 3, 1), (5, 3, 2), (5, 3, 2), (4, 3, 2),
    (4, 2, 2), (2, 2, 2), (2, 2, 1), (1, 1, 1),
)  # fmt: skip
"""E, WQ, AQ; striped ones among them."""

ACTIONS = (
    "kill", "stop", "power", "blackout", "disk", "full", "start", "rot", "clock", "pause bookie",
    "pause client", "kill client", "partition", "isolate", "outage", "expiry", "away", "wrong disks",
    "rival",
)  # fmt: skip
AIMS: dict[str, type[h.Event]] = {
    "fence": h.FenceDurable,
    "durable": h.Durable,
    "arrival": h.AddArrived,
    "commit": h.Committed,
    "fencing read": h.FencingReadSent,
    "read reply": h.ReadReplied,
    "lac reply": h.LacReplied,
    "start": h.BookieUp,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """What one seed may do."""

    bookies: int
    quorums: tuple[tuple[int, int, int], ...]
    actions: tuple[str, ...]
    mean_pause_us: int
    """Between two actions of the nemesis."""
    aims: tuple[tuple[str, int], ...]
    """(event, per thousand): how often such an event costs somebody their process."""
    network: NetworkFaults
    store: StoreFaults
    plan: BookiePlan
    away_at_first: int
    """Bookies that are away when the first ledger is created: known, and back some seconds later."""
    keeps_one_down: bool
    """Whether a bookie stays dead after the chaos, if every ledger can do without."""


def draw_swarm(random: Random) -> Swarm:
    """This seed's subset of faults."""

    def some(probability: float, low: int, high: int) -> int:
        drawn = random.randrange(low, high)
        return drawn if random.random() < probability else 0

    is_quiet = random.random() < 0.05
    actions = tuple(a for a in ACTIONS if random.random() < 0.35 and not is_quiet)
    aims = tuple(
        (aim, random.randrange(1, 60) if aim != "durable" else random.randrange(1, 12))
        for aim in AIMS
        if random.random() < 0.25 and not is_quiet
    )
    network = NetworkFaults(
        delay_us=random.choice((200, 500, 2_000, 10_000)),
        is_fifo=random.random() < 0.5,
        loss=some(0.3, 1, 100),
        duplication=some(0.3, 1, 200),
        holding_back=some(0.4, 1, 150),
        held_back_us=random.choice((300_000, 1_500_000, 4_000_000)),
        stragglers=some(0.4, 1, 200),
        straggler_us=random.choice((20_000, 200_000, 1_000_000)),
    )
    store = StoreFaults(
        delay_us=random.choice((300, 1_000, 5_000)),
        lost_requests=some(0.3, 1, 60),
        lost_replies=some(0.4, 1, 120),
        timeout_us=random.choice((50_000, 500_000)),
        stale_reads=some(0.3, 1, 300),
        lag_us=random.choice((20_000, 300_000, 2_000_000)),
    )
    pace = DiskPace(
        sync_us=random.choice((100, 300, 2_000, 10_000)),
        slow_permille=some(0.25, 1, 60),
        slow_us=random.choice((50_000, 500_000, 2_000_000)),
        prepares=random.random() < 0.5,
    )
    plan = BookiePlan(
        directories=random.choice((1, 1, 2)),
        checkpoint_interval_ms=random.choice((200, 1_000, 10_000)),
        session_timeout_us=random.choice((500_000, 2_000_000)),
        gc_interval_ms=random.choice((100, 200, 400, 1_000)),
        compaction_interval_ms=random.choice((100, 500, 2_000)),
        compaction_merge_count=random.choice((2, 2, 3, 8)),
        pace=pace,
    )
    quorums = tuple(random.choice(QUORUMS) for _ in range(2))
    needed = max(quorum[0] for quorum in quorums)
    return Swarm(
        bookies=min(7, needed + random.choice((0, 1, 1, 2))),
        quorums=quorums,
        actions=actions,
        mean_pause_us=random.choice((150_000, 400_000, 1_000_000)),
        aims=aims,
        network=network,
        store=store,
        plan=plan,
        away_at_first=random.choice((0, 0, 0, 1, 1, 2)) if not is_quiet else 0,
        keeps_one_down=random.random() < 0.3,
    )


class Atlas:
    """What may be harmed for good."""

    def __init__(self, swarm: Swarm, random: Random) -> None:
        # A bookie takes no write-back onto a copy it cannot read: somebody else has to.
        keeps_two_copies = all(
            aq >= 2 and (aq < wq or size < swarm.bookies) for size, wq, aq in swarm.quorums
        )
        does_without_one = all(2 <= aq < wq for _, wq, aq in swarm.quorums)
        victim = f"b{random.randrange(swarm.bookies)}:3181"
        self.may_rot = victim if keeps_two_copies else None
        """Its stored bytes may be damaged, or lost: every ledger has another copy."""
        loses = {"rot", "disk", "wrong disks", "rival"}
        is_alone = not loses.isdisjoint(swarm.actions)
        self.may_stay_down = victim if does_without_one and swarm.keeps_one_down else None
        """It may be gone for good; never one bookie rotten and another one gone."""
        if is_alone and self.may_stay_down is not None:
            self.may_rot = self.may_stay_down


class Nemesis:
    """Brings faults about until it is told to stop."""

    def __init__(self, world: World, swarm: Swarm) -> None:
        self.world = world
        self.swarm = swarm
        self.atlas = Atlas(swarm, world.random("atlas"))
        self._random = world.random("nemesis")
        self._aim = world.random("aim")
        self._aims = {AIMS[name]: rate for name, rate in swarm.aims}
        self._is_active = True
        if self.atlas.may_rot is not None:
            world.bookies[self.atlas.may_rot].operator.may_lose = True
        world.history.listeners.append(self._heard)

    async def run(self) -> None:
        """Act at random moments."""
        swarm, random = self.swarm, self._random
        for bookie in random.sample(list(self.world.bookies.values()), swarm.away_at_first):
            self._keep_away(bookie)
        if not swarm.actions:
            return
        while self._is_active:
            await asyncio.sleep(random.randrange(2 * swarm.mean_pause_us) / 1_000_000)
            self._act(random.choice(swarm.actions))

    def stop(self) -> None:
        """Do nothing any more."""
        self._is_active = False

    def _act(self, action: str) -> None:
        world, random = self.world, self._random
        bookie = random.choice(list(world.bookies.values()))
        match action:
            case "kill":
                world.count("F1 bookie killed", bookie.name)
                bookie.kill()
            case "stop":
                world.count("F1 bookie stopped in order", bookie.name)
                bookie.stop()
            case "power":
                world.count("F2 power lost", bookie.name)
                bookie.lose_power()
            case "blackout":
                world.count("F3 power lost everywhere", "all")
                for each in world.bookies.values():
                    each.lose_power()
            case "disk":
                self._break_disk(bookie)
            case "full":
                world.count("F5 disk full", bookie.name)
                bookie.fail_soon(errno.ENOSPC)
            case "start":
                world.count("F3 power lost while starting", bookie.name)
                bookie.lose_power()
                bookie.crash_soon(40)
            case "rot":
                self._rot()
            case "away":
                self._keep_away(bookie)
            case "wrong disks":
                bookie.operator.put_wrong_disks()
            case "rival":
                bookie.operator.start_rival()
            case "clock":
                world.count("F7 clock jumped", bookie.name)
                bookie.clock_skew_ms = random.randrange(-3_600_000, 3_600_000)
            case "pause bookie":
                pause_us = random.randrange(5_000_000)
                world.count("F9 bookie paused", bookie.name)
                bookie.owner.pause(world.loop.now_us + pause_us)
                if pause_us > self.swarm.plan.session_timeout_us:
                    bookie.expire()
            case "pause client" | "kill client":
                self._harm_client(action)
            case "partition" | "isolate":
                self._cut_off(action, bookie)
            case "outage":
                world.count("F13 metadata outage", "all")
                until_us = world.loop.now_us + random.randrange(3_000_000)
                world.weather.out_until_us = until_us
            case _:
                world.count("F12 session expired", bookie.name)
                bookie.expire()

    def _keep_away(self, bookie: SimBookie) -> None:
        """As a machine that is taken away for a while; its disks are as they were."""
        self.world.count("F1 bookie away", bookie.name)
        bookie.away_until_us = self.world.loop.now_us + self._random.randrange(500_000, 6_000_000)
        bookie.kill("away")

    def _break_disk(self, bookie: SimBookie) -> None:
        """EIO. A machine that then runs on may believe pages are stored that never were."""
        self.world.count("F4 write failed", bookie.name)
        bookie.fail_soon()
        bookie.reboots_on_failure = bookie.name != self.atlas.may_rot

    def _rot(self) -> None:
        if self.atlas.may_rot is not None:
            bookie = self.world.bookies[self.atlas.may_rot]
            self.world.count("F6 stored bit flipped", bookie.name)
            bookie.rot()
            bookie.may_tear = True
            bookie.lose_power()

    def _harm_client(self, action: str) -> None:
        clients = [client for client in self.world.clients if not client.owner.is_dead]
        if not clients:
            return
        client = self._random.choice(clients)
        if action == "kill client":
            self.world.count("F15 client killed", client.name)
            client.kill()
        else:
            self.world.count("F9 client paused", client.name)
            pause_us = self._random.randrange(4_000_000)
            client.owner.pause(self.world.loop.now_us + pause_us)

    def _cut_off(self, action: str, bookie: SimBookie) -> None:
        """Between one bookie and all clients, or one client and some bookies; one way or both."""
        world, random = self.world, self._random
        until_us = world.loop.now_us + random.randrange(100_000, 3_000_000)
        loses = random.random() < 0.6
        ways = random.choice(((True, True), (True, False), (False, True)))
        if action == "isolate":
            pairs = [(client.name, bookie) for client in world.clients]
        else:
            if not world.clients:
                return
            client = random.choice(world.clients)
            others = list(world.bookies.values())
            pairs = [(client.name, each) for each in others if random.random() < 0.5]
        kind = "F10 partition, both ways" if all(ways) else "F10 partition, one way"
        world.count(kind, " ".join(f"{name}/{each.name}" for name, each in pairs))
        for name, each in pairs:
            if ways[0]:
                world.network.block(name, each.name, until_us, loses=loses)
            if ways[1]:
                world.network.block(each.name, name, until_us, loses=loses)

    def _heard(self, event: h.Event) -> None:
        rate = self._aims.get(type(event))
        if rate is None or not self._is_active or self._aim.randrange(1000) >= rate:
            return
        # Not within the event: whoever it happened to is in the middle of it.
        self.world.loop.after(self._aim.randrange(3) * 200, self._strike, event)

    def _strike(self, event: h.Event) -> None:
        world = self.world
        if not self._is_active:
            return
        name = getattr(event, "bookie", None)
        client_name = getattr(event, "client", None)
        if name is not None and (client_name is None or self._aim.random() < 0.6):
            bookie = world.bookies[name]
            if self._aim.random() < 0.7:
                world.count("F2 power lost, aimed", name)
                if isinstance(event, h.AddArrived):
                    bookie.crash_soon(2)  # perhaps between its group's write and sync
                else:
                    bookie.lose_power()
            else:
                world.count("F1 bookie killed, aimed", name)
                bookie.kill()
            return
        for client in world.clients:
            if client.name == client_name and not client.owner.is_dead:
                world.count("F15 client killed, aimed", client_name)
                client.kill()
