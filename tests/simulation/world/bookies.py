"""A simulated bookie: the real one on a disk that forgets, killed and started again at will.

What happens to it: its process is killed (the page cache survives), its machine loses power (what
was not synced may be lost or torn), a write fails, stored bytes rot, it is paused, it is started
from what its disk holds. What a process does is in :mod:`tests.simulation.world.process`. A start
that is refused is put before the operator (:mod:`tests.simulation.world.operator`).
"""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import TYPE_CHECKING, cast

from bookie_server.bookie import Bookie
from bookie_server.client.settings import ConnectionSettings
from bookie_server.serving.acceptor import Acceptor
from bookie_server.space.sealed_start import is_for_want_of_room, is_full
from bookie_server.space.watch import LOOK_S
from bookie_server.storage.disk.errors import NoRoomError, StorageFailedError, StorageRefusedError
from bookkeeper_metadata.errors import MetadataUnavailableError
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.loop import Owner
from tests.simulation.world import history as h
from tests.simulation.world import space_history as s
from tests.simulation.world.history import BookieDown, Damaged
from tests.simulation.world.observed import ObservedBookie
from tests.simulation.world.operator import Operator
from tests.simulation.world.plan import BookiePlan, settings_of
from tests.simulation.world.process import Band, Service, band_of
from tests.simulation.world.start_report import StartReport
from tests.simulation.world.stores import SimStore
from tests.simulation.world.workers import DiskPace, SimWorkers

if TYPE_CHECKING:
    from tests.simulation.world.cluster import World


PEER_SETTINGS = ConnectionSettings(add_timeout_ms=1_000, read_timeout_ms=1_000)
"""Of bookies that ask each other."""


def _whole_sectors(random: Random) -> str:
    """Disks write sectors of 512 bytes wholly or not at all; one that is torn is damaged."""
    return "keep" if random.random() < 0.5 else "drop"


def _is_injected(reason: Exception) -> bool:
    """Whether the disk failed because it was told to, and not because it is full."""
    return "injected" in str(reason)


