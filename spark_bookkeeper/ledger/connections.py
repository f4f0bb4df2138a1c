"""Connections: where a client's bookies are, and one connection to each.

Bookie clients are made on first use and kept: one connection per bookie and event loop. Which
transport a bookie speaks is read from its registration. A bookie that is not registered at the
moment is looked up under its last known address, else its id is taken for one. Either may be another
bookie's by now, so a client names the bookie and the cluster it means with every call, and takes no
answer of another (:mod:`bookie_server.wire.addressee`). A bookie that keeps silent may be elsewhere:
whoever finds it so says it, and the addresses are looked up again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from bookie_server.client.interface import BookieClient
from bookie_server.client.kept_memory import keep_memory
from bookie_server.client.settings import BOOKIE_PROTOCOLS, ConnectionSettings
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import BOOKIE_RPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.tasks import end_tasks
from spark_bookkeeper.ledger.errors import TlsNeededError, TlsNotOfferedError
from spark_bookkeeper.settings import ClientSettings

_LOGGER = logging.getLogger(__name__)
_UNKNOWN_AGAIN_S = 1.0
"""How often the address of an unregistered bookie is looked up; not with every request to it."""
_UNKNOWN_WAIT_S = 0.5
"""How long it is waited for where other bookies of the same ledger are known."""
_SILENT_AGAIN_S = 5.0
"""How often addresses are looked up because a bookie keeps silent. Most that do are dead, and a
thousand clients may find so."""
_RETIRED_KEPT_S = 60.0
"""How long a connection to a bookie's former address is kept: longer than any request waits."""

MakeClient = Callable[[str, Endpoint, ConnectionSettings], BookieClient]
"""(bookie id, where it is, settings) -> client; in-process in tests."""


