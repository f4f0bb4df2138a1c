"""Carriers: every way in which a bookie's clients reach it. Its ports are had first, and served last."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

import grpc.aio

from bookie_server.listening import bind, listen_at
from bookie_server.serving.acceptor import Acceptor
from bookie_server.serving.addressed import AddressedHandler
from bookie_server.serving.grpc_service import SERVER_OPTIONS, GrpcService
from bookie_server.serving.rpc.service import RpcService
from bookie_server.serving.server_tls import server_tls
from bookie_server.serving.service import BookieService
from bookie_server.serving.socket_service import SocketService
from bookie_server.settings import BookieSettings
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, BOOKIE_RPC, GRPC, SOCKET, TLS, Endpoint
from bookkeeper_metadata.foundation.tasks import end_tasks

_BESIDE_GRPC: Mapping[str, tuple[str, Callable[..., Acceptor]]] = {
    SOCKET: ("socket_port", SocketService),
    BOOKIE_RPC: ("rpc_port", RpcService),
}
"""By protocol: the setting of its port, and what serves there."""


class Carriers:
    """Holds the ports from its making to ``stop``; for use on one event loop."""

    def __init__(self, settings: BookieSettings) -> None:
        """Raises: PortUnavailableError, TlsFilesError."""
        self._host = settings.host
        self._tls = server_tls(settings)
        self._listeners: dict[str, socket.socket] = {}
        try:
            for protocol, (setting, _) in _BESIDE_GRPC.items():
                if (listener := listen_at(settings, setting)) is not None:
                    self._listeners[protocol] = listener
            # A connection is a descriptor, whatever comes by it.
            share = settings.connections_max // (1 + len(self._listeners))
            self._connections_max = max(1, share)
            limit = ("grpc.max_allowed_incoming_connections", self._connections_max)
            self._grpc = grpc.aio.server(options=(*SERVER_OPTIONS, limit))
            credentials = None if self._tls is None else self._tls.grpc_credentials()
            self._port = bind(self._grpc, settings, credentials)
        except Exception:
            self._close_listeners()
            raise
        self._acceptors: list[Acceptor] = []
        self._accepting: list[asyncio.Task[None]] = []

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where clients find it, as its registration tells."""
        ports = {GRPC: self._port}
        for protocol, listener in self._listeners.items():
            ports[protocol] = listener.getsockname()[1]
        extensions = () if self._tls is None else (TLS,)
        return tuple(
            Endpoint(BOOKIE_ENDPOINT, self._host, port, protocol, extensions=extensions)
            for protocol, port in ports.items()
        )

    async def start(self, service: BookieService) -> None:
        """Serve from now on."""
        handler = GrpcService(service, self._port).handler()
        self._grpc.add_generic_rpc_handlers((AddressedHandler(handler, service.identity),))
        await self._grpc.start()
        for protocol, listener in self._listeners.items():
            _, make_acceptor = _BESIDE_GRPC[protocol]
            acceptor = make_acceptor(service, connections_max=self._connections_max, tls=self._tls)
            self._acceptors.append(acceptor)
            accepting = asyncio.create_task(acceptor.run(listener), name="accept-connections")
            self._accepting.append(accepting)

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take nothing more, give calls under way so long to end, and give the ports back; idempotent."""
        await end_tasks(self._accepting)
        self._close_listeners()
        await self._grpc.stop(grace_s)
        for acceptor in self._acceptors:
            await acceptor.stop()

    def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            listener.close()