class SimBookie:
    """One machine with one bookie; ``owner`` is the process that runs now, or ran last."""

    def __init__(self, world: World, name: str, plan: BookiePlan, random: Random) -> None:
        self.name = name
        self._files = SimFileSystem()
        self._capacity_bytes: int | None = None
        self.look_s = LOOK_S
        """How often it looks at its disk."""
        self.is_wanted_readonly = False
        """As the process that runs was told."""
        self.has_rival = False
        """Whether another process may be claiming the same directories."""
        self.has_disk_shrunk = False
        """Whether others have taken of the disk since the bookie looked with nothing under way."""
        self.incarnation = 0
        self.owner = Owner(f"{name}#0")
        self.owner.is_dead = True
        self._world = world
        self.history = world.history
        self._plan = plan
        self._random = random
        self._session = 0
        self.is_registered = False
        self._sealed_since: int | None = None
        """The number of changes to the disk when a sealed service began."""
        self._store: SimStore | None = None
        self._bookie: Bookie | None = None
        self.socket_services: list[Acceptor] = []
        """One for each connection that the bookie which serves now has had."""
        self._workers: SimWorkers | None = None
        self._found = StartReport(world.history, name)
        self._clock_ms = 1_000_000
        self.clock_skew_ms = 0
        self.reboots_on_failure = True
        """Whether a disk failure costs the page cache too."""
        self.may_tear = False
        """Whether a power loss may tear sectors: damage, as rotten bits are."""
        self._pace = plan.pace
        self.settings = settings_of(name, plan)
        self.starts_served = 0
        """Starts that came as far as to serve."""
        self.away_until_us = 0
        """Nobody starts it before."""
        self.operator = Operator(world, self, world.random(f"operator {name}"))

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
    def files(self) -> SimFileSystem:
        """The disk in the machine."""
        return self._files

    @files.setter
    def files(self, files: SimFileSystem) -> None:
        self._files = files
        files.capacity_bytes = self._capacity_bytes

    @property
    def directories(self) -> list[str]:
        """Paths of its directories, journals first."""
        return list(self.settings.storage.directories)

    @property
    def takes_entries(self) -> bool | None:
        """Whether it must take new entries, or must not; ``None``: it may."""
        if self.is_wanted_readonly:
            return False
        band = band_of(self.files.free_space("/").free_bytes, self.settings)
        if band < Band.MARGIN:
            return False
        return True if self.files.capacity_bytes is None else None

    def observed(self, who: str) -> Bookie:
        """The bookie that serves now, as this client has it."""
        assert self._bookie is not None
        observed = ObservedBookie(self._bookie, self.name, self.owner, who, self.history)
        return cast(Bookie, observed)

    # -- starting -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a process on what the disk holds, unless one runs."""
        away_us = self.away_until_us - self._world.loop.now_us
        if self.is_up:
            return
        if away_us > 0:
            self._world.loop.after(away_us, self._world.restart, self)
            return
        self.incarnation += 1
        self.owner = Owner(f"{self.name}#{self.incarnation}")
        self.owner.start(self._run(), f"bookie-{self.name}").add_done_callback(self._served)

    def _served(self, process: asyncio.Task[None]) -> None:
        """A bookie may be stopped in many ways; an error nobody expected is none of them."""
        if not process.cancelled() and (error := process.exception()) is not None:
            self._world.loop.failures.append(f"{self.name}: {error!r}")

    async def _run(self) -> None:
        """Serve until it fails; sealed as long as the disk is full."""
        may_replace = self.operator.take_flag()
        is_sealed: bool | None = None
        while True:
            try:
                if is_sealed is None:
                    is_sealed = await is_full(self.files, self.settings)
                reason = await self._serve(is_sealed, may_replace)
            except SimulatedCrash:
                self.lose_power()
                return
            except StorageRefusedError as error:
                self.history.record(h.StartRefused(self.name, self.incarnation, error.path))
                self._end("refused")
                self.operator.refused(error.path)
                return
            except (StorageFailedError, NoRoomError, MetadataUnavailableError, OSError) as error:
                if is_for_want_of_room(error) and not is_sealed:
                    self._world.count("F5 no room for a start", self.name)
                    is_sealed = True
                    await self._close_store()
                    continue
                if is_for_want_of_room(error):
                    self._ended_without_room(error)
                self._end(type(error).__name__)
                return
            if isinstance(reason, StorageRefusedError):
                self.kill("superseded")
                return
            if reason is not None:
                self._stopped_by_disk(reason)
                return
            self._look_at_sealed()
            self._bookie = self._sealed_since = None
            self.history.record(s.Unsealed(self.name))
            services, self.socket_services = self.socket_services, []
            await asyncio.gather(*(service.stop() for service in services))
            await self._close_store()
            is_sealed = None

    async def _serve(self, is_sealed: bool, may_replace: bool) -> Exception | None:
        world, owner = self._world, self.owner
        store = self._store = SimStore(world.tree, owner, world.weather)
        self._session = store.session_id
        self.is_registered = self.is_wanted_readonly = False
        disk = self.files, owner, self._pace, self._random
        workers = self._workers = SimWorkers(self.name, *disk, self.history, self.lose_power)
        if is_sealed:
            self._sealed_since = len(self.files.log)
            self.history.record(s.Sealed(self.name))
        service = Service(
            self.name,
            self.files,
            self.settings,
            store,
            workers,
            self._random,
            self.history,
            self._now_ms,
            is_sealed,
            may_replace,
            world.heals,
            lambda bookie_id, _: world.connect(workers.owner, bookie_id, PEER_SETTINGS),
        )
        bookie = await service.prepare()
        # One that is not counted leaves the disk as old as it was, and proves nothing of it.
        if not is_sealed:
            self.starts_served += 1
            self.operator.served()
        self._found.report(bookie.storage, self.incarnation)
        self._bookie = bookie
        return await service.serve(bookie, self)

    async def _close_store(self) -> None:
        if self._store is not None:
            await self._store.close()

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

    def _stopped_by_disk(self, reason: Exception) -> None:
        if is_for_want_of_room(reason) and not _is_injected(reason):
            self._world.count("F5 bookie stopped by a full disk")
            self._ended_without_room(reason)
            self.kill("no room")
            return
        self._world.count("F4 bookie stopped by its disk")
        if self.reboots_on_failure:
            self.lose_power()
        else:
            # The cache may hold pages the disk never got.
            self._world.history.record(Damaged(self.name, "page cache"))
            self.kill("storage failed")

    def _ended_without_room(self, reason: Exception) -> None:
        if not self.has_disk_shrunk and not _is_injected(reason):
            self.history.record(s.EndedWithoutRoom(self.name, str(reason)))

    def _look_at_sealed(self) -> None:
        """Tell what a sealed service changed; syncs change nothing."""
        if self._sealed_since is not None and not self.has_rival:
            for operation, path in self.files.log[self._sealed_since :]:
                if operation not in ("sync", "sync_dir"):
                    self.history.record(s.SealedWrote(self.name, operation, path))

    def rival_ended(self) -> None:
        """Who wrote what while there was another process is not known."""
        self.has_rival = False
        self._sealed_since = None

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
        except StorageFailedError as error:
            self._stopped_by_disk(error)
        else:
            self.kill("stopped")

    def _cut(self) -> None:
        self.owner.is_dead = True
        self._look_at_sealed()
        self._sealed_since = None
        if self._workers is not None:
            self._workers.cut()

    def _end(self, how: str) -> None:
        world = self._world
        self.owner.kill()
        self._bookie = self._workers = None
        self.socket_services = []
        self._look_at_sealed()
        self._sealed_since = None
        self.files.locked.clear()
        self.history.record(BookieDown(self.name, self.incarnation, how))
        timeout_us = self._plan.session_timeout_us
        world.loop.after(timeout_us, world.tree.end_session, self._session)
        world.bookie_ended(self)

    def heal(self) -> None:
        """Nothing set to happen will."""
        self.away_until_us = 0
        self.owner.resume()
        self.reboots_on_failure, self.may_tear = True, False
        self._pace = DiskPace()
        if self._workers is not None:
            self._workers.pace = self._pace
        self.files.fail_at.clear()
        self.files.crash_at = None

    def fill(self, free_bytes: int | None) -> None:
        """Others take of the disk, or give back, so that so much is free; ``None``: the disk is huge."""
        before = self.files.free_space("/").free_bytes
        self.files.capacity_bytes = 1 << 40
        used_bytes = (1 << 40) - self.files.free_space("/").free_bytes
        self._capacity_bytes = None if free_bytes is None else used_bytes + free_bytes
        self.files.capacity_bytes = self._capacity_bytes
        if free_bytes is not None and free_bytes < before:
            self.has_disk_shrunk = True

    # -- other harm -----------------------------------------------------------------------------------

    def fail_soon(self, code: int = errno.EIO) -> None:
        """One of the next changing calls to the disk fails."""
        self.files.fail_at[self.files.steps + self._random.randrange(4)] = code

    def crash_soon(self, calls: int) -> None:
        """The power goes before the changing call that many calls from now."""
        self.files.crash_at = self.files.steps + self._random.randrange(calls)

    def expire(self) -> None:
        """The metadata service drops the bookie's session; it comes back with a new one."""
        if self.is_registered and self.is_serving and self._store is not None:
            self._store.expire()
            self._session = self._store.session_id

    def rot(self) -> None:
        """Flip a bit of something stored."""
        paths = sorted(self.files.names_now)
        if not paths:
            return
        logs = [path for path in paths if path.endswith(".log")]  # of all files the fewest
        self._flip(self._random, logs if logs and self._random.randrange(2) else paths)

    def rot_at_rest(self, random: Random) -> None:
        """Flip a bit of an entry log, and let the process run on."""
        if logs := sorted(path for path in self.files.names_now if path.endswith(".log")):
            self._flip(random, logs)

    def _flip(self, random: Random, paths: list[str]) -> None:
        path = random.choice(paths)
        if content := self.files.content(path):
            at = random.randrange(min(len(content), 16 * 1024))
            content[at] ^= 1 << random.randrange(8)
            self._world.history.record(Damaged(self.name, path))
