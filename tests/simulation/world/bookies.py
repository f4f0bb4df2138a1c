"""A simulated bookie: the real one on a disk that forgets, killed and started again at will.

What happens to it: its process is killed (the page cache survives), its machine loses power (what
was not synced may be lost or torn), a write fails, stored bytes rot, it is paused, it is started
from what its disk holds. The order of a start is the server's: claim the directories and count the
start, replay, judge damage, write the cookie, serve, register. A start that is refused is put before
the operator (:mod:`tests.simulation.world.operator`).
"""

from __future__ import annotations

import asyncio
import errno
import zlib
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from bookie_server.bookie import Bookie
from bookie_server.client.local import LocalBookieClient
from bookie_server.identity import claim_identity
from bookie_server.limbo import put_ledgers_in_limbo, wait_until_unregistered
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.errors import StorageFailedError, StorageRefusedError
from bookie_server.storage.engine import Storage
from bookie_server.storage.identity.cookie_file import instance_id_of
from bookie_server.storage.opening import open_storage
from bookkeeper_metadata.bookies import (
    BOOKIE_ENDPOINT,
    GRPC,
    BookieRegistry,
    BookieServiceInfo,
    Endpoint,
)
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.operations import NodeExistsError
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.loop import Owner
from tests.simulation.kit.storage_model import read_all
from tests.simulation.world import history as h
from tests.simulation.world.history import BookieDown, BookieUp, Damaged, Durable, FenceDurable
from tests.simulation.world.operator import Operator
from tests.simulation.world.stores import CLUSTER_ID, ROOT, SimStore
from tests.simulation.world.workers import DiskPace, SimWorkers

if TYPE_CHECKING:
    from tests.simulation.world.cluster import World


@dataclass(frozen=True, slots=True, kw_only=True)
class BookiePlan:
    """How this world's bookies are set up; small numbers, so that files roll within seconds."""

    directories: int = 1
    checkpoint_interval_ms: int = 1_000
    write_cache_size_bytes: int = 4096
    session_timeout_us: int = 2_000_000
    pace: DiskPace = field(default_factory=DiskPace)


def _whole_sectors(random: Random) -> str:
    """Disks write sectors of 512 bytes wholly or not at all; one that is torn is damaged."""
    return "keep" if random.random() < 0.5 else "drop"


def _settings(name: str, plan: BookiePlan) -> BookieSettings:
    return BookieSettings(
        bookie_id=name,
        journal_directories=tuple(f"/j{n}" for n in range(plan.directories)),
        ledger_directories=tuple(f"/l{n}" for n in range(plan.directories)),
        journal_file_size_bytes=64 * 1024,
        journal_zero_chunk_bytes=8 * 1024,
        write_cache_size_bytes=plan.write_cache_size_bytes,
        checkpoint_interval_ms=plan.checkpoint_interval_ms,
        block_size_bytes=512,
    )


