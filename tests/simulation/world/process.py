"""A bookie's service as the server composes it, on simulated disk, metadata and time.

The order is that of ``bookie_server/server.py``: claim the directories and count the start, replay, judge
damage, write the cookie, serve, hear whether somebody wants it read-only, look at the disk, register. On
a full disk it is sealed: all that happens above an overlay, and ends when there is room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from bookie_server.bookie import Bookie
from bookie_server.collection.collector import Collector
from bookie_server.collection.peers import Connect, Peers
from bookie_server.collection.surplus import SurplusDropper
from bookie_server.core.space import Mode
from bookie_server.identity import claim_identity
from bookie_server.integrity.integrity_check import IntegrityCheck
from bookie_server.integrity.limbo import put_ledgers_in_limbo, wait_until_unregistered
from bookie_server.integrity.scrubber import Scrubber
from bookie_server.registrar import Registrar
from bookie_server.settings import BookieSettings
from bookie_server.space.sealed_start import overlay
from bookie_server.space.watch import SpaceWatch
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.identity.cookie_file import instance_id_of
from bookie_server.storage.opening import open_storage
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.readonly import ReadonlyWishes
from bookkeeper_metadata.store.operations import NodeExistsError
from bookkeeper_metadata.underreplication import Underreplication
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.world import space_history as s
from tests.simulation.world.healing_history import DamageMarked, LimboEnded
from tests.simulation.world.history import History
from tests.simulation.world.stores import CLUSTER_ID, ROOT, SimStore
from tests.simulation.world.workers import SimWorkers

if TYPE_CHECKING:
    from tests.simulation.world.bookies import SimBookie


class Band(IntEnum):
    """How much of a disk is free, by the settings: the observer's arithmetic, not the product's."""

    NOTHING = 0
    """Not even for fences."""
    FEW_FENCES = 1
    """What a bookie promises to those that it takes between two looks may use it up."""
    FENCES = 2
    RECOVERY = 3
    MARGIN = 4
    """A bookie that was read-only stays so."""
    PLENTY = 5


def band_of(free_bytes: int, settings: BookieSettings) -> Band:
    """The band of a disk with this much free."""
    fences = settings.reserve_for_fences_bytes
    recovery = settings.reserve_for_recovery_bytes
    margin = settings.writable_margin_bytes
    limits = fences // 4, fences // 2, fences, fences + recovery, fences + recovery + margin
    return Band(sum(free_bytes >= limit for limit in limits))


@dataclass(eq=False)
class Service:
    """One service of one process; a process that was sealed has another one behind it."""

    name: str
    files: SimFileSystem
    settings: BookieSettings
    store: SimStore
    workers: SimWorkers
    random: Random
    history: History
    now_ms: Callable[[], int]
    is_sealed: bool
    may_replace: bool
    heals: bool
    connect: Connect
    collector: Collector | None = None
    dropper: SurplusDropper | None = None

    async def prepare(self) -> Bookie:
        """The bookie on its directories, ready to answer."""
        settings, store = self.settings, self.store
        overlaid = overlay(self.files, settings) if self.is_sealed else None
        files: FileSystem = self.files if overlaid is None else overlaid
        identity = await claim_identity(
            store,
            ROOT,
            files,
            settings,
            cluster_id=CLUSTER_ID,
            random=self.random,
            may_replace=self.may_replace,
            is_counted=not self.is_sealed,
        )
        if overlaid is not None:
            identity.locks.callback(overlaid.close)
        storage = open_storage(
            files,
            settings.storage,
            identity.locks,
            instance_id=instance_id_of(CLUSTER_ID, settings.bookie_id),
            clock_ms=self.now_ms,
            # Not the world's own: what is drawn here must change no pinned seed.
            random=Random(f"{self.name} {self.now_ms()}"),
        )
        try:
            bookie = Bookie(storage, settings, self.workers)
            bookie.space.is_sealed = self.is_sealed
            if storage.contents.is_damaged:
                await wait_until_unregistered(store, ROOT, self.name)
                await put_ledgers_in_limbo(storage, store, ROOT, self.name)
            if not self.is_sealed:
                await identity.write_cookie()
            await identity.watch(bookie.fail)
            await bookie.start()
        except Exception:
            storage.close()
            raise
        counter = identity.collection_counter(files, settings.storage.directories)
        if counter is not None:
            ledgers = LedgerStore(store, ROOT, random=self.random)
            marks = Underreplication(store, ROOT, random=self.random)
            peers = partial(Peers, BookieRegistry(store, ROOT), self.connect)
            self.dropper = SurplusDropper(bookie, self.name, ledgers, marks, peers)
            interval_ms = settings.gc_interval_ms
            self.collector = Collector(bookie, counter, ledgers, interval_ms=interval_ms)
        return bookie

    async def serve(self, bookie: Bookie, machine: SimBookie) -> Exception | None:
        """Stay registered until the bookie fails, and why; ``None``: it was sealed, and has room."""
        host, port = self.name.split(":")
        info = BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, host, int(port), GRPC),))
        registrar = Registrar(BookieRegistry(self.store, ROOT), self.name, info)
        watch = ObservedWatch(bookie, machine, registrar.set_readonly)

        def on_wish(is_wanted: bool) -> None:
            if self.workers.owner.is_dead:
                return  # the tree keeps its watches; nobody hears them
            machine.is_wanted_readonly = is_wanted
            bookie.set_readonly_by_hand(is_wanted)
            self.history.record(s.WishHeard(self.name, is_wanted))

        await ReadonlyWishes(self.store, ROOT).watch(self.name, on_wish)
        await watch.look()
        tasks = [
            asyncio.create_task(watch.run(), name=f"look-{self.name}"),
            asyncio.create_task(self._register(registrar, machine), name=f"register-{self.name}"),
        ]
        ends: list[asyncio.Future[object]] = [bookie.failed, tasks[0]]  # type: ignore[list-item]
        if self.is_sealed:
            tasks.append(asyncio.create_task(watch.wait_for_start(), name=f"room-{self.name}"))
            ends.append(tasks[-1])  # type: ignore[arg-type]
        if self.collector is not None:
            collecting = self.collector.run()
            tasks.append(asyncio.create_task(collecting, name=f"collect-{self.name}"))
            ends.append(tasks[-1])  # type: ignore[arg-type]
            tasks.append(asyncio.create_task(self._drop_surplus(), name=f"drop-{self.name}"))
            ends.append(tasks[-1])  # type: ignore[arg-type]
        if self.heals and not self.is_sealed:
            keeping = self._keep_whole(bookie, machine)
            tasks.append(asyncio.create_task(keeping, name=f"keep-{self.name}"))
            ends.append(tasks[-1])  # type: ignore[arg-type]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if bookie.failed not in done:
                for end in done:
                    end.result()  # a look or a wait that ends by an error is a defect
        finally:
            await end_tasks(tasks)
        if bookie.failed.done():
            return bookie.failed.result()
        machine.is_registered = False
        await registrar.stop()
        await bookie.wait_until_settled()
        await bookie.stop()
        return None

    async def _drop_surplus(self) -> None:
        collector, dropper = self.collector, self.dropper
        assert collector is not None
        assert dropper is not None
        interval_ms = self.settings.surplus_check_interval_ms
        await dropper.run(
            interval_ms=interval_ms, is_metadata_believed=lambda: collector.is_metadata_believed
        )

    async def _keep_whole(self, bookie: Bookie, machine: SimBookie) -> None:
        """Behind the registration, as the server does."""
        while not machine.is_registered:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.05)
        pace = LoopPace(self.settings.scrub_bytes_per_second)
        store, random = self.store, self.random
        integrity = ObservedIntegrity(
            self.history,
            bookie,
            self.name,
            LedgerStore(store, ROOT, random=random),
            Underreplication(store, ROOT, random=random),
            interval_ms=self.settings.integrity_check_interval_ms,
            pace=pace,
            clock_ms=self.now_ms,
        )
        interval_ms = self.settings.scrub_interval_ms
        scrubber = Scrubber(bookie, interval_ms=interval_ms, pace=pace, random=random)
        await asyncio.gather(integrity.run(), scrubber.run())

    async def _register(self, registrar: Registrar, machine: SimBookie) -> None:
        while True:
            try:
                await registrar.start()
            except (NodeExistsError, MetadataUnavailableError):
                await asyncio.sleep(0.2)  # a predecessor's session has to expire first
            else:
                machine.is_registered = True
                return


class ObservedIntegrity(IntegrityCheck):
    """Tells the observer what came of it."""

    def __init__(
        self, history: History, bookie: Bookie, name: str, *others: Any, **more: Any
    ) -> None:
        super().__init__(bookie, name, *others, **more)
        self._history = history

    async def _mark(self, ledger_id: int) -> None:
        await super()._mark(ledger_id)
        is_limbo = ledger_id in self._limbo
        self._history.record(DamageMarked(self._bookie_id, ledger_id, is_limbo))

    def _end_limbo(self, ledger_id: int, *, may_deny: bool) -> None:
        super()._end_limbo(ledger_id, may_deny=may_deny)
        self._history.record(LimboEnded(self._bookie_id, ledger_id))


class ObservedWatch(SpaceWatch):
    """Tells the observer what there was to be seen."""

    def __init__(
        self, bookie: Bookie, machine: SimBookie, on_readonly: Callable[[bool], None]
    ) -> None:
        super().__init__(bookie, machine.files, machine.settings.storage, on_readonly)
        self._of = bookie
        self._machine = machine
        self._band: Band | None = None

    async def run(self) -> None:
        """As often as the seed says: a run is over in seconds."""
        while True:
            await asyncio.sleep(self._machine.look_s)
            await self.look()

    async def look(self) -> Mode:
        machine = self._machine
        # What is promised and not written yet counts as used: it may be what makes a disk exhausted.
        promised = self._of.begin_look()
        free_bytes = machine.files.free_space("/").free_bytes
        free_bytes -= promised.unjournalled_bytes + promised.unlogged_bytes
        band = band_of(free_bytes, machine.settings)
        has_nothing_pending = self._of._idle.is_set()
        mode = await super().look()
        if band is not self._band:
            self._band = band
            machine.history.record(s.Looked(machine.name, band))
        # What was admitted while the disk was asked was admitted by what the look before had found.
        if has_nothing_pending and self._of._idle.is_set():
            machine.has_disk_shrunk = False
        return mode
