"""Metadata sessions of simulated processes: slow, lossy, and sometimes expired.

The tree is :class:`bookkeeper_metadata.store.memory_tree.MemoryTree`; here it also tells the observer of every
commit to a ledger's metadata. A session adds the way there and back: a request or reply may be lost
on it, and during an outage all are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.paths import READONLY, Paths
from bookkeeper_metadata.serde import parse_metadata
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Check, Create, Delete, Node, Operation, Put
from tests.simulation.kit.loop import OWNER, Owner, SimLoop
from tests.simulation.world.history import Committed, Deleted, History
from tests.simulation.world.space_history import Listed

T = TypeVar("T")
ROOT = "/ledgers"
CLUSTER_ID = "51700000-0000-4000-8000-000000000000"
"""What the directories of every bookie here name as theirs."""
_MUTATIONS = ("create", "put", "delete", "multi", "sequence")


class ObservedTree(MemoryTree):
    """Records every change of a ledger's metadata, by the process that made it."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self._paths = Paths(ROOT)
        self._past: dict[str, list[tuple[int, Node | None]]] = {}
        """Every state of each ledger's node, with the moment it came about."""

    def node_at(self, path: str, session: int, at_us: int) -> Node | None:
        """What a replica of the service that lags behind still shows."""
        found = self.node(path, session) if path not in self._past else None
        for since_us, node in self._past.get(path, []):
            if since_us <= at_us:
                found = node
        return found

    def names_at(self, path: str, session: int, at_us: int) -> list[str] | None:
        """The same of a folder: ledgers, and folders of ledgers, as they were then."""
        now = self.children(path)
        of_ledgers: set[str] = set()
        then: set[str] = set()
        for ledger_path in self._past:
            if ledger_path.startswith(f"{path}/"):
                name = ledger_path[len(path) + 1 :].partition("/")[0]
                of_ledgers.add(name)
                if self.node_at(ledger_path, session, at_us) is not None:
                    then.add(name)
        if now is None and not then:
            return None
        return sorted((set(now or ()) - of_ledgers) | then)

    def create(self, path: str, value: bytes, owner: int | None = None) -> None:
        super().create(path, value, owner)
        self._committed(path)

    def put(self, path: str, value: bytes, expected_version: int) -> int:
        version = super().put(path, value, expected_version)
        self._committed(path)
        return version

    def delete(self, path: str, expected_version: int | None) -> None:
        super().delete(path, expected_version)
        self._deleted(path)

    def multi(self, operations: Sequence[Operation]) -> None:
        super().multi(operations)
        for part in operations:
            match part:
                case Create(path) | Put(path):
                    self._committed(path)
                case Delete(path):
                    self._deleted(path)
                case Check():
                    pass

    def _committed(self, path: str) -> None:
        ledger_id = self._paths.ledger_id(path)
        node = self.node(path)
        if ledger_id is not None and node is not None:
            metadata = parse_metadata(node.value, path)
            self.history.record(Committed(_who(), ledger_id, node.version, metadata))
            self._past.setdefault(path, []).append((self.history.now_us(), node))

    def _deleted(self, path: str) -> None:
        ledger_id = self._paths.ledger_id(path)
        if ledger_id is not None:
            self.history.record(Deleted(_who(), ledger_id))
            self._past.setdefault(path, []).append((self.history.now_us(), None))


def _who() -> str:
    owner = OWNER.get()
    return owner.name if owner is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFaults:
    """Rates per thousand operations; times in microseconds."""

    delay_us: int = 1_000
    lost_requests: int = 0
    lost_replies: int = 0
    timeout_us: int = 300_000
    """How long a client waits for an answer that was lost."""
    stale_reads: int = 0
    """Reads answered by a replica up to ``lag_us`` behind, as ZooKeeper's may without ``sync``."""
    lag_us: int = 300_000


@dataclass(eq=False, slots=True)
class StoreWeather:
    """What all sessions of a world suffer together; may change at any time."""

    random: Random
    faults: StoreFaults
    count: Callable[[str], None]
    out_until_us: int = 0
    """Until then the service answers nobody (F13)."""


