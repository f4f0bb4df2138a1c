"""Connecting: the client of a bookie, by what carries it."""

from __future__ import annotations

from bookie_server.client.grpc_client import GrpcBookieClient, grpc_works_here
from bookie_server.client.interface import BookieClient
from bookie_server.client.relay import RelayedBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookkeeper_metadata.endpoints import SOCKET, Endpoint


def connect_to(
    bookie_id: str, endpoint: Endpoint, settings: ConnectionSettings, cluster_id: str = ""
) -> BookieClient:
    """A client of the bookie with this id; it connects on first use."""
    if endpoint.protocol == SOCKET:
        return over_tcp(bookie_id, endpoint.address, settings, cluster_id)
    # gRPC hangs in a process forked from one that used it, as multiprocessing's may be
    # (docs/decisions/0007).
    transport = GrpcBookieClient if grpc_works_here() else RelayedBookieClient
    return transport(bookie_id, endpoint.address, settings, cluster_id)
