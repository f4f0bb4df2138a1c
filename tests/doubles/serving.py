"""A bookie's service behind real ports, over every carrier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc.aio

from bookie_server.bookie import Bookie
from bookie_server.carrier.sockets import listen
from bookie_server.client.interface import BookieClient
from bookie_server.client.rpc.client import rpc_over_tcp
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookie_server.core.roles import Roles
from bookie_server.listening import bind
from bookie_server.serving.acceptor import Acceptor
from bookie_server.serving.addressed import AddressedHandler
from bookie_server.serving.grpc_service import SERVER_OPTIONS, GrpcService
from bookie_server.serving.rpc.service import RpcService
from bookie_server.serving.server_tls import ServerTls
from bookie_server.serving.service import BookieService
from bookie_server.serving.socket_service import SocketService
from bookie_server.settings import BookieSettings
from bookie_server.wire.messages import BookieInfo
from bookie_server.wire.rpc import v2, v3
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, BOOKIE_RPC, GRPC, SOCKET, Endpoint
from bookkeeper_metadata.foundation.tasks import end_tasks

MakeClient = Callable[[str, str, ConnectionSettings], BookieClient]
CONNECTIONS_MAX = 100


@dataclass
class Ports:
    """Where the service is found, and what ends it."""

    service: BookieService
    grpc: grpc.aio.Server
    grpc_address: str
    sockets: SocketService
    socket_address: str
    rpc_address: str
    accepting: list[asyncio.Task[None]]
    acceptors: list[Acceptor]

    def endpoint(self, protocol: str) -> Endpoint:
        """Where clients that speak it have to go."""
        address = {
            GRPC: self.grpc_address,
            SOCKET: self.socket_address,
            BOOKIE_RPC: self.rpc_address,
        }[protocol]
        host, _, port = address.rpartition(":")
        return Endpoint(BOOKIE_ENDPOINT, host, int(port), protocol)

    def address(self, make_client: MakeClient) -> str:
        """Where such a client has to go."""
        if make_client in (over_rpc_v2, over_rpc_v3):
            return self.rpc_address
        return self.socket_address if make_client is over_tcp else self.grpc_address

    async def stop_connections(self) -> None:
        """End those of sockets, at once; new ones are taken."""
        for acceptor in self.acceptors:
            await acceptor.stop()

    async def stop(self) -> None:
        """End every connection, at once."""
        await self.grpc.stop(0)
        await end_tasks(self.accepting)
        for acceptor in self.acceptors:
            await acceptor.stop()


over_rpc_v2 = partial(rpc_over_tcp, version=v2.VERSION)
over_rpc_v3 = partial(rpc_over_tcp, version=v3.VERSION)


@asynccontextmanager
async def serving_all(
    bookie: Bookie,
    identity: BookieInfo,
    place: Path,
    tls: ServerTls | None = None,
    roles: Roles | None = None,
) -> AsyncIterator[Ports]:
    """Serve the bookie, which stays its owner's."""
    service = BookieService(bookie, identity, str(place), roles)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    settings = BookieSettings(bookie_id="b:1", port=0)
    port = bind(server, settings, None if tls is None else tls.grpc_credentials())
    handler = AddressedHandler(GrpcService(service).handler(), identity)
    server.add_generic_rpc_handlers((handler,))
    await server.start()
    sockets = SocketService(service, connections_max=CONNECTIONS_MAX, tls=tls)
    acceptors = [sockets, RpcService(service, connections_max=CONNECTIONS_MAX, tls=tls)]
    with listen("127.0.0.1", 0) as listener, listen("127.0.0.1", 0) as rpc_listener:
        listeners = listener, rpc_listener
        accepting = [
            asyncio.create_task(acceptor.run(each))
            for acceptor, each in zip(acceptors, listeners, strict=True)
        ]
        socket_address, rpc_address = (f"127.0.0.1:{each.getsockname()[1]}" for each in listeners)
        ports = Ports(
            service,
            server,
            f"127.0.0.1:{port}",
            sockets,
            socket_address,
            rpc_address,
            accepting,
            acceptors,
        )
        try:
            yield ports
        finally:
            await ports.stop()
