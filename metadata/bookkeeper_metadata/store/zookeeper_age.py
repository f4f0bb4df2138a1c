"""Why servers that are there take no connection: their data are older than what the process has seen.

ZooKeeper counts its changes, and a client says with each connection how far it has seen them. A server that has counted
less closes the connection without an answer, for the client would go back in time: so it is, for ever, after a restore
from a backup. The client cannot tell that from a server that is just starting; the server can be asked for its count.
Source: ``ZooKeeperServer.processConnectRequest`` and its ``srvr`` command, which is allowed unless somebody forbids it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress

_ANSWER_S_MAX = 1.0
_ANSWER_BYTES_MAX = 4096
_SERVING = re.compile(rb"^Zxid: 0x([0-9a-f]{1,16})$.*^Mode: ", re.MULTILINE | re.DOTALL)


async def newest_zxid(
    servers: Sequence[tuple[str, int]], tls: ssl.SSLContext | None = None
) -> int | None:
    """How far the servers (host, port) have counted that serve; ``None`` where none says so."""
    counts = await asyncio.gather(*(_zxid(host, port, tls) for host, port in servers))
    return max((count for count in counts if count is not None), default=None)


async def _zxid(host: str, port: int, tls: ssl.SSLContext | None) -> int | None:
    answer = b""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ANSWER_S_MAX):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                writer.write(b"srvr")
                while len(answer) < _ANSWER_BYTES_MAX and (part := await reader.read(1024)):
                    answer += part
            finally:
                writer.close()
    # One that loads its data, or has no leader, has no mode.
    found = _SERVING.search(answer)
    return int(found[1], 16) if found else None
