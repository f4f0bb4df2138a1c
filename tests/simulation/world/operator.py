"""What may happen to a bookie's directories as a whole, and the operator whom a refused start asks.

A directory may be empty because its disk is not mounted, be an old copy, or stand in another's place;
a second process may start under the same id, on the same directories, on a copy of them, or on empty
ones. No bookie may serve on such directories. The operator then brings the right disks back or, where
they are lost, empties what is left and starts once with ``--replace-lost-directories``. Lost are those
of one bookie at most (see :class:`tests.simulation.world.faults.Atlas`); what it held is excused only
where it is in limbo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, cast

from bookie_server.identity import claim_identity
from bookie_server.storage.disk.errors import StorageRefusedError
from bookkeeper_metadata.errors import MetadataUnavailableError
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.loop import Owner
from tests.simulation.world import history as h
from tests.simulation.world.stores import CLUSTER_ID, ROOT, SimStore

if TYPE_CHECKING:
    from tests.simulation.world.bookies import SimBookie
    from tests.simulation.world.cluster import World


class Operator:
    """Looks after the disks of one bookie."""

    def __init__(self, world: World, bookie: SimBookie, random: Random) -> None:
        self._world = world
        self._bookie = bookie
        self._random = random
        self.may_lose = False
        """Whether this bookie's disks may be lost for good."""
        self._right: SimFileSystem | None = None
        """The disks that belong into the machine, while others are in their place."""
        self._rival: SimFileSystem | None = None
        """Disks on which another process may have started under this id."""
        self._old: SimFileSystem | None = None
        """A copy of the disks from before the latest start."""
        self._copied_at = 0
        self._wrong: Sequence[str] = ()
        """The directories that are not the right ones."""
        self._replaces = False
        self._rivals = 0
        self._is_rival_running = False

    # -- what the bookie tells ------------------------------------------------------------------------

    def take_flag(self) -> bool:
        """Whether the next start is told that what is missing is lost; it is told once."""
        replaces, self._replaces = self._replaces, False
        return replaces

    def refused(self, path: str) -> None:
        """A start was refused: bring the right disks, or give up what is lost."""
        bookie = self._bookie
        if self._right is not None:
            right, self._right = self._right, None
            if self.may_lose and self._random.random() < 0.5:
                self._replace(self._wrong)
            else:
                self._bring(right, "brought back")
        elif self._is_rival_running:
            return  # which of the two was counted is seen when the other has ended
        elif self._rival is not None:
            # Ours were refused, so it is theirs that were counted.
            rival, self._rival = self._rival, None
            self._bring(rival, "the other process's")
        elif self.may_lose and path in bookie.directories:
            self._replace([path])

    def served(self) -> None:
        """A process serves on the disks that are in the machine."""
        if not self._is_rival_running:
            self._rival = None
        if self._old is None or self._random.random() < 0.2:
            self._old, self._copied_at = self._bookie.files.copy(), self._bookie.starts_served

    def _replace(self, lost: Sequence[str]) -> None:
        bookie, history = self._bookie, self._world.history
        for path in bookie.directories if self._random.random() < 0.3 else lost:
            bookie.files.empty(path)
        history.record(h.Damaged(bookie.name, "lost directories"))
        history.record(h.DisksSettled(bookie.name, "replaced"))
        self._world.count("F18 lost directories replaced", bookie.name)
        self._replaces = True

    def _bring(self, files: SimFileSystem, how: str) -> None:
        self._bookie.files = files
        self._world.history.record(h.DisksSettled(self._bookie.name, how))

    @property
    def _is_busy(self) -> bool:
        """Whether one harm is not over yet; or nothing is there to be harmed."""
        others = self._right is not None or self._rival is not None or self._is_rival_running
        return others or self._replaces or not self._bookie.starts_served

    # -- harm -----------------------------------------------------------------------------------------

    def put_wrong_disks(self) -> None:
        """The machine comes back with directories that are empty, old or swapped."""
        bookie = self._bookie
        if self._is_busy:
            return
        bookie.kill("unmounted")
        self._right = bookie.files.copy()
        wrong = bookie.files = bookie.files.copy()
        directories = bookie.directories
        chosen = directories if self._random.random() < 0.4 else [self._random.choice(directories)]
        kinds = ["emptied"]
        if self._old is not None and self._copied_at < bookie.starts_served:
            kinds += ["rolled back", "rolled back"]
        if len(directories) > 2:
            kinds.append("swapped")
        kind = self._random.choice(kinds)
        if kind == "swapped":
            chosen = self._random.choice((directories[:2], directories[2:4]))
            for path, other in zip(chosen, reversed(chosen), strict=True):
                wrong.put(path, self._right, other)
        else:
            for path in chosen:
                wrong.empty(path)
                if kind == "rolled back" and self._old is not None:
                    wrong.put(path, self._old, path)
        self._wrong = chosen
        self._world.history.record(h.DisksHarmed(bookie.name, kind, tuple(chosen)))
        self._world.count(f"F18 directories {kind}", bookie.name)

    def lose_disks(self) -> None:
        """The machine breaks, and comes back with empty disks that are said to be in the place of lost ones."""
        if not self._is_busy:
            self._bookie.kill("broken")
            self._replace(self._bookie.directories)

    # -- another process under the same id ----------------------------------------------------------------

    def start_rival(self) -> None:
        """Somebody starts a second process under this id; it goes no further than its claim."""
        bookie, random = self._bookie, self._random
        if self._is_busy:
            return
        how = random.choice(("same", "copy", "empty"))
        if how == "copy":
            # Of a bookie at rest: a copy of a running one lacks what is acknowledged while it is made.
            bookie.kill("copied")
            self._rival = bookie.files.copy()
        elif how == "empty" and self.may_lose:
            self._rival = SimFileSystem()
            self._world.history.record(h.Damaged(bookie.name, "another process replaces the disks"))
        self._world.count(f"F18 second process, {how} directories", bookie.name)
        self._rivals += 1
        self._is_rival_running = True
        owner = Owner(f"{bookie.name}#rival{self._rivals}")
        owner.start(self._claim(owner, how), owner.name)

    async def _claim(self, owner: Owner, how: str) -> None:
        world, bookie = self._world, self._bookie
        await asyncio.sleep(self._random.uniform(0, 1.5))
        files = self._rival if self._rival is not None else SimFileSystem()
        if how == "same":
            files = cast("SimFileSystem", _Mounted(bookie))
            bookie.has_rival = True
        store = SimStore(world.tree, owner, world.weather)
        try:
            identity = await claim_identity(
                store,
                ROOT,
                files,
                bookie.settings,
                cluster_id=CLUSTER_ID,
                random=self._random,
                may_replace=how == "empty" and self.may_lose,
            )
        except (StorageRefusedError, BlockingIOError) as error:
            world.history.record(h.RivalRefused(bookie.name, how, type(error).__name__))
            self._rival = None
        except SimulatedCrash:
            bookie.lose_power()  # it is the machine's, where both claim the same directories
        except (MetadataUnavailableError, OSError):
            pass  # it may have been counted, or not, as where the disk fails under it
        else:
            is_lawful = how == "copy" or (how == "empty" and self.may_lose)
            # A process that has not claimed its directories yet may lose them to another one.
            if is_lawful or how == "empty" or bookie.is_serving:
                inside = bookie.name, bookie.incarnation, is_lawful
                world.history.record(h.Superseded(*inside))
            identity.locks.close()
        self._is_rival_running = False
        if how == "same":
            bookie.rival_ended()
        world.tree.end_session(store.session_id)
        owner.is_dead = True


class _Mounted:
    """Whatever disks the machine has at the moment of each call."""

    def __init__(self, bookie: SimBookie) -> None:
        self._bookie = bookie

    def __getattr__(self, name: str) -> object:
        return getattr(self._bookie.files, name)
