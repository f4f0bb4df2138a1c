"""What a bookie takes: decided from free bytes, and from what it has promised since it looked."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from bookie_server.core.space import Disk, Look, Mode, Space, next_mode
from bookie_server.settings import SpaceSettings

LIMITS = SpaceSettings(
    reserve_for_fences_bytes=400, reserve_for_recovery_bytes=600, writable_margin_bytes=500
)


@pytest.mark.parametrize(
    ("free_bytes", "falling", "rising"),
    [
        (2000, Mode.WRITABLE, Mode.WRITABLE),
        (1500, Mode.WRITABLE, Mode.WRITABLE),
        (1499, Mode.WRITABLE, Mode.READ_ONLY),
        (1000, Mode.WRITABLE, Mode.READ_ONLY),
        (999, Mode.READ_ONLY, Mode.FULL),
        (400, Mode.READ_ONLY, Mode.FULL),
        (399, Mode.FULL, Mode.EXHAUSTED),
        (100, Mode.FULL, Mode.EXHAUSTED),
        (99, Mode.EXHAUSTED, Mode.EXHAUSTED),
        (-1, Mode.EXHAUSTED, Mode.EXHAUSTED),
    ],
)
def test_a_part_of_the_reserve_is_closed_when_it_is_begun_and_opened_when_it_is_whole(
    free_bytes: int, falling: Mode, rising: Mode
) -> None:
    assert next_mode(Mode.WRITABLE, free_bytes, LIMITS) is falling
    assert next_mode(Mode.EXHAUSTED, free_bytes, LIMITS) is rising


def test_the_same_free_bytes_never_change_a_mode_twice() -> None:
    for mode in Mode:
        for free_bytes in range(-10, 2010, 7):
            once = next_mode(mode, free_bytes, LIMITS)
            assert next_mode(once, free_bytes, LIMITS) is once


@dataclass
class RealDisk:
    """A disk, and what is still to be written to it."""

    free_bytes: int
    unjournalled_bytes: int = 0
    unlogged_bytes: int = 0

    def journal(self, size: int) -> None:
        size = min(size, self.unjournalled_bytes)
        self.unjournalled_bytes -= size
        self.free_bytes -= size

    def checkpoint(self) -> None:
        journalled = self.unlogged_bytes - self.unjournalled_bytes
        self.unlogged_bytes -= journalled
        self.free_bytes -= journalled

    @property
    def left_bytes(self) -> int:
        """When everything admitted is in journal and entry log."""
        return self.free_bytes - self.unjournalled_bytes - self.unlogged_bytes


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_between_two_looks_the_reserve_stays_free(seed: int) -> None:
    rng, space = Random(seed), Space(LIMITS)
    disk = RealDisk(free_bytes=rng.randrange(1000, 20_000))
    request_max = 50
    look: Look | None = None
    seen: Disk | None = None
    space.on_look(Look(0, 0, 0), [Disk(disk.free_bytes, True, True)])
    for _ in range(600):
        match rng.randrange(8):
            case 0 if look is None:
                look = space.begin_look(
                    unjournalled_bytes=disk.unjournalled_bytes, unlogged_bytes=disk.unlogged_bytes
                )
            case 1 if look is not None and seen is None:
                # The disk is asked some time after the look began, and answers still later.
                seen = Disk(disk.free_bytes, True, True)
            case 2 if look is not None and seen is not None:
                space.on_look(look, [seen])
                look = seen = None
            case 3:
                disk.journal(rng.randrange(500))
            case 4:
                disk.checkpoint()
            case _:
                if space.mode is Mode.WRITABLE:
                    size = rng.randrange(request_max)
                    space.promise(size)
                    disk.unjournalled_bytes += size
                    disk.unlogged_bytes += size
        # One request may begin above the limit and end below it.
        assert disk.left_bytes > LIMITS.read_only_below_bytes - 2 * request_max
    assert space.mode is not Mode.WRITABLE or disk.free_bytes > LIMITS.read_only_below_bytes


def test_each_disk_is_charged_with_what_it_holds() -> None:
    look = Look(admitted_bytes=100, unjournalled_bytes=10, unlogged_bytes=30)

    def left(*, journals: bool, ledgers: bool) -> int:
        return look.free_bytes(Disk(1000, journals, ledgers), admitted_bytes=105)

    assert left(journals=True, ledgers=False) == 1000 - 10 - 5
    assert left(journals=False, ledgers=True) == 1000 - 30 - 5
    assert left(journals=True, ledgers=True) == 1000 - 40 - 10


def test_the_fullest_disk_decides() -> None:
    space = Space(LIMITS)

    space.on_look(Look(0, 0, 0), [Disk(9999, True, False), Disk(500, False, True)])

    assert space.mode is Mode.READ_ONLY


def test_what_was_promised_closes_a_part_until_the_next_look_only() -> None:
    """Promises are counted generously; hysteresis is for what a look has found."""
    space = Space(LIMITS)
    space.on_look(Look(0, 0, 0), [Disk(1499, True, True)])
    space.promise(400)
    promised = space.mode

    space.on_look(
        space.begin_look(unjournalled_bytes=0, unlogged_bytes=0), [Disk(1400, True, True)]
    )

    assert (promised, space.mode) == (Mode.READ_ONLY, Mode.WRITABLE)


def test_a_write_without_room_counts_whatever_the_disk_says() -> None:
    """A quota does not show in the free bytes of a disk."""
    space = Space(LIMITS)
    space.on_no_room()

    space.on_look(Look(0, 0, 0), [Disk(9999, True, True)])

    before = space.mode
    space.on_room()
    assert (before, space.mode) == (Mode.FULL, Mode.WRITABLE)


def test_a_bookie_read_only_by_hand_takes_recoveries_and_never_more_than_its_disk() -> None:
    space = Space(LIMITS)
    space.is_readonly_by_hand = True
    with_room = space.mode

    space.on_look(Look(0, 0, 0), [Disk(50, True, True)])

    assert (with_room, space.mode) == (Mode.READ_ONLY, Mode.EXHAUSTED)


def looked(space: Space, free_bytes: int) -> None:
    look = space.begin_look(unjournalled_bytes=0, unlogged_bytes=0)
    space.on_look(look, [Disk(free_bytes, has_journals=True, has_ledgers=True)])


def test_what_an_earlier_look_found_says_nothing_of_what_is_free_now() -> None:
    """Another process has filled the disk in between; what is promised counts for journal and ledgers."""
    space = Space(LIMITS)
    looked(space, 1_000_000)
    looked(space, 1_010)
    assert mode_behind(space, 5) is Mode.WRITABLE
    assert mode_behind(space, 1) is Mode.READ_ONLY


def test_the_last_part_of_the_reserve_is_closed_by_promises_too() -> None:
    space = Space(LIMITS)
    looked(space, 110)
    assert mode_behind(space, 5) is Mode.FULL
    assert mode_behind(space, 1) is Mode.EXHAUSTED


def mode_behind(space: Space, promised_bytes: int) -> Mode:
    space.promise(promised_bytes)
    return space.mode
