"""What a bookie still takes, decided from the free bytes of its disks; nothing here looks at one.

A full disk costs a bookie its writers, never what it acknowledged. So a reserve is kept free, in two
parts, and each kind of request may use less of it:

* ordinary adds: nothing of it. Their writers go on with other bookies;
* a recovery's adds: part one, for a ledger that cannot be closed has readers that wait;
* fences and the records that come with them: part two, but for its last quarter;
* index deltas and whatever it takes to delete: all of it, or no room could ever come back.

An admitted entry is written twice, to the journal and to an entry log, so bytes that were admitted
since the last look, or that wait for one of the two, count as used. A burst between two looks can
therefore not overrun the reserve. A part is open again only when it is whole: a disk that is filled
as fast as it is emptied would otherwise change a bookie's mind every second.
Source: Apache ``LedgerDirsManager``, ``LedgerDirsMonitor``, ``BookieStateManager``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Protocol

FENCES_SHARE = 4
"""The last quarter of part two is not for fences: a flood of them must leave room for a checkpoint."""
TOMBSTONES_SHARE = 2 * FENCES_SHARE
"""The last part of that is not for tombstones: a journal that finds no room for its next file ends the bookie."""
REQUEST_SIZE = 512
"""What a request costs a disk beside its payloads: headers, its ledger's handle state, its rows."""


@unique
class Mode(IntEnum):
    """What a bookie takes; each mode takes less than the one before it."""

    WRITABLE = 0
    READ_ONLY = 1
    """No ordinary adds."""
    FULL = 2
    """No adds at all."""
    EXHAUSTED = 3
    """No fences either: nothing is written but checkpoints, and tombstones as long as there is any room."""


class Limits(Protocol):
    """Free bytes of a disk; see ``SpaceSettings``."""

    @property
    def full_below_bytes(self) -> int: ...
    @property
    def read_only_below_bytes(self) -> int: ...
    @property
    def writable_above_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Disk:
    """One file system, as a look found it."""

    free_bytes: int
    has_journals: bool
    has_ledgers: bool
    directory: str = ""
    """The first of ours on it, by which it is named."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was promised when a look at the disks began."""

    admitted_bytes: int
    """Of all requests so far."""
    unjournalled_bytes: int
    """Admitted, and not in the journal yet."""
    unlogged_bytes: int
    """Admitted, and in no entry log yet."""

    def free_bytes(self, disk: Disk, admitted_bytes: int) -> int:
        """Bytes of the disk that nobody was promised, by now."""
        since = admitted_bytes - self.admitted_bytes
        free = disk.free_bytes
        if disk.has_journals:
            free -= self.unjournalled_bytes + since
        # Which directory a new ledger gets is not known before its first checkpoint: it may be any.
        if disk.has_ledgers:
            free -= self.unlogged_bytes + since
        return free


def next_mode(mode: Mode, free_bytes: int, limits: Limits) -> Mode:
    """The mode that follows ``mode`` when the fullest disk has this much that nobody was promised."""
    if free_bytes >= limits.writable_above_bytes:
        reached = Mode.WRITABLE
    elif free_bytes >= limits.read_only_below_bytes:
        reached = Mode.READ_ONLY
    elif free_bytes >= limits.full_below_bytes:
        reached = Mode.FULL
    else:
        reached = Mode.EXHAUSTED
    return max(_mode_at_least(free_bytes, limits), min(mode, reached))


def _mode_at_least(free_bytes: int, limits: Limits) -> Mode:
    if free_bytes < limits.full_below_bytes // FENCES_SHARE:
        return Mode.EXHAUSTED
    if free_bytes < limits.full_below_bytes:
        return Mode.FULL
    return Mode.READ_ONLY if free_bytes < limits.read_only_below_bytes else Mode.WRITABLE


def _bytes_until_next(free_bytes: int, limits: Limits) -> int:
    """How much less may be free without another ``_mode_at_least``."""
    full = limits.full_below_bytes
    ends = (limits.read_only_below_bytes, full, full // FENCES_SHARE)
    return free_bytes - max([end for end in ends if end <= free_bytes], default=0)


class Space:
    """The bookie's mode; every method is one event. Until the first look there is room."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._admitted_bytes = 0
        self._look = Look(0, 0, 0)
        self._disks: tuple[Disk, ...] = ()
        self._found_mode = self._mode = Mode.WRITABLE
        """What the last look came to, and what has become of it since."""
        self._sure_bytes = 0
        """So much less may be free without another mode."""
        self._has_no_room = False
        self.is_sealed = False
        """Nothing is written at all: the bookie started on a disk that is full."""
        self.is_readonly_by_hand = False
        """Somebody wants it to take no new entries, whatever the disks say."""

    @property
    def mode(self) -> Mode:
        """What the bookie takes now."""
        if self.is_sealed:
            return Mode.EXHAUSTED
        # A quota does not show in the free bytes of a disk, and what a write met is a fact.
        found = max(self._mode, Mode.FULL) if self._has_no_room else self._mode
        return max(found, Mode.READ_ONLY) if self.is_readonly_by_hand else found

    @property
    def is_short(self) -> bool:
        """Whether a disk had no room for new entries when it was looked at last, or a write found none since."""
        return self._has_no_room or self._found_mode is not Mode.WRITABLE

    @property
    def free_bytes(self) -> int | None:
        """Of the fullest disk, what nobody was promised; ``None`` before the first look."""
        return min(map(self._unpromised_bytes, self._disks), default=None)

    @property
    def may_delete(self) -> bool:
        """Whether tombstones may be journalled, which make room: also from the part that is not for fences."""
        free_bytes = self.free_bytes
        least_bytes = self._limits.full_below_bytes // TOMBSTONES_SHARE
        return free_bytes is None or free_bytes >= least_bytes

    @property
    def fullest_disk(self) -> Disk | None:
        """That disk."""
        return min(self._disks, key=self._unpromised_bytes, default=None)

    def _unpromised_bytes(self, disk: Disk) -> int:
        return self._look.free_bytes(disk, self._admitted_bytes)

    def promise(self, size_bytes: int) -> None:
        """Something was admitted that will be written to a journal and to an entry log."""
        self._admitted_bytes += size_bytes
        # Of each byte a disk may have to take two.
        self._sure_bytes -= 2 * size_bytes
        # Promises are counted generously, so they close a part until the next look only.
        if self._sure_bytes < 0 and (free_bytes := self.free_bytes) is not None:
            self._mode = max(self._mode, _mode_at_least(free_bytes, self._limits))
            self._sure_bytes = _bytes_until_next(free_bytes, self._limits)

    def begin_look(self, *, unjournalled_bytes: int, unlogged_bytes: int) -> Look:
        """Note what is promised at this moment, before the disks are asked."""
        return Look(self._admitted_bytes, unjournalled_bytes, unlogged_bytes)

    def on_look(self, look: Look, disks: Sequence[Disk]) -> None:
        """The disks were asked, at any time after ``look`` began."""
        self._look, self._disks = look, tuple(disks)
        if (free_bytes := self.free_bytes) is not None:
            self._found_mode = next_mode(self._found_mode, free_bytes, self._limits)
            self._mode = self._found_mode
            self._sure_bytes = _bytes_until_next(free_bytes, self._limits)

    def on_no_room(self) -> None:
        """A write found no room; so it stays until :meth:`on_room`."""
        self._has_no_room = True

    def on_room(self) -> None:
        """What had found no room was written."""
        self._has_no_room = False
