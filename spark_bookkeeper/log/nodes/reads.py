"""Typed reads of one log's nodes, and the two changes many make: a new token, a LIVE one to DEAD.

Reads only what it is asked for. A chunk is referenced by the head or by garbage as long as it
lives; a reader that finds one missing raced a change and starts again from its head, a bounded
number of times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from bookkeeper_metadata.errors import MetadataCorruptError, MetadataUnavailableError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import NoNodeError, StoreConflict
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.format import serde
from spark_bookkeeper.log.format.epoch import StoredTxn, Token, TokenChild, TokenState, Txn
from spark_bookkeeper.log.format.model import (
    Chunk,
    ChunkRef,
    Cursor,
    Garbage,
    LedgerRange,
    LogHead,
    LogState,
)
from spark_bookkeeper.log.nodes.paths import (
    LogPaths,
    LogTree,
    numbers_of,
    parse_child_name,
    unescape,
)

A = TypeVar("A")
K = TypeVar("K")
T = TypeVar("T")

LIVE_TOKEN_VERSION = 0
"""A token is created LIVE and every change ends that state, so LIVE is always this version."""
READS_MAX = 32
"""Nodes of one log read at a time."""
KILL_ATTEMPTS_MAX = 8
"""How often setting a token DEAD is tried against lost replies."""


class ChunkMissingError(Exception):
    """A chunk that was referenced a moment ago is gone: read again from the head."""


@dataclass(frozen=True, slots=True)
class HeadAt:
    """A head, and the version that guards a change to it."""

    head: LogHead
    version: int


@dataclass(frozen=True, slots=True)
class TokenAt:
    """A token and its version."""

    token: Token
    version: int


@dataclass(frozen=True, slots=True)
class TxnAt:
    """A stored transaction and its version."""

    txn: StoredTxn
    version: int


@dataclass(frozen=True, slots=True)
class CursorAt:
    """A consumer's cursor and its version."""

    cursor: Cursor
    version: int
    stored_ms: int
    """When it was written last, by the store's clock."""

    def is_live(self, now_ms: int) -> bool:
        """Whether retention has to wait for it, at a time of the store's clock.

        By that clock alone: one host's clock may be ahead by years and would hold rows for years, or
        behind, and a consumer that has just said that it is there would count for nothing.
        """
        return now_ms - self.stored_ms <= self.cursor.timeout_ms


