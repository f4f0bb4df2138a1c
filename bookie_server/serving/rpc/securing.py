"""What comes first on a connection of Apache's protocol where a bookie has TLS: START_TLS, in clear, or a refusal.

Whatever was said in clear counts as said by nobody: behind START_TLS nothing may come before its answer, or somebody between
the two could have his requests taken for the client's.
"""

from __future__ import annotations

from bookie_server.carrier.connection import Connection, new_body
from bookie_server.serving.server_tls import ServerTls
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.rpc import messages, v3
from bookie_server.wire.rpc.frames import LENGTH_SIZE, is_of_v2, parse_length
from bookie_server.wire.rpc.statuses import RpcStatus

_START_TLS_SIZE_MAX = 128
"""A frame that asks for it has a header, an empty message, and at most a few fields that nobody here reads."""


async def secure_rpc(connection: Connection, tls: ServerTls) -> bytes | None:
    """Go over to TLS, if that is what the client begins with; else the bytes that it began with.

    ``None``: it wants something else, in clear, and is told that this is not allowed, or it has gone.

    Raises:
        OSError: it and this bookie did not agree.
        MalformedFrameError: what it says is no frame.
    """
    begun = bytearray()
    if not await _receive_upto(connection, begun, LENGTH_SIZE):
        return None
    size = LENGTH_SIZE + min(parse_length(bytes(begun)), _START_TLS_SIZE_MAX + 1)
    if not await _receive_upto(connection, begun, size):
        return None
    asked = _parse(memoryview(begun)[LENGTH_SIZE:])
    if asked is not None and isinstance(asked.request, messages.StartTls):
        answer = v3.Answer(asked.head, RpcStatus.EOK, messages.StartTls())
        connection.write(v3.encode_answer(answer))
        await connection.drain()
        await connection.start_tls(tls.context())
        return b""
    if not tls.is_only:
        return bytes(begun)
    if asked is not None:
        connection.write(v3.encode_answer(v3.Answer(asked.head, RpcStatus.EUA, None)))
        await connection.drain()
    return None


async def _receive_upto(connection: Connection, begun: bytearray, size: int) -> bool:
    """Receive until there are so many bytes; false: the client ends the connection before."""
    rest = new_body(size - len(begun))
    while rest:
        count = await connection.receive_some(rest)
        if not count:
            return False
        begun += rest[:count]
        rest = rest[count:]
    return True


def _parse(frame: memoryview) -> v3.Numbered | None:
    """What a small frame asks for; ``None``: it is an older version's, or too large to be looked into."""
    if len(frame) > _START_TLS_SIZE_MAX or is_of_v2(frame):
        return None
    try:
        return v3.parse_request(frame)
    except MalformedFrameError:
        return None
