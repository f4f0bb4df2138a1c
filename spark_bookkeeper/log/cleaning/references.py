"""Who still names a ledger or a chunk: the log's head, its chunks, or its garbage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.bounded import each
from spark_bookkeeper.log.nodes.reads import READS_MAX, ChunkMissingError, LogNodes

REFERENCE_ATTEMPTS_MAX = 16
"""How often cleaning reads a log's list of ranges anew when a chunk is missing before it gives up."""

T = TypeVar("T")


async def find_referenced(
    nodes: LogNodes, ledger_ids: Collection[int], *, besides: int | None = None
) -> set[int]:
    """Which of ``ledger_ids`` the log or its garbage names (garbage of ``besides`` aside).

    Reads head, chunks, then garbage, in this order, so that a range that moves from one to the
    other is seen in at least one; a missing chunk starts it again. The caller has synced, or reads
    in the session that saw the epoch end.

    Raises:
        MetadataUnavailableError: chunks went missing every time.
        NoSuchLogError: the log is gone or being deleted.
    """
    wanted = set(ledger_ids)

    async def read() -> set[int]:
        head = (await nodes.head()).head
        found = wanted & await nodes.ledger_ids(head)
        # A ledger has no range before its end is recorded.
        if head.open_ledger is not None:
            found |= wanted & {head.open_ledger.ledger_id}
        for epoch in await nodes.garbage_epochs():
            if epoch != besides:
                found |= wanted & await _find_named_by_garbage(nodes, epoch)
        return found

    return await read_whole(nodes, "ranges", read)


async def referenced_chunks(nodes: LogNodes) -> set[str]:
    """Names of all chunks the log or its garbage references, index chunks included.

    The same order and errors as :func:`find_referenced`; chunks of ranges stay unread.
    """

    async def read() -> set[str]:
        head = (await nodes.head()).head
        levels = await nodes.levels_below(head.chunks)
        epochs = await nodes.garbage_epochs()
        for garbage in await each(nodes.garbage, epochs, concurrency_max=READS_MAX):
            if garbage is not None:
                levels += await nodes.levels_below(garbage.chunks)
        return {ref.name for level in levels for ref in level}

    return await read_whole(nodes, "chunks", read)


async def read_whole(nodes: LogNodes, what: str, read: Callable[[], Awaitable[T]]) -> T:
    """Run ``read``; start it over, from the head, when a change took a chunk away meanwhile."""
    for _ in range(REFERENCE_ATTEMPTS_MAX):
        try:
            return await read()
        except ChunkMissingError:
            # A chunk goes after the head that named it: a session that lags would read that head
            # again.
            await nodes.sync()
    raise MetadataUnavailableError(
        nodes.store.service, f"list of {what} changes at every read log={nodes.log}"
    )


async def _find_named_by_garbage(nodes: LogNodes, epoch: int) -> set[int]:
    garbage = await nodes.garbage(epoch)
    # Removed since it was listed: its ledgers were deleted before.
    return set() if garbage is None else await nodes.ledger_ids(garbage)
