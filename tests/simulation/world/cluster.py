"""World: bookies, clients, network and metadata of one simulated cluster on one virtual clock.

The client and bookie code is the product's own; what is simulated is what they stand on. A world
decides nothing about faults (:mod:`tests.simulation.world.faults`) or load
(:mod:`tests.simulation.world.workload`); it offers both their handles.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from random import Random

from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.endpoints import Endpoint
from bookkeeper_metadata.paths import Paths
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.settings import ClientSettings
from tests.simulation.kit.loop import Owner, SimLoop
from tests.simulation.world.bookies import SimBookie
from tests.simulation.world.history import History, Injected
from tests.simulation.world.lines import Carrier, Lines
from tests.simulation.world.network import Network, NetworkFaults, SimBookieClient
from tests.simulation.world.observed import ObservedClient
from tests.simulation.world.plan import BookiePlan
from tests.simulation.world.stores import (
    CLUSTER_ID,
    ROOT,
    ObservedTree,
    SimStore,
    StoreFaults,
    StoreWeather,
)


def fork(seed: int, label: str) -> Random:
    """A generator of its own for each use: a new draw in one place shifts none elsewhere."""
    return Random(zlib.crc32(label.encode()) << 64 | seed)


class SimClient:
    """A process with a ledger client and a metadata session of its own."""

    def __init__(self, world: World, name: str, settings: ClientSettings) -> None:
        self.name = name
        self.owner = Owner(name)
        self._world = world
        self.store = SimStore(world.tree, self.owner, world.weather)
        self.ledgers = LedgerClient(
            LedgerContext(
                self.store,
                ROOT,
                settings=settings,
                random=fork(world.seed, f"client {name}"),
                make_client=self._connect,
            )
        )

    def kill(self) -> None:
        """The process ends without a word."""
        self.owner.kill()
        self._world.tree.end_session(self.store.session_id)

    def _connect(
        self, bookie_id: str, endpoint: Endpoint, settings: ConnectionSettings
    ) -> BookieClient:
        return self._world.connect(self.owner, bookie_id, settings)


class World:
    """Everything of one run; made inside its loop."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        *,
        plan: BookiePlan,
        bookies: int,
        heals: bool = False,
        carrier: Carrier = Carrier.MESSAGES,
    ) -> None:
        """``carrier``: what brings requests to bookies."""
        self.loop = loop
        self.seed = seed
        self.heals = heals
        """Whether bookies look after what they may have lost."""
        self.still_lacking = ""
        """The copy that was waited for last."""
        self.history = History(lambda: loop.now_us)
        self.injected: Counter[str] = Counter()
        self.tree = ObservedTree(self.history)
        self.weather = StoreWeather(self.random("store"), StoreFaults(), self.count)
        self.network = Network(loop, self.random("network"), NetworkFaults(), self.count)
        self._lines: Lines | None = None
        if carrier is not Carrier.MESSAGES:
            self._lines = Lines(self.network, self.random("lines"), carrier)
        names = [f"b{number}:3181" for number in range(bookies)]
        self.bookies = {
            name: SimBookie(self, name, plan, self.random(f"bookie {name}")) for name in names
        }
        self.clients: list[SimClient] = []
        self.kept_down: list[str] = []
        """Bookies that stay down once they are."""
        self.downtime_us_max = 1_500_000
        self._downtime = self.random("downtime")

    def random(self, label: str) -> Random:
        """This seed's generator for one purpose."""
        return fork(self.seed, label)

    def count(self, fault: str, what: str = "") -> None:
        """Note a fault that was injected, by class."""
        self.injected[fault] += 1
        if what:
            self.history.record(Injected(fault, what))

    def client(self, name: str, settings: ClientSettings) -> SimClient:
        """A new client process."""
        client = SimClient(self, name, settings)
        self.clients.append(client)
        return client

    def connect(self, owner: Owner, bookie_id: str, settings: ConnectionSettings) -> BookieClient:
        """A process' client of a bookie."""
        bookie = self.bookies[bookie_id]
        client: BookieClient
        if self._lines is not None:
            client = self._lines.client(owner, bookie, settings)
        else:
            timeout_us = settings.add_timeout_ms * 1000
            client = SimBookieClient(self.network, owner, bookie, timeout_us)
        return ObservedClient(client, owner, self.history)

    async def start(self) -> None:
        """Found the cluster and wait for its bookies."""
        setup = SimStore(self.tree, Owner("setup"), self.weather)
        await initialize(setup, ROOT, random=self.random("cluster"))
        self.tree.put(Paths(ROOT).instance_id, CLUSTER_ID.encode(), 0)
        for bookie in self.bookies.values():
            bookie.start()
        await self.settle()

    async def settle(self) -> None:
        """Wait until every bookie that should serves, and is registered as what it takes: by itself, not by the
        process before it, for a start may still fail.
        """
        wanted = [bookie for name, bookie in self.bookies.items() if name not in self.kept_down]
        while not all(bookie.is_serving and self._is_registered_well(bookie) for bookie in wanted):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def _is_registered_well(self, bookie: SimBookie) -> bool:
        """In between, where promises or hysteresis count, a bookie may be registered as either."""
        paths = Paths(ROOT)
        is_writable, is_readonly = (
            bookie.name in (self.tree.children(path) or [])
            for path in (paths.available, paths.readonly)
        )
        is_own = bookie.is_registered and is_writable != is_readonly
        return is_own and bookie.takes_entries in (None, is_writable)

    def bookie_ended(self, bookie: SimBookie) -> None:
        """A supervisor starts it again after a while."""
        delay_us = self._downtime.randrange(10_000, self.downtime_us_max)
        self.loop.after(delay_us, self.restart, bookie)

    def restart(self, bookie: SimBookie) -> None:
        """Start it, unless it has been lost for good meanwhile."""
        if bookie.name not in self.kept_down:
            bookie.start()
