"""Bookies that an operator has made read-only: a node for each, which outlives every restart.

A wish, not a state: the bookie follows it when it sees it, at its next start if it is down.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from bookkeeper_metadata.bookies import BookieRegistry, check_bookie_id
from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.errors import NoSuchCookieError
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import NodeExistsError, NoNodeError


class ReadonlyWishes:
    """Those of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self._root = root
        self._paths = Paths(root)

    async def make(self, bookie_id: str) -> None:
        """Want a bookie to take no new entries; twice is once.

        Raises:
            NoSuchCookieError: no bookie of this id belongs to the cluster.
        """
        recorded = await CookieStore(self._store, self._root).read(check_bookie_id(bookie_id))
        registry = BookieRegistry(self._store, self._root)
        if not recorded.is_known and not await registry.is_registered(bookie_id):
            raise NoSuchCookieError(bookie_id)
        with suppress(NodeExistsError):
            await self._store.create(self._paths.readonly_wish(bookie_id), b"", make_parents=True)

    async def withdraw(self, bookie_id: str) -> bool:
        """Want it no more; returns whether anybody did."""
        try:
            await self._store.delete(self._paths.readonly_wish(check_bookie_id(bookie_id)))
        except NoNodeError:
            return False
        return True

    async def is_made(self, bookie_id: str) -> bool:
        """Whether somebody wants this bookie to be read-only."""
        return await self._store.get(self._paths.readonly_wish(bookie_id)) is not None

    async def watch(self, bookie_id: str, changed: Callable[[bool], None]) -> None:
        """Call ``changed`` with that now, before this returns, and after every change."""
        path = self._paths.readonly_wish(bookie_id)
        await self._store.watch(path, lambda node: changed(node is not None))
