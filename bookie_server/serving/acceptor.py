"""Acceptor: accepts connections at a port and serves each until it ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.carrier.connection import Connection
from bookie_server.carrier.sockets import SocketStream
from bookie_server.carrier.tls_stream import secure
from bookkeeper_metadata.foundation.tasks import end_tasks

_ACCEPT_AGAIN_S = 0.1
"""Pause after a connection could not be accepted, as for want of descriptors."""
HANDSHAKE_WITHIN_S = 10.0
"""A client that has not agreed on TLS by then is gone, or wants to keep the connection busy."""
HANDSHAKES_MAX = 256
"""Under way at a time: OpenSSL takes up to 160 KiB for each, whatever comes of it."""
_NOTE_AGAIN_S = 1.0
_LOGGER = logging.getLogger(__name__)


class Acceptor(ABC):
    """Serves connections until it is stopped; for use on one event loop."""

    def __init__(
        self, connections_max: int, tls_context: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        """``tls_context`` is asked for each connection; ``None``: they begin in clear."""
        self._connections_max = connections_max
        self._tls_context = tls_context
        self._handshakes: OrderedDict[asyncio.Task[None], None] = OrderedDict()
        """Those that are under way, the oldest first."""
        self._note_again_s = 0.0
        self._left_out = 0
        self._talks: set[asyncio.Task[None]] = set()

    async def run(self, listener: socket.socket) -> None:
        """Accept and serve, until cancelled. The listener stays its owner's."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, address = await loop.sock_accept(listener)
            except OSError as error:
                _LOGGER.warning("no connection accepted. detail=%s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            try:
                if len(self._talks) < self._connections_max:
                    self.serve(SocketStream(connected, f"{address[0]}:{address[1]}"))
                else:
                    connected.close()
            except OSError:
                connected.close()  # the client is gone already
            # Others are served while clients come one after the other.
            await asyncio.sleep(0)

    def serve(self, stream: ByteStream) -> None:
        """Begin to serve a connection; it ends with its client, or with ``stop``."""
        task = asyncio.create_task(self._begin_talk(stream), name="serve-connection")
        self._talks.add(task)
        task.add_done_callback(self._talks.discard)

    async def stop(self) -> None:
        """End all connections."""
        await end_tasks(self._talks)

    @asynccontextmanager
    async def coming_to_terms(self) -> AsyncIterator[None]:
        """While this task and a client agree on TLS: for so long, and with as many clients at a time, as each may cost memory.

        One more, and the one that has taken longest is given up: whoever means it is done within moments.
        """
        task = asyncio.current_task()
        assert task is not None
        if len(self._handshakes) >= HANDSHAKES_MAX:
            self._handshakes.popitem(last=False)[0].cancel()
        self._handshakes[task] = None
        try:
            async with asyncio.timeout(HANDSHAKE_WITHIN_S):
                yield
        finally:
            self._handshakes.pop(task, None)

    def note_refused_tls(self, peer: str, detail: str) -> None:
        """Say that a client and this bookie did not agree on TLS: whoever looks for the reason looks here."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._note_again_s:
            self._left_out += 1
            return
        _LOGGER.warning(
            "no TLS with a client. peer=%s detail=%s left_out=%d", peer, detail, self._left_out
        )
        # A client whose certificate has expired comes again and again.
        self._note_again_s, self._left_out = now_s + _NOTE_AGAIN_S, 0

    async def _begin_talk(self, stream: ByteStream) -> None:
        if self._tls_context is not None:
            try:
                async with self.coming_to_terms():
                    stream = await secure(stream, self._tls_context())
            except (OSError, TimeoutError) as error:
                self.note_refused_tls(stream.peer, str(error) or "it takes too long")
                return
        await self._talk(Connection(stream))

    @abstractmethod
    async def _talk(self, connection: Connection) -> None:
        """Serve one to its end, and close it; raises nothing."""
