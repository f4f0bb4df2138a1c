"""Peers: asks the other bookies of a ledger whether they hold what its metadata promises of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import AUTO, BOOKIE_PROTOCOLS
from bookie_server.core.shares import Share, shares_by_bookie
from bookie_server.wire.messages import SAYS_WHAT_IS_WANTED, Status
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import Endpoint
from bookkeeper_metadata.model import LedgerMetadata

Connect = Callable[[str, Endpoint], BookieClient]
"""A client of the bookie with this id at this endpoint."""


class Peers:
    """Use it as a context; the connections of one look are closed behind it."""

    def __init__(self, registry: BookieRegistry, connect: Connect) -> None:
        self._registry = registry
        self._connect = connect
        self._endpoints: Mapping[str, Endpoint | None] = {}
        self._clients: dict[str, BookieClient] = {}
        self._silent: set[str] = set()
        """Those that did not answer once: the look goes on without them."""

    async def __aenter__(self) -> Self:
        registered = await self._registry.readonly() | await self._registry.writable()
        protocols = BOOKIE_PROTOCOLS[AUTO]
        self._endpoints = {each: info.best_endpoint(protocols) for each, info in registered.items()}
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(client.close() for client in self._clients.values()))

    async def hold_all(self, ledger_id: int, metadata: LedgerMetadata) -> bool:
        """Whether every bookie holds its share of every complete fragment, as their lists say."""
        shares = shares_by_bookie(metadata)
        asked = (self._holds(bookie_id, ledger_id, own) for bookie_id, own in shares.items())
        return all(await asyncio.gather(*asked))

    async def _holds(self, bookie_id: str, ledger_id: int, shares: list[Share]) -> bool:
        endpoint = self._endpoints.get(bookie_id)
        if endpoint is None or bookie_id in self._silent:
            return False
        client = self._clients.get(bookie_id)
        if client is None:
            client = self._clients[bookie_id] = self._connect(bookie_id, endpoint)
        listed = await client.list_entries(ledger_id)
        if listed.status is Status.UNREACHABLE:
            self._silent.add(bookie_id)
        is_known = listed.status in SAYS_WHAT_IS_WANTED
        return is_known and not any(share.lacks(listed.held) for share in shares)