class SimStore(MemoryStore):
    """The session of one process."""

    def __init__(self, tree: ObservedTree, owner: Owner, weather: StoreWeather) -> None:
        super().__init__(tree)
        self._owner = owner
        self._weather = weather
        self._loop: SimLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self._observed = tree
        self._available = Paths(ROOT).available
        self._seen_us = 0
        """The session has seen the tree as it was then, and never sees an older one."""

    async def children(self, path: str) -> list[str] | None:
        names = await self._perform("children", path, lambda: self._look_into(path))
        if path == self._available:
            bookies = tuple(sorted(set(names or ()) - {READONLY}))
            self._observed.history.record(Listed(self._owner.name, bookies))
        return names

    async def get(self, path: str) -> Node | None:
        return await self._perform("get", path, lambda: self._look(path))

    def _look(self, path: str) -> Node | None:
        if self._lags_behind():
            return self._observed.node_at(path, self.session_id, self._seen_us)
        return self.tree.node(path, self.session_id)

    def _look_into(self, path: str) -> list[str] | None:
        if self._lags_behind():
            return self._observed.names_at(path, self.session_id, self._seen_us)
        return self.tree.children(path)

    def _lags_behind(self) -> bool:
        """Whether this read is answered by a replica that shows the past, as of ``_seen_us``."""
        weather, now_us = self._weather, self._loop.now_us
        faults, random = weather.faults, weather.random
        is_stale = faults.stale_reads and random.randrange(1000) < faults.stale_reads
        if is_stale:
            self._seen_us = max(self._seen_us, now_us - random.randrange(faults.lag_us))
            weather.count("F13 stale read")
        else:
            self._seen_us = now_us
        return bool(is_stale)

    async def _perform(self, operation: str, path: str, apply: Callable[[], T]) -> T:
        weather, random = self._weather, self._weather.random
        faults = weather.faults
        await self._travel(random.randrange(faults.delay_us // 4, 2 * faults.delay_us))
        fault = self._draw(operation)
        if fault is Fault.LOST_REQUEST:
            await self._travel(random.randrange(faults.timeout_us))
            raise MetadataUnavailableError(self.service, f"{operation} got no reply")
        outcome: T | None = None
        refusal: Exception | None = None
        try:
            outcome = await super()._perform(operation, path, self._unless_dead(apply))
        except Exception as error:
            if fault is None:
                raise
            refusal = error  # nobody learns of it: the reply is lost
        if operation not in ("get", "children"):
            self._seen_us = self._loop.now_us  # a write and a sync show the newest state
        if fault is not None:
            await self._travel(random.randrange(faults.timeout_us))
            raise MetadataUnavailableError(self.service, f"{operation} got no reply") from refusal
        await self._travel(random.randrange(faults.delay_us // 4, 2 * faults.delay_us))
        return outcome  # type: ignore[return-value]

    def _draw(self, operation: str) -> Fault | None:
        weather = self._weather
        faults, random = weather.faults, weather.random
        if weather.out_until_us > self._loop.now_us:
            weather.count("F13 operation during an outage")
            return Fault.LOST_REQUEST
        if faults.lost_requests and random.randrange(1000) < faults.lost_requests:
            weather.count("F14 request lost")
            return Fault.LOST_REQUEST
        if faults.lost_replies and random.randrange(1000) < faults.lost_replies:
            is_mutation = operation in _MUTATIONS
            weather.count("F14 reply to a mutation lost" if is_mutation else "F14 reply lost")
            return Fault.LOST_REPLY
        return None

    def _unless_dead(self, apply: Callable[[], T]) -> Callable[[], T]:
        def guarded() -> T:
            if self._owner.is_dead:
                raise MetadataUnavailableError(self.service, "the process is gone")
            return apply()

        return guarded

    async def _travel(self, delay_us: int) -> None:
        """On the wire, and then waiting for a process that may be paused."""
        loop, owner = self._loop, self._owner
        await asyncio.sleep(delay_us / 1_000_000)
        while owner.paused_until_us > loop.now_us:  # noqa: ASYNC110
            await asyncio.sleep((owner.paused_until_us - loop.now_us) / 1_000_000)
