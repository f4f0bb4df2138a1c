"""BookieClient over plain sockets: a connection for adds, and one for everything else.

Works in a process forked from one that has connections, too: a forked child's are its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random, SystemRandom

from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.carrier.sockets import connect
from bookie_server.carrier.taking import receive_untaken
from bookie_server.client.calling import CallingBookieClient
from bookie_server.client.message_stream import MessageStream, StreamEndedError
from bookie_server.client.read_stream import unreachable
from bookie_server.client.request_stream import RequestStream
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.write_stream import WriteStream
from bookie_server.wire import codec
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.envelope import (
    REQUEST_KINDS,
    Head,
    Hello,
    Kind,
    Purpose,
    Reason,
    encode_hello,
    parse_farewell,
    parse_hello,
)
from bookie_server.wire.messages import EncodedSection, Method, ReadReply, ReadRequest, Status
from bookkeeper_metadata.version import __version__

_PAUSE_S_MIN, _PAUSE_S_MAX = 0.05, 0.5
"""Between two attempts to reach a bookie that is away."""
OpenBytes = Callable[[], Awaitable[ByteStream]]
"""Connects to the bookie's address; raises ``OSError``."""


class SocketBookieClient(CallingBookieClient):
    """Connects on first use; must be made and used on one event loop.

    Whoever answers at the address and is not this bookie, of the cluster with this id, is no answer.
    """

    def __init__(
        self,
        bookie_id: str,
        open_bytes: OpenBytes,
        settings: ConnectionSettings,
        cluster_id: str = "",
        random: Random | None = None,
    ) -> None:
        """``random`` spreads the attempts of many clients to reach a bookie that was away."""
        super().__init__(bookie_id, settings)
        self._cluster_id = cluster_id
        self._open_bytes = open_bytes
        self._settings = settings
        self._writes = WriteStream(self._open_adds, settings, bookie_id)
        self._requests = RequestStream(partial(self._open, Purpose.REQUESTS))
        self._random = random or SystemRandom()
        self._pause_s = 0.0
        self._open_again_s = 0.0

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        self._writes.write(section, done)

    async def read(self, request: ReadRequest) -> ReadReply:
        data, timeout_s = codec.encode_read_request(0, request), self._read_timeout_ms / 1000
        reply = None if self._is_closed else await self._requests.ask(Kind.READ, data, timeout_s)
        try:
            return unreachable(request) if reply is None else codec.parse_read_reply(reply)[1]
        except codec.MalformedFrameError:
            return unreachable(request)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await asyncio.gather(self._writes.close(), self._requests.close())

    async def _call(self, method: Method, request: bytes, timeout_s: float) -> bytes | None:
        reply = await self._requests.ask(REQUEST_KINDS[method], request, timeout_s)
        # protobuf's parser takes bytes only.
        return None if reply is None else bytes(reply)

    async def _open_adds(self) -> MessageStream:
        try:
            return _Adds(await self._open(Purpose.ADDS))
        except ConnectionError as error:
            raise StreamEndedError(str(error)) from error

    async def _open(self, purpose: Purpose) -> Connection:
        """A connection at whose other end the bookie is.

        Raises:
            ConnectionError: nobody answers there, or another; or so it was a moment ago.
        """
        loop = asyncio.get_running_loop()
        left_s = self._open_again_s - loop.time()
        if left_s > 0 and purpose is Purpose.REQUESTS:
            raise ConnectionError(f"{self.bookie_id} was not reached a moment ago")
        await asyncio.sleep(max(0, left_s))
        try:
            async with asyncio.timeout(self._settings.reconnect_timeout_ms / 1000):
                connection = Connection(await self._open_bytes())
                try:
                    await self._greet(connection, purpose)
                except BaseException:
                    connection.close()
                    raise
                self._pause_s = 0.0
                return connection
        # A host's name may be none that can be encoded, and a port none at all.
        except (OSError, UnicodeError, OverflowError, codec.MalformedFrameError) as error:
            self._pause_s = min(max(_PAUSE_S_MIN, 2 * self._pause_s), _PAUSE_S_MAX)
            self._open_again_s = loop.time() + self._random.uniform(0.5, 1) * self._pause_s
            raise ConnectionError(f"{self.bookie_id} is not reached: {error!r}") from error

    async def _greet(self, connection: Connection, purpose: Purpose) -> None:
        hello = Hello(self.bookie_id, self._cluster_id, __version__, purpose)
        connection.send(Kind.HELLO, (encode_hello(hello),))
        head = await connection.receive_head()
        if head is None:
            raise ConnectionEndedError("it was ended without a word")
        body = bytes(await connection.receive_body(head.size_bytes))
        if head.kind is Kind.FAREWELL:
            raise ConnectionEndedError(parse_farewell(body)[1])
        if head.kind is not Kind.WELCOME:
            raise codec.MalformedFrameError(f"a {head.kind.name} instead of a welcome")
        if not parse_hello(body).means(self.bookie_id, self._cluster_id):
            raise ConnectionEndedError("another bookie answered")


class _Adds(MessageStream):
    """A stream of adds over a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    def send(self, sections: Sequence[bytes]) -> None:
        # Not joined: the same bytes objects go to every bookie of the write set.
        self._connection.send(Kind.FRAME, sections)

    async def receive(self, take_at_once: Callable[[Buffer], bool]) -> memoryview:
        try:
            message = await receive_untaken(self._connection, _memory_for, take_at_once)
            if message is None:
                raise StreamEndedError("the bookie ended the connection")
            head, body = message
            if body is None:
                body = await self._connection.receive_body(head.size_bytes)
        except ConnectionEndedError as error:
            raise StreamEndedError(str(error)) from error
        if head.kind is Kind.FAREWELL:
            reason, detail = parse_farewell(bytes(body))
            raise StreamEndedError(detail, is_for_room=reason is Reason.NO_ROOM)
        if head.kind is not Kind.WRITE_REPLY:
            raise codec.MalformedFrameError(f"a {head.kind.name} among answers")
        return body

    def close(self) -> None:
        self._connection.close()


def _memory_for(head: Head) -> memoryview | None:
    return new_body(head.size_bytes) if head.kind is Kind.WRITE_REPLY else None


def over_tcp(
    bookie_id: str, address: str, settings: ConnectionSettings, cluster_id: str = ""
) -> SocketBookieClient:
    """The client of the bookie that listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    return SocketBookieClient(bookie_id, partial(connect, host, int(port)), settings, cluster_id)
