"""Rows that a disk says are held against what a checkpoint may write, before ids are made of them."""

from __future__ import annotations

from random import Random

import pytest

from bookie_server.storage.logs import rows
from bookie_server.storage.logs.id_pattern import IdPattern
from bookie_server.storage.logs.rows import Block, Row, are_possible, pack_row
from bookkeeper_metadata.model import ENTRY_ID_MAX

_UINT32_MAX = 2**32 - 1


def packed(pattern: IdPattern, entry_count: int, size_bytes: int) -> bytes:
    return pack_row(Row(pattern, Block(1, 64, size_bytes, 0, entry_count)))


GOOD = packed(IdPattern(7, 2, 5, 3), 6, 6 * 36)


@pytest.mark.parametrize("many", [1, 20])
@pytest.mark.parametrize(
    "bad",
    [
        packed(IdPattern(0, 0, 0, 1), 9, 900),  # no ids in a group
        packed(IdPattern(0, 1, 0, 0), 9, 900),  # no groups
        packed(IdPattern(-1, 1, 0, 1), 9, 900),  # a negative id
        packed(IdPattern(0, 2, 1, 3), 9, 900),  # groups within each other
        packed(IdPattern(0, 2, 5, 5), 9, 900),  # more ids than the block has entries
        packed(IdPattern(0, 2, 5, 3), 6, 6 * 36 - 1),  # more entries than its bytes hold
        packed(IdPattern(ENTRY_ID_MAX - 1, 3, 0, 1), 9, 900),  # an id beyond the last
        packed(IdPattern(ENTRY_ID_MAX - 9, 1, 5, 3), 9, 900),
        packed(IdPattern(0, _UINT32_MAX, _UINT32_MAX, _UINT32_MAX), _UINT32_MAX, _UINT32_MAX),
    ],
)
def test_an_impossible_row_is_noticed(bad: bytes, many: int) -> None:
    assert are_possible(GOOD * many)
    assert not are_possible(GOOD * many + bad)


def test_many_rows_are_held_against_the_same_as_few() -> None:
    random = Random(0)
    numbers = (0, 1, 2, 3, 36, 72, 1_000, 2**31, _UINT32_MAX)
    starts = (-1, 0, 7, 2**62, ENTRY_ID_MAX - 36, ENTRY_ID_MAX - 1, ENTRY_ID_MAX)
    possible = 0
    for _ in range(5_000):
        size, period, count, entries, size_bytes = (random.choice(numbers) for _ in range(5))
        row = packed(IdPattern(random.choice(starts), size, period, count), entries, size_bytes)

        assert rows._are_possible(row) is are_possible(row), rows.unpack_row(row)
        possible += are_possible(row)
    assert possible > 20