class LogNodes:
    """One log's nodes as values. ``log`` names it in errors: its name where known, else its id."""

    def __init__(self, store: MetadataStore, paths: LogPaths, log_id: int, log: str = "") -> None:
        self.store = store
        self.log_id = log_id
        self.log = log or str(log_id)
        self.tree: LogTree = paths.log(log_id)
        self._parsed: tuple[bytes, LogHead] | None = None
        """The head parsed last: followers read it over and over, and mostly it has not changed."""

    async def sync(self) -> None:
        """Make later reads see everything committed before this call."""
        await self.store.sync(self.tree.root)

    async def head(self) -> HeadAt:
        """The head as it is.

        Raises:
            NoSuchLogError: the log is gone or being deleted.
        """
        found = await self.head_or_none()
        if found is None or found.head.state is not LogState.LIVE:
            raise NoSuchLogError(self.log)
        return found

    async def head_or_none(self) -> HeadAt | None:
        """The head whatever its state; ``None``: there is none."""
        node = await self.store.get(self.tree.head)
        if node is None:
            return None
        if self._parsed is None or self._parsed[0] != node.value:
            self._parsed = node.value, serde.parse_head(self.tree.head, node.value)
        return HeadAt(self._parsed[1], node.version)

    async def token(self, epoch: int) -> TokenAt | None:
        """The token of ``epoch``; ``None``: it is gone."""
        return await self._read(self.tree.token(epoch), serde.parse_token, TokenAt)

    async def txn(self, app_id: str) -> TxnAt | None:
        """What the application committed last."""
        return await self._read(self.tree.txn(app_id), serde.parse_txn, TxnAt)

    async def txn_of(self, txn: Txn | None) -> TxnAt | None:
        """What the application of ``txn`` committed last; ``None`` without one."""
        return None if txn is None else await self.txn(txn.app_id)

    async def txns(self) -> dict[str, StoredTxn]:
        """What every application committed last, by its id."""
        app_ids = [unescape(name) for name in await self.store.children(self.tree.txns) or []]
        stored = await _read_each(self.txn, app_ids)
        return {app_id: at.txn for app_id, at in stored.items()}

    async def cursor(self, consumer: str) -> CursorAt | None:
        """How far a consumer has read."""
        path = self.tree.consumer(consumer)
        node = await self.store.get(path)
        if node is None:
            return None
        return CursorAt(serde.parse_cursor(path, node.value), node.version, node.modified_ms)

    async def cursors(self) -> dict[str, CursorAt]:
        """How far every consumer has read, by its name."""
        names = [unescape(name) for name in await self.store.children(self.tree.consumers) or []]
        return await _read_each(self.cursor, names)

    async def generation(self) -> int:
        """Which set of cursors this is: it grows whenever one is made.

        Raises:
            NoSuchLogError: the log is gone.
        """
        node = await self.store.get(self.tree.consumers)
        if node is None:
            raise NoSuchLogError(self.log)
        return node.version

    async def schema(self, schema_id: int) -> bytes | None:
        """The schema of that number, as it was given."""
        path = self.tree.schema(schema_id)
        node = await self.store.get(path)
        return None if node is None else serde.parse_schema(path, node.value)

    async def schemas(self) -> dict[int, bytes]:
        """All schemas by number."""
        numbers = numbers_of(await self.store.children(self.tree.schemas) or [])
        return await _read_each(self.schema, numbers)

    async def draw_epoch(self, token: Token) -> int:
        """Create a token, LIVE under a number never used before; returns that number, its epoch.

        Raises:
            NoSuchLogError: the log is gone.
            MetadataUnavailableError: a token may have been created; unused, it expires.
        """
        prefix = f"{self.tree.tokens}/"
        try:
            path = await self.store.sequence(prefix, serde.encode_token(token))
        except NoNodeError as cause:
            raise NoSuchLogError(self.log) from cause
        return int(path.removeprefix(prefix))

    async def find_token(self, epoch: int) -> TokenAt | None:
        """The token; ``None`` only when it is gone, and not because this session lags behind.

        The plan that drew it ran in another session, which this one may not have caught up with.
        """
        found = await self.token(epoch)
        if found is None:
            await self.sync()
            found = await self.token(epoch)
        return found

    async def epochs(self) -> list[int]:
        """Epochs that still have a token, ascending."""
        return numbers_of(await self.store.children(self.tree.tokens) or [])

    async def token_children(self, epoch: int) -> list[TokenChild]:
        """The ledgers under a token; final once the token is not LIVE. Empty when it is gone."""
        names = await self.store.children(self.tree.token(epoch)) or []
        found: list[TokenChild] = []
        for name in names:
            # What is called otherwise is nobody's ledger, and no reason to stop at.
            with suppress(ValueError):
                found.append(parse_child_name(name))
        return sorted(found)

    async def job_epochs(self, job: str) -> list[int]:
        """Epochs whose tasks claimed under ``job`` (a node name), ascending."""
        return numbers_of(await self.store.children(self.tree.job(job)) or [])

    async def garbage_epochs(self) -> list[int]:
        """Epochs that left garbage, ascending."""
        return numbers_of(await self.store.children(self.tree.garbage) or [])

    async def garbage(self, epoch: int) -> Garbage | None:
        """What the commit of ``epoch`` dropped; ``None``: it is gone."""
        path = self.tree.garbage_entry(epoch)
        node = await self.store.get(path)
        return None if node is None else serde.parse_garbage(path, node.value)

    async def chunk(self, ref: ChunkRef, columns: Collection[str] | None = None) -> Chunk:
        """The chunk behind a reference.

        Raises:
            ChunkMissingError: it is gone.
            MetadataCorruptError: it holds other rows than the reference says.
        """
        path = self.tree.chunk(ref.name)
        node = await self.store.get(path)
        if node is None:
            raise ChunkMissingError(ref.name)
        found = serde.parse_chunk(path, node.value, columns)
        if defects := found.defects(ref):
            raise MetadataCorruptError(path, "; ".join(defects))
        return found

    async def levels_below(
        self, refs: Iterable[ChunkRef], wanted: Callable[[ChunkRef], bool] = lambda ref: True
    ) -> list[list[ChunkRef]]:
        """The ``wanted`` references at and below ``refs``, index chunks opened level by level.

        Each level is in row order; the last one holds references of level 0 only.

        Raises:
            ChunkMissingError: an index chunk is gone.
        """
        levels = [[ref for ref in refs if wanted(ref)]]
        while any(ref.level > 0 for ref in levels[-1]):
            opened = await each(self._open, levels[-1], concurrency_max=READS_MAX)
            levels.append([ref for below in opened for ref in below if wanted(ref)])
        return levels

    async def ranges_below(
        self,
        refs: Iterable[ChunkRef],
        wanted: Callable[[ChunkRef], bool] = lambda ref: True,
        columns: Collection[str] | None = None,
    ) -> list[LedgerRange]:
        """All ranges in the chunks below ``refs``, in row order; chunks not ``wanted`` stay unread.

        Raises:
            ChunkMissingError: a chunk is gone.
        """
        leaves = (await self.levels_below(refs, wanted))[-1]
        chunks = await each(lambda ref: self.chunk(ref, columns), leaves, concurrency_max=READS_MAX)
        return [item for chunk in chunks for item in chunk.ranges]

    async def ledger_ids(self, of: LogHead | Garbage) -> set[int]:
        """The ledgers of all ranges that a head or a garbage entry lists; never the open ledger.

        Raises:
            ChunkMissingError: a chunk is gone.
        """
        below = await self.ranges_below(of.chunks, columns=())
        return {item.ledger_id for item in (*below, *of.ranges)}

    async def kill(self, epoch: int, now_ms: int) -> TokenState | None:
        """Set a LIVE token DEAD; returns the state it has then, ``None`` when it is gone.

        After DEAD or COMMITTED no ledger appears under the token any more, and no commit of the
        epoch that had not happened can happen.

        Raises:
            MetadataUnavailableError: the store did not answer; the token may be in any state.
        """
        path = self.tree.token(epoch)
        for attempt in range(1, KILL_ATTEMPTS_MAX + 1):
            try:
                if attempt > 1:
                    await self.sync()
                found = await self.find_token(epoch)
                if found is None or found.token.state is not TokenState.LIVE:
                    return None if found is None else found.token.state
                dead = replace(found.token, state=TokenState.DEAD, changed_ms=now_ms)
                # A commit that came first has made it another version, and must keep what it
                # committed.
                await self.store.put(path, serde.encode_token(dead), LIVE_TOKEN_VERSION)
                return TokenState.DEAD
            except StoreConflict:
                continue  # A stale read or a lost race: read the token again after a sync.
            except MetadataUnavailableError:
                if attempt == KILL_ATTEMPTS_MAX:
                    raise
        raise MetadataUnavailableError(self.store.service, f"token changes at every read {path}")

    async def _read(
        self, path: str, parse: Callable[[str, bytes], T], at: Callable[[T, int], A]
    ) -> A | None:
        node = await self.store.get(path)
        return None if node is None else at(parse(path, node.value), node.version)

    async def _open(self, ref: ChunkRef) -> tuple[ChunkRef, ...]:
        # Leaves stand beside index chunks; they go down with them, so that row order is kept.
        return (ref,) if ref.level == 0 else (await self.chunk(ref)).chunks


async def _read_each(read: Callable[[K], Awaitable[T | None]], keys: Collection[K]) -> dict[K, T]:
    """What ``read`` returns for each of the ``keys``, without those deleted since they were listed."""
    found = await each(read, keys, concurrency_max=READS_MAX)
    return {key: value for key, value in zip(keys, found, strict=True) if value is not None}
