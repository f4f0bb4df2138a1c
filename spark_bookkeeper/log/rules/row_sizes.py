"""How many rows a number of bytes is: where a read that is bounded by size ends.

Walks the parts of a log from the first row on and opens a chunk only where the wanted rows begin or
end inside it, so the cost follows the depth of the chunks, never the length of the log. Sizes inside
a range are taken as even: ranges say no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from spark_bookkeeper.log.format.model import Chunk, ChunkRef, LedgerRange


async def row_after_bytes(
    parts: Iterable[ChunkRef | LedgerRange],
    from_row: int,
    to_row: int,
    size_bytes_max: int,
    open_chunk: Callable[[ChunkRef], Awaitable[Chunk]],
) -> int:
    """The end of the rows from ``from_row`` on that hold about ``size_bytes_max`` bytes.

    At least the rows of one entry, at most up to ``to_row``.
    """
    waiting = deque(parts)
    row, left = from_row, size_bytes_max
    while waiting and row < to_row:
        part = waiting.popleft()
        if part.next_row <= row:
            continue
        if isinstance(part, LedgerRange):
            fitting = rows_within(part, row, left)
            if row + fitting < part.next_row:
                # With nothing a batch would be empty, and its query would never move on.
                at_least = min(row + _rows_of_entry(part), part.next_row)
                row = at_least if not fitting and row == from_row else row + fitting
                break
            left -= _size_from(part, row)
            row = part.next_row
        elif part.first_row >= row and part.size_bytes <= left:
            # Wanted as a whole: its total is in the reference, and the chunk stays unread.
            left -= part.size_bytes
            row = part.next_row
        else:
            chunk = await open_chunk(part)
            waiting.extendleft(reversed((*chunk.chunks, *chunk.ranges)))
    return min(row, to_row)


def rows_within(item: LedgerRange, row: int, size_bytes_max: int) -> int:
    """How many of the range's rows from ``row`` on fit; all that are left if their bytes do."""
    if _size_from(item, row) <= size_bytes_max:
        return item.next_row - row
    return min(item.rows * size_bytes_max // item.size_bytes, item.next_row - row)


def _size_from(item: LedgerRange, row: int) -> int:
    return item.size_bytes * (item.next_row - row) // item.rows


def _rows_of_entry(item: LedgerRange) -> int:
    return -(-item.rows // (item.last_entry - item.first_entry + 1))
