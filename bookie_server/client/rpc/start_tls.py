"""START_TLS: what begins in clear and goes on over TLS, or not at all."""

from __future__ import annotations

from bookie_server.carrier.connection import Connection
from bookie_server.client.opener import RefusedByPeerError
from bookie_server.client.rpc.requests import receive_frame
from bookie_server.wire.rpc import messages, v3
from bookie_server.wire.rpc.statuses import RpcStatus
from bookkeeper_metadata.foundation.tls.contexts import Tls


async def start_tls(connection: Connection, *, tls: Tls, host: str) -> None:
    """Go over to TLS with the bookie at this host.

    Raises:
        OSError: it will not, or is not the one that its certificate should be for.
        MalformedFrameError: what it answers is no answer.
    """
    connection.write(v3.encode_request(0, messages.StartTls()))
    frame = await receive_frame(connection)
    answer = None if frame is None else v3.parse_answer(frame)
    if answer is None or answer.status is not RpcStatus.EOK:
        said = "nothing" if answer is None else answer.status.name
        raise RefusedByPeerError(f"it does not go over to TLS; it says {said}")
    await connection.start_tls(tls.client_context(), host.strip("[]"))
    # Over TLS 1.3 a client hears by what comes next whether its own certificate is taken, and nobody tells
    # it otherwise that it may do nothing here.
    connection.write(v3.encode_request(1, messages.GetInfo(messages.INFO_FREE_BYTES)))
    if await receive_frame(connection) is None:
        raise RefusedByPeerError(
            "it ends the connection behind the handshake: this certificate may do nothing there"
        )
