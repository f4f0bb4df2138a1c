"""Carriers: every way in which a bookie's clients reach it. Its ports are had first, and served last."""

from __future__ import annotations

import asyncio

import grpc.aio

from bookie_server.listening import bind, listen_for_sockets
from bookie_server.serving.addressed import AddressedHandler
from bookie_server.serving.grpc_service import SERVER_OPTIONS, GrpcService
from bookie_server.serving.service import BookieService
from bookie_server.serving.socket_service import SocketService
from bookie_server.settings import BookieSettings
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, SOCKET, Endpoint
from bookkeeper_metadata.foundation.tasks import end_tasks


class Carriers:
    """Holds the ports from its making to ``stop``; for use on one event loop."""

    def __init__(self, settings: BookieSettings) -> None:
        """Raises :class:`PortUnavailableError`."""
        # A connection is a descriptor, whatever comes by it.
        share = settings.connections_max // (2 if settings.socket_port else 1)
        self._connections_max = max(1, share)
        limit = ("grpc.max_allowed_incoming_connections", self._connections_max)
        self._grpc = grpc.aio.server(options=(*SERVER_OPTIONS, limit))
        self._host = settings.host
        self._port = bind(self._grpc, settings)
        self._listener = listen_for_sockets(settings)
        self._sockets: SocketService | None = None
        self._accepting: asyncio.Task[None] | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where clients find it, as its registration tells."""
        found = [Endpoint(BOOKIE_ENDPOINT, self._host, self._port, GRPC)]
        if self._listener is not None:
            port = self._listener.getsockname()[1]
            found.append(Endpoint(BOOKIE_ENDPOINT, self._host, port, SOCKET))
        return tuple(found)

    async def start(self, service: BookieService) -> None:
        """Serve from now on."""
        handler = GrpcService(service, self._port).handler()
        self._grpc.add_generic_rpc_handlers((AddressedHandler(handler, service.identity),))
        await self._grpc.start()
        if self._listener is not None:
            self._sockets = SocketService(service, connections_max=self._connections_max)
            accepting = self._sockets.run(self._listener)
            self._accepting = asyncio.create_task(accepting, name="accept-connections")

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take nothing more, give calls under way so long to end, and give the ports back; idempotent."""
        if self._accepting is not None:
            await end_tasks([self._accepting])
        if self._listener is not None:
            self._listener.close()
        await self._grpc.stop(grace_s)
        if self._sockets is not None:
            await self._sockets.stop()
