"""Where a bounded number of bytes ends, found without reading the log's whole list of ranges."""

from __future__ import annotations

import pytest

from spark_bookkeeper.log.format.epoch import LedgerWritten
from spark_bookkeeper.log.format.model import Chunk, ChunkRef, LedgerRange
from spark_bookkeeper.log.rules.row_sizes import row_after_bytes, rows_within
from tests.spark_bookkeeper.log.test_transitions import Tree

RANGE = LedgerRange(1, 0, 4, 100, 50, 1_000, 0, 0)
"""Five entries of ten rows, twenty bytes a row."""


@pytest.fixture
def tree(small_chunks: None) -> Tree:
    """Three levels of chunks over 200 ranges of different sizes."""
    made = Tree()
    for number in range(200):
        made.append([LedgerWritten(number, number % 4, 8 + number % 5, 100 + 37 * (number % 11))])
    assert max(ref.level for ref in made.head.chunks) >= 2
    return made


async def walked(tree: Tree, from_row: int, to_row: int, size_bytes_max: int) -> tuple[int, int]:
    """The row found, and how many chunks that took."""
    opened = []

    async def open_chunk(ref: ChunkRef) -> Chunk:
        opened.append(ref.name)
        return tree.chunk(ref)

    parts: tuple[ChunkRef | LedgerRange, ...] = (*tree.head.chunks, *tree.head.ranges)
    found = await row_after_bytes(parts, from_row, to_row, size_bytes_max, open_chunk)
    return found, len(opened)


def by_looking_at_every_range(
    tree: Tree, from_row: int, to_row: int, size_bytes_max: int
) -> tuple[int, int]:
    """Between which rows the limit lies: the range in which the bytes run out."""
    left = size_bytes_max
    for item in tree.ranges():
        if item.next_row <= from_row:
            continue
        begin = max(item.first_row, from_row)
        size = item.size_bytes * (item.next_row - begin) // item.rows
        if size > left:
            return min(begin, to_row), min(item.next_row, to_row)
        left -= size
    return to_row, to_row


@pytest.mark.parametrize("size_bytes_max", [1, 150, 1_000, 9_999, 10**9])
async def test_the_end_lies_where_the_bytes_run_out(tree: Tree, size_bytes_max: int) -> None:
    end_row = tree.head.next_row
    for from_row in range(0, end_row, 17):
        for to_row in (from_row + 1, min(from_row + 300, end_row), end_row):
            found, _ = await walked(tree, from_row, to_row, size_bytes_max)

            low, high = by_looking_at_every_range(tree, from_row, to_row, size_bytes_max)
            assert from_row < found <= to_row
            assert low <= found <= high


async def test_two_chunks_a_level_are_enough(tree: Tree) -> None:
    levels = max(ref.level for ref in tree.head.chunks) + 1
    end_row = tree.head.next_row

    opened = [(await walked(tree, row, end_row, 20_000))[1] for row in range(0, end_row, 13)]

    assert max(opened) <= 2 * levels
    assert await walked(tree, 0, end_row, 10**12) == (end_row, 0)


async def test_a_batch_of_fewer_bytes_than_an_entry_is_one_entry() -> None:
    async def unreachable(ref: ChunkRef) -> Chunk:
        raise AssertionError(ref)

    assert await row_after_bytes((RANGE,), 100, 150, 1, unreachable) == 110
    assert await row_after_bytes((RANGE,), 145, 150, 1, unreachable) == 150
    assert await row_after_bytes((RANGE,), 100, 105, 1, unreachable) == 105


@pytest.mark.parametrize(
    ("row", "size_bytes_max", "rows"),
    [(100, 1_000, 50), (100, 999, 49), (100, 20, 1), (100, 19, 0), (140, 200, 10), (140, 199, 9)],
)
def test_rows_of_a_range_are_of_equal_size(row: int, size_bytes_max: int, rows: int) -> None:
    assert rows_within(RANGE, row, size_bytes_max) == rows
