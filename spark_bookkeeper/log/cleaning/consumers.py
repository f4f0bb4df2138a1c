"""Cursors: how far named consumers have read a log, so that retention drops nothing they still need.

A cursor never says where a query begins - its positions are in its own checkpoint - and it
lags behind what was read, never ahead. It only moves forward: two queries of one
name share a cursor that follows the faster one, so each needs a name of its own. A cursor that its
consumer did not touch for the time it announced itself counts for nothing, until it is touched again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from bookkeeper_metadata.errors import MetadataConflictError
from bookkeeper_metadata.store.operations import Create, NoNodeError, Put, StoreConflict
from spark_bookkeeper.log.errors import NoConsumerError, NoSuchLogError
from spark_bookkeeper.log.format.model import Cursor
from spark_bookkeeper.log.format.serde import encode_cursor
from spark_bookkeeper.log.nodes.deletes import delete_node
from spark_bookkeeper.log.nodes.reads import CursorAt, LogNodes

ADVANCE_ATTEMPTS_MAX = 16
"""Attempts to move a cursor while other clients move it too."""
TOUCHES_PER_TIMEOUT = 8
"""How often within its timeout a cursor that does not move is written again."""


FORGOTTEN_AFTER_MS = 30 * 86_400_000
"""A cursor that lapsed so long ago is removed: 30 days."""


def consumed_row(cursors: Iterable[CursorAt], now_ms: int) -> int | None:
    """The first row a live consumer still needs; ``None`` if there is no live consumer."""
    return min((each.cursor.row for each in cursors if each.is_live(now_ms)), default=None)


async def remove_lapsed_cursors(nodes: LogNodes, *, is_dry_run: bool = False) -> list[str]:
    """Remove cursors that lapsed long ago, which every retention would have to look at; their names."""
    found = []
    cursors = await nodes.cursors()
    head = await nodes.store.get(nodes.tree.head)
    # By the store's clock, as far as it is known to have come: this host's may be ahead by years, and
    # what is taken from a live consumer here no retention sees any more.
    written_ms = [at.stored_ms for at in cursors.values()]
    now_ms = max([*written_ms, head.modified_ms if head is not None else 0])
    for consumer, at in cursors.items():
        if now_ms - at.stored_ms <= at.cursor.timeout_ms + FORGOTTEN_AFTER_MS:
            continue
        # Of this version only: its consumer may be back.
        with suppress(StoreConflict):
            if not is_dry_run:
                await nodes.store.delete(nodes.tree.consumer(consumer), at.version)
            found.append(consumer)
    return found


class Consumers:
    """The cursors of one log; holds nothing between calls. ``clock_ms`` is wall-clock time."""

    def __init__(self, nodes: LogNodes, clock_ms: Callable[[], int]) -> None:
        self._nodes = nodes
        self._clock_ms = clock_ms

    async def advance(self, consumer: str, row: int, timeout_ms: int) -> Cursor:
        """Record that ``consumer`` is live and needs no row before ``row``; returns its cursor.

        While it is live, retention that waits for consumers drops no row from there on. Rows that
        were gone before are not brought back: a new consumer looks at the log's first row after this.

        Raises:
            NoSuchLogError: the log is gone.
            MetadataConflictError: others moved the cursor every time.
            MetadataUnavailableError: it may be moved or not; repeating the call is harmless.
        """
        store, path = self._nodes.store, self._nodes.tree.consumer(consumer)
        for _ in range(ADVANCE_ATTEMPTS_MAX):
            now_ms = self._clock_ms()
            try:
                found = await self._nodes.cursor(consumer)
                if found is None:
                    cursor = Cursor(row, now_ms, timeout_ms)
                    generation = await self._nodes.generation()
                    await store.multi(
                        [
                            Create(path, encode_cursor(cursor)),
                            # A retention that has read the cursors before this one was made is
                            # refused by this, and reads them again.
                            Put(self._nodes.tree.consumers, b"", generation),
                        ]
                    )
                else:
                    cursor = found.cursor.advanced(row, now_ms, timeout_ms)
                    await store.put(path, encode_cursor(cursor), found.version)
                return cursor
            except NoNodeError as gone:
                await self._nodes.sync()
                # Either the cursor was forgotten meanwhile, and is made again, or the whole log is
                # gone.
                if await self._nodes.head_or_none() is None:
                    raise NoSuchLogError(self._nodes.log) from gone
            except StoreConflict:
                # Moved by somebody else, or read from a follower that lags.
                await self._nodes.sync()
        raise MetadataConflictError(
            f"consumer {consumer} of log {self._nodes.log}", "others moved it every time"
        )

    async def forget(self, consumer: str) -> Cursor | None:
        """Drop a cursor, so that it holds nothing back; returns it, or ``None`` if there was none.

        A query that runs makes it again when it is next due to say that it is there.

        Raises:
            MetadataUnavailableError: it may be dropped or not; dropping it again is harmless.
        """
        await self._nodes.sync()
        found = await self._nodes.cursor(consumer)
        if found is not None:
            await delete_node(self._nodes.store, self._nodes.tree.consumer(consumer))
        return None if found is None else found.cursor

    async def consumed_row(self) -> int:
        """The first row that a live consumer of the log still needs.

        Raises:
            NoConsumerError: there is no live one, so nothing says what is still needed.
        """
        await self._nodes.sync()
        cursors = await self._nodes.cursors()
        row = consumed_row(cursors.values(), self._clock_ms())
        if row is None:
            raise NoConsumerError(self._nodes.log, tuple(sorted(cursors)))
        return row


class CursorHolder:
    """One consumer's hold on a log while it runs: moves its cursor and keeps it from expiring."""

    def __init__(
        self, consumers: Consumers, consumer: str, timeout_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        self._consumers = consumers
        self._consumer = consumer
        self._timeout_ms = timeout_ms
        self._clock_ms = clock_ms
        self._cursor: Cursor | None = None
        self._wrote_ms = 0
        """When this holder wrote it last, by its own clock: what the cursor says may be another host's time."""

    async def advance(self, row: int) -> None:
        """The rows before ``row`` are not needed any more; raises as :meth:`Consumers.advance`."""
        # Called with every batch: only what moves the cursor, or is due, is worth a write.
        if self._cursor is not None and row <= self._cursor.row and not self._is_due():
            return
        began_ms = self._clock_ms()
        self._cursor = await self._consumers.advance(self._consumer, row, self._timeout_ms)
        self._wrote_ms = began_ms

    async def heartbeat(self, row: int) -> None:
        """As :meth:`advance` of the first call; later ones only keep the cursor from expiring."""
        # Rows that were handed out may not be in the sink yet, so only ``advance`` moves it on.
        await self.advance(row if self._cursor is None else self._cursor.row)

    def _is_due(self) -> bool:
        age_ms = self._clock_ms() - self._wrote_ms
        # A clock that was set back says nothing of how long ago it was.
        return age_ms < 0 or age_ms * TOUCHES_PER_TIMEOUT >= self._timeout_ms
