"""Where a log begins once what its retention lets go is gone.

Reads the oldest chunks only: what goes as a whole stays unread, whatever it holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from spark_bookkeeper.log.format.model import Chunk, ChunkRef, LedgerRange, Retention

OpenChunk = Callable[[ChunkRef], Awaitable[Chunk]]


async def first_row_kept(
    parts: Iterable[ChunkRef | LedgerRange], limits: Retention, now_ms: int, open_chunk: OpenChunk
) -> int | None:
    """The first row of the oldest range that stays of ``parts`` (in row order) at ``now_ms``.

    The newest range always stays; ``None``: there are no ranges.
    """
    waiting = deque(parts)
    behind_bytes = sum(part.size_bytes for part in waiting)
    while waiting:
        part = waiting.popleft()
        behind_bytes -= part.size_bytes
        if waiting and _goes(part, behind_bytes, limits, now_ms):
            continue
        if isinstance(part, LedgerRange):
            return part.first_row
        chunk = await open_chunk(part)
        waiting.extendleft(reversed((*chunk.chunks, *chunk.ranges)))
        behind_bytes += part.size_bytes
    return None


def _goes(part: ChunkRef | LedgerRange, behind_bytes: int, limits: Retention, now_ms: int) -> bool:
    """Whether all of a part goes, with ``behind_bytes`` in the parts behind it."""
    committed_ms = part.commit_ms if isinstance(part, LedgerRange) else part.last_commit_ms
    if limits.time_ms is not None and now_ms - committed_ms > limits.time_ms:
        return True
    return limits.size_bytes is not None and behind_bytes >= limits.size_bytes