class Connections:
    """Of one client; made on, and used from, one event loop."""

    def __init__(
        self, registry: BookieRegistry, settings: ClientSettings, make_client: MakeClient
    ) -> None:
        keep_memory()
        self.moves = 0
        """How often a bookie was found at another address than before."""
        self._registry = registry
        self._settings = settings
        self._make_client = make_client
        self._clients: dict[str, BookieClient] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._unknown_again_s = 0.0
        self._silent_again_s = 0.0
        self._agreed_again_s = 0.0
        self._background: asyncio.Task[None] | None = None
        self._retired: dict[BookieClient, asyncio.Task[None]] = {}
        """Connections to former addresses of bookies, and who ends them; requests that wait there still get an answer."""

    def client(self, bookie_id: str) -> BookieClient:
        """The connection to a bookie whose address is known; see :meth:`prepare`."""
        client = self._clients.get(bookie_id)
        if client is None:
            endpoint = self._endpoints.get(bookie_id) or Endpoint.of_id(bookie_id)
            client = self._clients[bookie_id] = self._make_client(
                bookie_id, endpoint, self._settings.connection
            )
        return client

    async def prepare(self, bookie_ids: tuple[str, ...]) -> None:
        """Look up the addresses of these bookies unless they are known; call it before :meth:`client`.

        Raises:
            MetadataUnavailableError: none of them is known, nor could be looked up.
            TlsNeededError, TlsNotOfferedError: this client can talk to none of them.
        """
        await self._look_up(bookie_ids)
        if self._disagreement(bookie_ids) is not None:
            # They may have been started with other settings since.
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._agreed_again_s:
                self._agreed_again_s = now_s + _UNKNOWN_AGAIN_S
                await self._try_refresh()
            self.require_agreement(bookie_ids)

    def require_agreement(self, bookie_ids: tuple[str, ...]) -> None:
        """Say it rather than try in vain, where this client can never talk to any of these bookies.

        Raises: TlsNeededError, TlsNotOfferedError.
        """
        if (disagreement := self._disagreement(bookie_ids)) is not None:
            raise disagreement

    def _disagreement(self, bookie_ids: tuple[str, ...]) -> BookKeeperError | None:
        """Why none of them can be talked to; ``None``: one can be, or may be."""
        found: BookKeeperError | None = None
        connection = self._settings.connection
        for bookie_id in bookie_ids:
            endpoint = self._endpoints.get(bookie_id)
            if endpoint is None:
                return None
            # Of Apache's protocol nobody can tell whether clear text is taken, too.
            is_needed = endpoint.has_tls and endpoint.protocol != BOOKIE_RPC
            if is_needed and connection.tls_files is None:
                found = found or TlsNeededError(bookie_id, endpoint.address)
            elif not endpoint.has_tls and connection.tls_files_towards(endpoint) is not None:
                found = found or TlsNotOfferedError(bookie_id, endpoint.address)
            else:
                return None
        return found

    async def _look_up(self, bookie_ids: tuple[str, ...]) -> None:
        unknown = [bookie_id for bookie_id in bookie_ids if bookie_id not in self._endpoints]
        loop = asyncio.get_running_loop()
        if not unknown or loop.time() < self._unknown_again_s:
            return
        pause_s = _UNKNOWN_AGAIN_S
        # Where it is not, the others may be enough, and those that are unknown are most likely away.
        is_needed = len(unknown) == len(bookie_ids)
        try:
            async with asyncio.timeout(None if is_needed else _UNKNOWN_WAIT_S):
                await self.refresh()
        except (MetadataUnavailableError, TimeoutError):
            if is_needed:
                raise  # and the next call asks again at once
            pause_s = _SILENT_AGAIN_S
        self._unknown_again_s = loop.time() + pause_s

    def note_silence(self) -> None:
        """A bookie did not answer: look up where all are, in the background.

        Nobody waits for it, for a bookie that is dead should cost its readers nothing.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._silent_again_s:
            self._silent_again_s = now_s + _SILENT_AGAIN_S
            if self._background is None or self._background.done():
                self._background = asyncio.create_task(self._try_refresh(), name="silent-bookies")

    async def look_for_moves(self, moves_before: int) -> bool:
        """Look up all addresses; returns whether any changed since ``moves`` was ``moves_before``.

        Not as far as the metadata service says, if it does not answer.
        """
        if self.moves == moves_before:
            await self._try_refresh()
        return self.moves != moves_before

    async def refresh(self) -> None:
        """Learn the addresses of all registered bookies; concurrent callers share one look-up."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="bookie-addresses")
        # A caller that gives up must not end it for those who share it.
        await asyncio.shield(self._refreshing)

    def endpoint_of(self, info: BookieServiceInfo) -> Endpoint | None:
        """Where a registered bookie is reached over a protocol of ours; ``None``: nowhere."""
        return info.best_endpoint(BOOKIE_PROTOCOLS[self._settings.bookie_protocol])

    def remember(self, bookies: Mapping[str, BookieServiceInfo]) -> None:
        """Note what registrations say; a bookie at another address gets a new connection."""
        for bookie_id, info in bookies.items():
            endpoint = self.endpoint_of(info)
            if endpoint is None:
                continue
            former = self._endpoints.get(bookie_id) or Endpoint.of_id(bookie_id)
            if bookie_id in self._clients and endpoint != former:
                self._retire(self._clients.pop(bookie_id))
                self.moves += 1
            self._endpoints[bookie_id] = endpoint

    async def close(self) -> None:
        """Close every connection."""
        looking = [t for t in (self._background, self._refreshing) if t is not None]
        await end_tasks([*looking, *self._retired.values()])
        clients = [*self._clients.values(), *self._retired]
        self._clients, self._retired = {}, {}
        await asyncio.gather(*(client.close() for client in clients))

    def _retire(self, client: BookieClient) -> None:
        # Closing it here would cut off requests that still wait.
        ending = asyncio.create_task(self._end_retired(client), name="former-address")
        self._retired[client] = ending

    async def _end_retired(self, client: BookieClient) -> None:
        await asyncio.sleep(_RETIRED_KEPT_S)
        await client.close()
        del self._retired[client]

    async def _try_refresh(self) -> None:
        try:
            await self.refresh()
        except BookKeeperError as away:
            _LOGGER.debug("no addresses looked up. error=%s", away)

    async def _refresh(self) -> None:
        writable = await self._registry.writable()
        # A bookie that died read-only and came back is registered twice until its old session expires.
        self.remember(await self._registry.readonly() | writable)
