"""A bookie behind TLS, over every carrier, and its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.client.connecting import connect_to
from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import AUTO, RPC_V2, RPC_V3, ConnectionSettings
from bookie_server.core.roles import Roles
from bookie_server.wire.messages import BookieInfo
from bookkeeper_metadata.endpoints import BOOKIE_RPC, GRPC, SOCKET
from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from tests.doubles.certificates import SOME_ROLES, Authority, serving_with, settings_of
from tests.doubles.rpc_peers import RpcPeer
from tests.doubles.serving import Ports, serving_all
from tests.doubles.storage import running_bookie

SETTINGS = ConnectionSettings(
    read_timeout_ms=20_000, add_timeout_ms=20_000, reconnect_timeout_ms=20_000
)
IMPATIENT = ConnectionSettings(
    read_timeout_ms=500, add_timeout_ms=500, reconnect_timeout_ms=100, tls_only=True
)
CARRIERS = {
    "grpc": (GRPC, AUTO),
    "sockets": (SOCKET, AUTO),
    "rpc-v2": (BOOKIE_RPC, RPC_V2),
    "rpc-v3": (BOOKIE_RPC, RPC_V3),
}
each_carrier = pytest.mark.parametrize("carrier", list(CARRIERS))


@dataclass
class Secured:
    """A bookie behind TLS, and its clients."""

    bookie: Bookie
    ports: Ports
    authority: Authority
    clients: list[BookieClient] = field(default_factory=list)
    peers: list[RpcPeer] = field(default_factory=list)

    def client(
        self, carrier: str, files: TlsFiles | None, settings: ConnectionSettings = SETTINGS
    ) -> BookieClient:
        """``None``: it talks in clear."""
        protocol, bookie_protocol = CARRIERS[carrier]
        named = settings_of(files) if files is not None else {}
        client = connect_to(
            "b:1",
            self.ports.endpoint(protocol),
            replace(settings, **named),
            bookie_protocol=bookie_protocol,
        )
        self.clients.append(client)
        return client

    async def peer(self) -> RpcPeer:
        """A connection of Apache's protocol that has said nothing."""
        host, _, port = self.ports.rpc_address.rpartition(":")
        peer = RpcPeer(*await asyncio.open_connection(host, int(port)))
        self.peers.append(peer)
        return peer


@asynccontextmanager
async def serving(
    place: Path, *, is_only: bool = True, roles: Roles = SOME_ROLES
) -> AsyncIterator[Secured]:
    authority = Authority(place / "certificates")
    tls = serving_with(authority.files("bookie"), is_only=is_only)
    async with (
        running_bookie(place) as bookie,
        serving_all(bookie, BookieInfo("b:1"), place, tls, roles) as ports,
    ):
        secured = Secured(bookie, ports, authority)
        try:
            yield secured
        finally:
            for client in secured.clients:
                await client.close()
            for peer in secured.peers:
                await peer.close()
                with suppress(OSError):
                    await peer.writer.wait_closed()


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "bookie_server.audit"]