class SimBookie:
    """One machine with one bookie; ``owner`` is the process that runs now, or ran last."""

    def __init__(self, world: World, name: str, plan: BookiePlan, random: Random) -> None:
        self.name = name
        self.files = SimFileSystem()
        self.incarnation = 0
        self.owner = Owner(f"{name}#0")
        self.owner.is_dead = True
        self._world = world
        self._plan = plan
        self._random = random
        self._session = 0
        self._is_registered = False
        self._store: SimStore | None = None
        self._bookie: Bookie | None = None
        self._workers: SimWorkers | None = None
        self._known: dict[int, set[int]] = {}
        """Entries the observer saw become durable."""
        self._known_fences: set[int] = set()
        self._clock_ms = 1_000_000
        self.clock_skew_ms = 0
        self.reboots_on_failure = True
        """Whether a disk failure costs the page cache too."""
        self.may_tear = False
        """Whether a power loss may tear sectors: damage, as rotten bits are."""
        self._pace = plan.pace
        self.settings = _settings(name, plan)
        self.starts_served = 0
        """Starts that came as far as to serve."""
        self.away_until_us = 0
        """Nobody starts it before."""
        self.operator = Operator(world, self, world.random(f"operator {name}"))
        world.history.listeners.append(self._learn)

    # -- what others see ----------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether a process runs."""
        return not self.owner.is_dead

    @property
    def is_serving(self) -> bool:
        """Whether a request that arrives now is answered."""
        return self.is_up and self._bookie is not None

    @property
    def directories(self) -> list[str]:
        """Paths of its directories, journals first."""
        return list(self.settings.storage.directories)

    @property
    def local(self) -> LocalBookieClient:
        """The bookie that serves now."""
        assert self._bookie is not None
        return LocalBookieClient(self.name, self._bookie)

    # -- starting -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a process on what the disk holds, unless one runs."""
        away_us = self.away_until_us - self._world.loop.now_us
        if self.is_up:
            return
        if away_us > 0:
            self._world.loop.after(away_us, self.start)
            return
        self.incarnation += 1
        self.owner = Owner(f"{self.name}#{self.incarnation}")
        self.owner.start(self._serve(), f"bookie-{self.name}").add_done_callback(self._served)

    def _served(self, process: asyncio.Task[None]) -> None:
        """A bookie may be stopped in many ways; an error nobody expected is none of them."""
        if not process.cancelled() and (error := process.exception()) is not None:
            self._world.loop.failures.append(f"{self.name}: {error!r}")

    async def _serve(self) -> None:
        world, owner, settings = self._world, self.owner, self.settings
        store = SimStore(world.tree, owner, world.weather)
        self._store = store
        self._session = store.session_id
        self._is_registered = False
        try:
            identity = await claim_identity(
                store,
                ROOT,
                self.files,
                settings,
                cluster_id=CLUSTER_ID,
                random=self._random,
                may_replace=self.operator.take_flag(),
            )
            storage = open_storage(
                self.files,
                settings.storage,
                identity.locks,
                instance_id=instance_id_of(CLUSTER_ID, settings.bookie_id),
                clock_ms=self._now_ms,
            )
            disk = self.files, owner, self._pace, self._random
            self._workers = SimWorkers(self.name, *disk, world.history, self.lose_power)
            bookie = Bookie(storage, settings, self._workers)
            if storage.contents.is_damaged:
                await wait_until_unregistered(store, ROOT, self.name)
                await put_ledgers_in_limbo(storage, store, ROOT, self.name)
            await identity.write_cookie()
            await identity.watch(bookie.fail)
            await bookie.start()
        except SimulatedCrash:
            self.lose_power()
            return
        except StorageRefusedError as error:
            world.history.record(h.StartRefused(self.name, self.incarnation, error.path))
            self._end("refused")
            self.operator.refused(error.path)
            return
        except (StorageFailedError, MetadataUnavailableError, OSError) as error:
            self._end(type(error).__name__)
            return
        self.starts_served += 1
        self.operator.served()
        self._report(storage)
        self._bookie = bookie
        register = self._register(store)
        registering = asyncio.create_task(register, name=f"register-{self.name}")
        reason = await bookie.failed
        registering.cancel()
        if isinstance(reason, StorageRefusedError):
            self.kill("superseded")
        else:
            self._stopped_by_disk()

    async def _register(self, store: SimStore) -> None:
        host, port = self.name.split(":")
        info = BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, host, int(port), GRPC),))
        while True:
            try:
                await BookieRegistry(store, ROOT).register(self.name, info)
            except (NodeExistsError, MetadataUnavailableError):
                await asyncio.sleep(0.2)  # a predecessor's session has to expire first
            else:
                self._is_registered = True
                return

    def _now_ms(self) -> int:
        self._clock_ms += 1
        return self._clock_ms + self.clock_skew_ms

    # -- ending -------------------------------------------------------------------------------------

    def kill(self, how: str = "killed") -> None:
        """The process ends at once; its machine runs on."""
        if self.is_up:
            self._cut()
            self.files = self.files.after_kill()
            self._end(how)

    def lose_power(self) -> None:
        """The machine stops: of what is not synced, anything may survive."""
        if self.is_up:
            self._cut()
            if self.may_tear:
                self._world.history.record(Damaged(self.name, "torn sectors"))
                self.files = self.files.crash(self._random)
            else:
                self.files = self.files.crash(self._random, _whole_sectors)
            self._end("lost power")

    def _stopped_by_disk(self) -> None:
        self._world.count("F4 bookie stopped by its disk")
        if self.reboots_on_failure:
            self.lose_power()
        else:
            # The cache may hold pages the disk never got.
            self._world.history.record(Damaged(self.name, "page cache"))
            self.kill("storage failed")

    def stop(self) -> None:
        """The process is asked to end: it takes nothing more, writes out what it has, and ends."""
        if self.is_serving:
            self.owner.start(self._stop(), f"stop-{self.name}")

    async def _stop(self) -> None:
        bookie, self._bookie = self._bookie, None
        assert bookie is not None
        try:
            await bookie.wait_until_settled()
            await bookie.stop()
        except SimulatedCrash:
            self.lose_power()
        except StorageFailedError:
            self._stopped_by_disk()
        else:
            self.kill("stopped")

    def _cut(self) -> None:
        self.owner.is_dead = True
        if self._workers is not None:
            self._workers.cut()

    def _end(self, how: str) -> None:
        world = self._world
        self.owner.kill()
        self._bookie = self._workers = None
        self.files.locked.clear()
        world.history.record(BookieDown(self.name, self.incarnation, how))
        timeout_us = self._plan.session_timeout_us
        world.loop.after(timeout_us, world.tree.end_session, self._session)
        world.bookie_ended(self)

    def heal(self) -> None:
        """Nothing set to happen will."""
        self.away_until_us = 0
        self.owner.paused_until_us = 0
        self.reboots_on_failure, self.may_tear = True, False
        self._pace = DiskPace()
        if self._workers is not None:
            self._workers.pace = self._pace
        self.files.fail_at.clear()
        self.files.crash_at = None

    # -- other harm -----------------------------------------------------------------------------------

    def fail_soon(self, code: int = errno.EIO) -> None:
        """One of the next changing calls to the disk fails."""
        self.files.fail_at[self.files.steps + self._random.randrange(4)] = code

    def crash_soon(self, calls: int) -> None:
        """The power goes before the changing call that many calls from now."""
        self.files.crash_at = self.files.steps + self._random.randrange(calls)

    def expire(self) -> None:
        """The metadata service drops the bookie's session; it comes back with a new one."""
        if self._is_registered and self.is_serving and self._store is not None:
            self._store.expire()
            self._session = self._store.session_id

    def rot(self) -> None:
        """Flip a bit of something stored."""
        paths = sorted(self.files.names_now)
        if not paths:
            return
        path = self._random.choice(paths)
        content = self.files.content(path)
        if content:
            at = self._random.randrange(min(len(content), 16 * 1024))
            content[at] ^= 1 << self._random.randrange(8)
            self._world.history.record(Damaged(self.name, path))

    # -- what the observer may know ---------------------------------------------------------------------

    def _learn(self, event: object) -> None:
        if isinstance(event, Durable):
            if event.bookie == self.name:
                self._known.setdefault(event.ledger, set()).add(event.entry)
        elif isinstance(event, FenceDurable) and event.bookie == self.name:
            self._known_fences.add(event.ledger)

    def _report(self, storage: Storage) -> None:
        """What a start found; the rest of a group that was cut off may have become durable."""
        history = self._world.history
        held: list[tuple[int, tuple[int, ...]]] = []
        for ledger_id in sorted(storage.contents.ledgers):
            ids = tuple(e for part in storage.contents.entry_ids(ledger_id) for e in part)
            held.append((ledger_id, ids))
            if set(ids) <= self._known.get(ledger_id, set()):
                continue
            for entry_id, record in read_all(storage, ledger_id).items():
                if entry_id not in self._known.get(ledger_id, set()):
                    crc = zlib.crc32(record)
                    history.record(Durable(self.name, ledger_id, entry_id, crc))
        facts = sorted(storage.contents.ledgers.items())
        fenced = tuple(ledger_id for ledger_id, handle in facts if handle.is_fenced)
        limbo = tuple(ledger_id for ledger_id, handle in facts if handle.is_limbo)
        for ledger_id in fenced:
            if ledger_id not in self._known_fences:
                history.record(FenceDurable(self.name, ledger_id))
        groups = storage.recovery.groups_torn, storage.recovery.groups
        found = tuple(held), fenced, limbo, *groups
        history.record(BookieUp(self.name, self.incarnation, *found))
