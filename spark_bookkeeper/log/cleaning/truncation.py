"""Drops the oldest ranges of a log: to the garbage in one multi, from there by collection.

Ranges go whole and rows keep their numbers. Readers that were behind get an error; those that had
planned before finish within the garbage's retention. The open ledger is never touched, so a log's
writer goes on undisturbed.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_bookkeeper.log.cleaning.references import read_whole
from spark_bookkeeper.log.commits.change import HeadChange, change_head
from spark_bookkeeper.log.format.model import Chunk, LogHead
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.nodes.site import LogSite
from spark_bookkeeper.log.rules.chunks import ChunkNames
from spark_bookkeeper.log.rules.transitions import Transition, chunk_to_cut, truncate


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was dropped of a log, or would be: whole ranges."""

    first_row: int
    """The first row that is left."""
    rows: int = 0
    size_bytes: int = 0
    """Payload bytes of one copy."""

    @classmethod
    def by(cls, head: LogHead, transition: Transition | None) -> Dropped:
        """What a change of the head drops; ``None``: nothing."""
        if transition is None:
            return cls(head.base_row)
        first_row, garbage = transition.head.base_row, transition.garbage
        size_bytes = 0 if garbage is None else garbage.size_bytes
        return cls(first_row, first_row - head.base_row, size_bytes)


async def would_drop(nodes: LogNodes, before_row: int) -> Dropped:
    """What :func:`truncate_log` would drop now.

    Raises:
        ValueError: the log has no such row, and no writer.
        NoSuchLogError, MetadataUnavailableError: the log is gone, or nobody knows.
    """

    async def look() -> Dropped:
        head = (await nodes.head()).head
        require_row(head, before_row)
        return Dropped.by(head, await cut_before(nodes, head, before_row, ChunkNames(0), 0))

    await nodes.sync()
    return await read_whole(nodes, "ranges", look)


async def truncate_log(site: LogSite, nodes: LogNodes, before_row: int) -> Dropped:
    """Drop every range that ends at or below ``before_row``.

    Raises:
        ValueError: the log has no such row, and no writer.
        NoSuchLogError, MetadataConflictError, MetadataUnavailableError: see ``change_head``.
    """

    async def attempt(change: HeadChange) -> Dropped:
        found = await nodes.head()
        head = found.head
        require_row(head, before_row)
        transition = await cut_before(nodes, head, before_row, change.names, change.now_ms)
        if transition is not None:
            await change.apply(found, transition.kept_for(site.garbage_retention_ms))
        return Dropped.by(head, transition)

    return await change_head(nodes, attempt, clock_ms=site.clock_ms, pause=site.pause)


def require_row(head: LogHead, before_row: int) -> None:
    """Refuse to drop what is before a row that the log cannot have.

    Raises:
        ValueError: the log has no such row, and no writer.
    """
    # Rows of an open ledger lie beyond the end that the head knows.
    if before_row < 0 or (before_row > head.next_row and head.open_ledger is None):
        raise ValueError(
            f"the log has no row {before_row}; first_row={head.base_row} next_row={head.next_row}"
        )


async def cut_before(
    nodes: LogNodes, head: LogHead, before_row: int, names: ChunkNames, now_ms: int
) -> Transition | None:
    """The change that drops what ends at or below ``before_row``; ``None``: nothing does.

    Raises:
        ChunkMissingError: a chunk that has to be opened is gone.
    """
    opened: dict[str, Chunk] = {}
    ref = chunk_to_cut(head.chunks, before_row)
    # The chunks that hold rows on both sides of the row: one of each level.
    while ref is not None:
        # Read with all column bounds: what stays of the chunk is written anew from this.
        chunk = opened[ref.name] = await nodes.chunk(ref)
        ref = chunk_to_cut(chunk.chunks, before_row)
    return truncate(head, before_row, opened, names, now_ms)
