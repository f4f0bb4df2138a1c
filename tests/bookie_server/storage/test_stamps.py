"""Stamps alone: what is stored comes back, and a sector tells its lap or that it is damaged."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest

from bookie_server.storage.disk.stamps import (
    _SPREAD,
    _SPREAD_PLACES,
    LAPS_MAX,
    SECTOR_SIZE,
    count_blank,
    is_blank,
    stamp,
    stamped_size,
    without_stamps,
)

SIZES = (1, 72, 507, 508, 509, 512, 513, 4000, 127 * 512, 127 * 512 + 1, 300_000)


AT = 7 * 4096


def stamped(content: bytes, lap: int, sectors: int = 0, at: int = AT) -> bytes:
    room = memoryview(bytearray(stamped_size(len(content)) + sectors * SECTOR_SIZE))
    room[: len(content)] = content
    stamp(room, len(content), lap, at)
    return bytes(room)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("more", [0, 3])
def test_what_is_stamped_comes_back(size: int, more: int) -> None:
    content = Random(size).randbytes(size)

    whole = stamped(content, 7, more)

    assert without_stamps(whole, size) == content
    assert without_stamps(memoryview(whole), size) == content
    assert count_blank(whole, 7, AT) == 0
    assert not any(
        is_blank(whole[at : at + SECTOR_SIZE], 7, AT + at)
        for at in range(0, len(whole), SECTOR_SIZE)
    )


@pytest.mark.parametrize("size", SIZES)
def test_every_sector_that_was_not_reached_is_counted(size: int) -> None:
    rng = Random(size)
    old, new = (stamped(rng.randbytes(size), lap) for lap in (3, 4))
    for before in (old, bytes(len(old))):
        torn, unwritten = bytearray(new), 0
        for at in range(0, len(new), SECTOR_SIZE):
            if rng.random() < 0.5:
                torn[at : at + SECTOR_SIZE] = before[at : at + SECTOR_SIZE]
                unwritten += 1

        assert count_blank(bytes(torn), 4, AT) == unwritten
    assert is_blank(old, 4, AT)
    assert is_blank(bytes(len(old)), 4, AT)
    assert is_blank(bytes(len(old)), 1, AT)
    assert is_blank(b"", 1, AT)


def test_damage_is_never_taken_for_a_sector_that_was_not_reached() -> None:
    """Not any flipped bit, of any lap: the stamps of two laps differ in more."""
    content = Random(1).randbytes(400)
    for lap in (*range(1, 40), LAPS_MAX - 1, LAPS_MAX):
        whole = stamped(content, lap)
        for at in range(SECTOR_SIZE - 4, SECTOR_SIZE):
            for bit in range(8):
                damaged = bytearray(whole)
                damaged[at] ^= 1 << bit
                assert count_blank(bytes(damaged), lap, AT) == 0
                assert not is_blank(bytes(damaged[:SECTOR_SIZE]), lap, AT)


def test_the_stamps_of_laps_lie_far_apart() -> None:
    """Whichever two bits of one flip, it is the stamp of no other."""
    words = np.array([int.from_bytes(stamped(b"x", lap)[-4:], "little") for lap in range(LAPS_MAX)])
    assert len(set(words.tolist())) == LAPS_MAX
    for first, second in combinations(range(32), 2):
        assert not np.isin(words ^ (1 << first), words).any()
        assert not np.isin(words ^ (1 << first) ^ (1 << second), words).any()


def test_no_stamp_is_zero() -> None:
    """A sector that was written full of zeros would count as never written: a damaged last group as torn."""
    inverse = pow(_SPREAD_PLACES, -1, 1 << 32)
    places = [lap * _SPREAD * inverse % (1 << 32) for lap in range(1, LAPS_MAX + 1)]
    assert min(places) * SECTOR_SIZE > 5 * 1024**3


def test_a_sector_of_another_place_is_damage() -> None:
    """Written there by mistake, or read from there; whichever lap it is of."""
    whole = stamped(Random(3).randbytes(90_000), 3)
    for at in range(0, len(whole) - SECTOR_SIZE, SECTOR_SIZE):
        sector = whole[at : at + SECTOR_SIZE]
        for lap in (3, 4):
            assert not is_blank(sector, lap, AT + at + SECTOR_SIZE)
            assert count_blank(whole[:at] + whole[at + SECTOR_SIZE :] + sector, lap, AT) == 0


def test_a_sector_that_ends_with_zeros_was_written_by_somebody() -> None:
    """In the first lap only what is zero as a whole was not reached."""
    whole = bytearray(stamped(b"abc" * 99, 1))
    whole[SECTOR_SIZE - 4 : SECTOR_SIZE] = bytes(4)

    assert not is_blank(bytes(whole[:SECTOR_SIZE]), 1, AT)
    assert count_blank(bytes(whole), 1, AT) == 0


def test_what_is_cut_short_is_no_content() -> None:
    content = Random(2).randbytes(3000)
    whole = stamped(content, 5)

    assert without_stamps(whole[:-1], len(content)) != content
    assert len(without_stamps(whole[:1000], len(content))) == 1000


def test_less_than_a_sector_is_blank_if_it_is_zero() -> None:
    assert is_blank(bytes(700), 2, AT)
    assert not is_blank(bytes(699) + b"x", 2, AT)


def test_what_the_room_held_before_is_not_stored() -> None:
    """Whoever reads the disk, or a copy of it, would find there parts of entries that were deleted."""
    content, size = Random(4).randbytes(900), stamped_size(900) + 3 * SECTOR_SIZE
    room = memoryview(bytearray(b"\xaa" * size))
    room[: len(content)] = content

    stamp(room, len(content), 2, AT)

    assert bytes(room) == stamped(content, 2, sectors=3)


def test_nothing_was_written_before_the_first_lap() -> None:
    """Words that would be the stamp of a lap 0 are damage, as any other that nobody writes."""
    sector = stamped(b"abc" * 99, 0)[:SECTOR_SIZE]

    assert not is_blank(sector, 1, AT)
    assert count_blank(sector, 1, AT) == 0
