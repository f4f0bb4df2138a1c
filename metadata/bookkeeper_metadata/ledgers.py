"""The ledgers of one cluster: allocate an id, create, read, update, delete, list, watch.

A ledger is one node, and its version decides between everybody who changes it. Creation stamps a
writer token, so a lost reply is resolved by reading back; together with ``extra_operations`` it is
one atomic multi, whose outcome the same token shows. Ids are drawn from ZooKeeper's sequence
counters exactly as Apache's clients draw them, so both may create ledgers side by side.
Source: Apache ``AbstractZkLedgerManager``, ``ZkLedgerIdGenerator``, ``LongZkLedgerIdGenerator``.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from random import Random

from bookkeeper_metadata.cluster import read_layout
from bookkeeper_metadata.errors import (
    ClusterNotInitializedError,
    LedgerExistsError,
    MetadataAccessError,
    MetadataConflictError,
    MetadataCorruptError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.foundation.backoff import back_off
from bookkeeper_metadata.ids import Drawn, LedgerIds
from bookkeeper_metadata.model import LedgerMetadata, Stop, Transform, Versioned
from bookkeeper_metadata.paths import LEDGER_ID_MAX, LedgerLayout, Paths
from bookkeeper_metadata.serde import encode_metadata
from bookkeeper_metadata.store.folders import delete_empty_folders
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import (
    BadVersionError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
)
from bookkeeper_metadata.update import LedgerNode, T, fresh_token, read_back, update_metadata

__all__ = ["CREATE_ATTEMPTS_MAX", "ExtraOperations", "LedgerStore", "Versioned"]

_LOGGER = logging.getLogger(__name__)
OnHidden = Callable[[MetadataAccessError, int, int], None]
"""Told of a folder that its user may not see, and of the first and the last id that a ledger in it may have; the last is
less where it can have none."""

CREATE_ATTEMPTS_MAX = 20
"""Ids tried, and attempts made at each, before a creation gives up."""

ExtraOperations = Callable[[int], Sequence[Operation]]
"""Operations to perform in the same multi as the creation of the ledger of this id."""

_BRANCHES = ((re.compile(r"[0-9]{2}"), 1), (re.compile(r"[0-9]{3}"), 3))
"""First level of the short and of the long family of paths, and how many levels lie below it."""
_LEVEL = re.compile(r"[0-9]{4}")
_LEAF = re.compile(r"L[0-9]{4}")


class LedgerStore:
    """Metadata of the ledgers below ``root``; owns neither the store nor ``random``.

    Without ``layout`` the cluster's own LAYOUT decides, read once at first use.
    """

    def __init__(
        self, store: MetadataStore, root: str, *, random: Random, layout: LedgerLayout | None = None
    ) -> None:
        self._store = store
        self._paths = Paths(root)
        self._random = random
        self._layout = layout
        self._ids = LedgerIds(store, self._paths)

    async def create(
        self,
        metadata: LedgerMetadata,
        *,
        ledger_id: int | None = None,
        extra_operations: ExtraOperations | None = None,
    ) -> tuple[int, Versioned]:
        """Create a ledger, under the given id or a new one; returns id and metadata.

        The ledger and the ``extra_operations`` are created together or not at all; the function is
        called once for every id that is tried.

        Raises:
            LedgerExistsError: ``ledger_id`` is taken.
            StoreConflict: one of the ``extra_operations`` was refused (see ``path``); nothing
                was created.
            ClusterNotInitializedError: there is no cluster at this root.
            MetadataUnavailableError: unknown whether it was created.
        """
        if ledger_id is not None and not 0 <= ledger_id <= LEDGER_ID_MAX:
            raise ValueError(f"a ledger id is 0..2^63-1; ledger_id={ledger_id}")
        # One token for all attempts: whichever of them is found to have been applied, it was this
        # call's.
        stamped = replace(metadata, writer_token=fresh_token(self._random))
        await self._ledger_layout()  # Without a cluster no id is drawn.
        for _ in range(CREATE_ATTEMPTS_MAX):
            drawing = self._ids.draw() if ledger_id is None else contextlib.nullcontext(None)
            async with drawing as drawn:
                candidate = drawn.number if drawn is not None else ledger_id
                assert candidate is not None
                ledger = await self._node(candidate)
                extra = [] if extra_operations is None else list(extra_operations(candidate))
                created = await self._create_at(ledger, stamped, extra, drawn)
            if created is not None:
                return candidate, created
            if ledger_id is not None:
                raise LedgerExistsError(ledger_id)
        raise MetadataConflictError("ledger id", f"{CREATE_ATTEMPTS_MAX} allocated ids were taken")

    async def read(self, ledger_id: int) -> Versioned:
        """Read the metadata; a creation time that was not recorded is taken from the node.

        Raises:
            NoSuchLedgerError: the store definitely has none.
            MetadataCorruptError: its value cannot be understood.
        """
        return await (await self._node(ledger_id)).read()

    async def update(
        self, ledger_id: int, transform: Transform[T], *, known: Versioned | None = None
    ) -> Versioned | Stop[T]:
        """Apply a pure ``transform``; see :func:`bookkeeper_metadata.update.update_metadata`."""
        ledger = await self._node(ledger_id)
        return await update_metadata(ledger, transform, random=self._random, known=known)

    async def renew(self, ledger_id: int, known: Versioned) -> bool:
        """Store the metadata anew as it is ``known``, with another token; returns whether that was done.

        Then nobody's compare-and-set succeeds who has read it before, and what is known was no old answer of
        a server that lags behind.

        Raises:
            MetadataUnavailableError: unknown whether it was done.
        """
        ledger = await self._node(ledger_id)
        stamped = replace(known.metadata, writer_token=fresh_token(self._random))
        try:
            await self._store.put(ledger.path, encode_metadata(stamped), known.version)
        except (BadVersionError, NoNodeError):
            return False
        return True

    async def delete(self, ledger_id: int, expected_version: int | None = None) -> None:
        """Delete the metadata, which makes the ledger's entries garbage on every bookie.

        Raises:
            NoSuchLedgerError: there was none.
            MetadataConflictError: it is not at ``expected_version``; nothing was deleted.
            MetadataUnavailableError: unknown whether it was deleted.
        """
        path = (await self._node(ledger_id)).path
        for attempt in range(CREATE_ATTEMPTS_MAX):
            await back_off(attempt, self._random)
            try:
                await self._store.delete(path, expected_version)
                break
            except NoNodeError as cause:
                raise NoSuchLedgerError(ledger_id) from cause
            except BadVersionError as cause:
                raise MetadataConflictError(path, "not at the version to delete") from cause
            except MetadataUnavailableError as lost:
                # No token is needed to tell whose deletion it was: gone is what the caller wanted.
                if await read_back(self._store, path, self._random, lost) is None:
                    break
        else:
            raise MetadataUnavailableError(self._store.service, "every reply to a delete was lost")
        await delete_empty_folders(self._store, path.rpartition("/")[0], self._paths.root)

    async def sync(self) -> None:
        """Have what is read from now on be as new as anything that was written before this call."""
        await self._store.sync(self._paths.root)

    async def list_ids(
        self, *, is_descending: bool = False, on_hidden: OnHidden | None = None
    ) -> AsyncIterator[int]:
        """Every ledger id, ascending or not. Ledgers created or deleted meanwhile may or may not appear.

        An error means "unknown", never "no more": a garbage collector must not act on a list that
        did not end by itself. With ``on_hidden``, which is told of each folder that this user may not see at its place in the list, that
        goes on behind it.

        Raises:
            ClusterNotInitializedError: the root is gone, and with it whatever there was to list.
        """
        names = await self._store.children(self._paths.root)
        if names is None:
            raise ClusterNotInitializedError(self._paths.root)
        # The short family first, which makes the ids ascend: all ids of the long one are larger or,
        # in a cluster of the long layout, all there are.
        for branch, depth in reversed(_BRANCHES) if is_descending else _BRANCHES:
            for name in sorted(names, reverse=is_descending):
                if branch.fullmatch(name):
                    path = f"{self._paths.root}/{name}"
                    async for ledger_id in self._walk(path, depth, is_descending, on_hidden):
                        yield ledger_id

    async def is_gone(self, ledger_id: int) -> bool:
        """Whether the server that is asked definitely has no metadata of the ledger, of any kind."""
        return await self._store.get((await self._node(ledger_id)).path) is None

    async def draw_id(self) -> int:
        """An id that no ledger is created under: all that are drawn from now on lie above it.

        Raises:
            ClusterNotInitializedError: there is no cluster any more, and none is begun by drawing.
        """
        await read_layout(self._store, self._paths.root)
        async with self._ids.draw() as drawn:
            return drawn.number

    async def skip_ids(self, past: int) -> int:
        """Have all new ledgers have ids above ``past``; see :meth:`bookkeeper_metadata.ids.LedgerIds.skip_past`.

        Raises:
            ClusterNotInitializedError: there is no cluster, and none is begun by this.
        """
        await read_layout(self._store, self._paths.root)
        return await self._ids.skip_past(past)

    async def ids_being_created(self) -> list[int]:
        """Drawn ids under which our clients may still create ledgers, ascending.

        Of clients that end without a word, none is left when their sessions have expired. Apache's
        clients show none.
        """
        return await self._ids.pending()

    async def watch(
        self, ledger_id: int, changed: Callable[[Versioned | None], None]
    ) -> Callable[[], None]:
        """Call ``changed`` with the metadata now and after every change, ``None`` once it is gone.

        A value that cannot be understood is logged and not reported: :meth:`read` raises for it.
        Returns the function that ends the watch.
        """
        ledger = await self._node(ledger_id)

        def parse_and_report(node: Node | None) -> None:
            try:
                changed(None if node is None else ledger.parse(node))
            except MetadataCorruptError as corrupt:
                _LOGGER.error("watched ledger metadata is corrupt: %s", corrupt)

        return await self._store.watch(ledger.path, parse_and_report)

    async def _node(self, ledger_id: int) -> LedgerNode:
        path = self._paths.ledger(ledger_id, await self._ledger_layout())
        return LedgerNode(self._store, path, ledger_id)

    async def _ledger_layout(self) -> LedgerLayout:
        if self._layout is None:
            self._layout = await read_layout(self._store, self._paths.root)
        return self._layout

    async def _create_at(
        self,
        ledger: LedgerNode,
        metadata: LedgerMetadata,
        extra: Sequence[Operation],
        drawn: Drawn | None,
    ) -> Versioned | None:
        """Create the ledger at one id; ``None`` when the id belongs to another ledger."""
        create = Create(ledger.path, encode_metadata(metadata))
        # As long as the node is there, no garbage collection takes the id for a dead one's.
        counted = [Delete(drawn.node, 0)] if drawn is not None else []
        lost: MetadataUnavailableError | None = None
        for attempt in range(CREATE_ATTEMPTS_MAX):
            await back_off(attempt, self._random)
            try:
                if extra or counted:
                    await self._store.multi([create, *counted, *extra])
                else:
                    await self._store.create(create.path, create.value)
                if drawn is not None:
                    drawn.is_spent = True
                return Versioned(metadata, 0)
            except NodeExistsError as refused:
                # An extra operation was refused: that is about the caller's node, not about this
                # id.
                if refused.path != ledger.path:
                    raise
                # After a lost attempt it may be our own, applied later than it was looked for.
                if lost is None:
                    return None
            except NoNodeError as refused:
                if drawn is not None and refused.path == drawn.node:
                    return None  # our session was lost, and with it the id
                if refused.path != ledger.path:
                    raise
                # Parents come and go: the client that deletes a folder's last ledger deletes the
                # folder too.
                await self._make_parents(ledger.path)
                continue
            except MetadataUnavailableError as unknown:
                lost = unknown
            node = await read_back(self._store, ledger.path, self._random, lost)
            if node is None:
                continue
            found = ledger.parse(node)
            # With extras as well: a multi leaves the ledger behind only together with all of
            # them.
            if found.metadata.writer_token == metadata.writer_token:
                return found
            if found.version > 0 and drawn is None:
                # Ours may have been created and changed since: neither "made" nor "taken".
                raise lost
            # Another ledger's, or beyond telling. A drawn id is not worth an error: the next
            # one is free.
            return None
        raise MetadataUnavailableError(self._store.service, "every reply to a creation was lost")

    async def _make_parents(self, path: str) -> None:
        # The creation that follows finds out whether this worked, and comes back here if not.
        with contextlib.suppress(NodeExistsError, MetadataUnavailableError):
            await self._store.create(path.rpartition("/")[0], b"", make_parents=True)

    async def _walk(
        self, path: str, depth: int, is_descending: bool, on_hidden: OnHidden | None
    ) -> AsyncIterator[int]:
        """Ids below a folder that has ``depth`` levels of folders below it, leaves excluded."""
        pattern, layout = _LEVEL if depth else _LEAF, await self._ledger_layout()
        try:
            # A folder deleted since it was listed had lost its last ledger: no error, and nothing left
            # out.
            names = await self._store.children(path) or []
        except MetadataAccessError as refused:
            if on_hidden is None:
                raise
            on_hidden(refused, *self._paths.ids_below(path, layout))
            return
        for name in sorted(names, reverse=is_descending):
            if not pattern.fullmatch(name):
                continue
            if depth:
                below = f"{path}/{name}"
                async for ledger_id in self._walk(below, depth - 1, is_descending, on_hidden):
                    yield ledger_id
            else:
                leaf = f"{path}/{name}"
                found = self._paths.ledger_id(leaf)
                # Of the two places that an id fits into one is its own: nobody looks for it at the other, where
                # it would come twice, or in another order.
                if found is not None and leaf == self._paths.ledger(found, layout):
                    yield found
