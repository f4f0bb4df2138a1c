"""Connecting: the client of a bookie, by what carries it."""

from __future__ import annotations

from bookie_server.client.grpc_client import GrpcBookieClient, grpc_works_here
from bookie_server.client.interface import BookieClient
from bookie_server.client.relay import RelayedBookieClient
from bookie_server.client.rpc.client import rpc_over_tcp
from bookie_server.client.settings import AUTO, RPC_V3, ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookie_server.wire.rpc import v2, v3
from bookkeeper_metadata.endpoints import BOOKIE_RPC, SOCKET, Endpoint
from bookkeeper_metadata.foundation.tls.contexts import tls_of


def connect_to(
    bookie_id: str,
    endpoint: Endpoint,
    settings: ConnectionSettings,
    cluster_id: str = "",
    bookie_protocol: str = AUTO,
) -> BookieClient:
    """A client of the bookie with this id; it connects on first use.

    Raises:
        TlsFilesError: files of TLS are not all there, or do not fit together.
    """
    files = settings.tls_files_towards(endpoint)
    tls = tls_of(files)
    if endpoint.protocol == SOCKET:
        return over_tcp(bookie_id, endpoint.address, settings, cluster_id, tls)
    if endpoint.protocol == BOOKIE_RPC:
        version = v3.VERSION if bookie_protocol == RPC_V3 else v2.VERSION
        return rpc_over_tcp(bookie_id, endpoint.address, settings, version, tls)
    # gRPC hangs in a process forked from one that used it, as multiprocessing's may be
    # (docs/decisions/0007).
    transport = GrpcBookieClient if grpc_works_here() else RelayedBookieClient
    return transport(bookie_id, endpoint.address, settings, cluster_id, files)
