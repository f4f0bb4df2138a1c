"""BookieClient over plain sockets: a connection for adds, and one for everything else.

Works in a process forked from one that has connections, too: a forked child's are its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.carrier.sockets import connect
from bookie_server.carrier.taking import receive_untaken
from bookie_server.carrier.tls_stream import connect_over_tls
from bookie_server.client.calling import CallingBookieClient
from bookie_server.client.message_stream import MessageStream, StreamEndedError
from bookie_server.client.opener import OpenBytes, Opener, RefusedByPeerError
from bookie_server.client.read_stream import unreachable
from bookie_server.client.request_stream import RequestStream
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.write_stream import WriteStream
from bookie_server.wire import codec
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.envelope import (
    REPLY_KINDS,
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
from bookkeeper_metadata.foundation.tls.contexts import Tls
from bookkeeper_metadata.version import __version__


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
        self._opener = Opener(bookie_id, open_bytes, settings, random)
        self._writes = WriteStream(self._open_adds, settings, bookie_id)
        self._requests = _Requests(partial(self._open, Purpose.REQUESTS))

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        self._writes.write(section, done)

    async def read(self, request: ReadRequest) -> ReadReply:
        data, timeout_s = codec.encode_read_request(0, request), self._read_timeout_ms / 1000
        reply = None if self._is_closed else await self._requests.ask((Kind.READ, data), timeout_s)
        try:
            return unreachable(request) if reply is None else codec.parse_read_reply(reply)[1]
        except codec.MalformedFrameError:
            return unreachable(request)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await asyncio.gather(self._writes.close(), self._requests.close())

    async def _call(self, method: Method, request: bytes, timeout_s: float) -> bytes | None:
        reply = await self._requests.ask((REQUEST_KINDS[method], request), timeout_s)
        # protobuf's parser takes bytes only.
        return None if reply is None else bytes(reply)

    async def _open_adds(self) -> MessageStream:
        try:
            return _Adds(await self._open(Purpose.ADDS))
        except ConnectionError as error:
            raise StreamEndedError(str(error)) from error

    async def _open(self, purpose: Purpose) -> Connection:
        """A connection at whose other end the bookie is; raises ``ConnectionError``."""
        greet = partial(self._greet, purpose)
        return await self._opener.open(greet, is_patient=purpose is Purpose.ADDS)

    async def _greet(self, purpose: Purpose, connection: Connection) -> None:
        hello = Hello(self.bookie_id, self._cluster_id, __version__, purpose)
        connection.send(Kind.HELLO, (encode_hello(hello),))
        head = await connection.receive_head()
        if head is None:
            raise ConnectionEndedError("it was ended without a word")
        body = bytes(await connection.receive_body(head.size_bytes))
        if head.kind is Kind.FAREWELL:
            reason, detail = parse_farewell(body)
            if reason is Reason.NOT_ALLOWED:
                raise RefusedByPeerError(f"{detail!r:.200}")
            raise ConnectionEndedError(detail)
        if head.kind is not Kind.WELCOME:
            raise codec.MalformedFrameError(f"a {head.kind.name} instead of a welcome")
        if not parse_hello(body).means(self.bookie_id, self._cluster_id):
            raise ConnectionEndedError("another bookie answered")


class _Requests(RequestStream[tuple[Kind, bytes], memoryview]):
    """Requests by kind and bytes."""

    def _send(self, connection: Connection, number: int, request: tuple[Kind, bytes]) -> None:
        kind, data = request
        connection.send(kind, (data,), number)

    def _give_up(self, connection: Connection, number: int) -> None:
        connection.send(Kind.GIVE_UP, (), number)

    async def _receive(self, connection: Connection) -> bool:
        head = await connection.receive_head()
        if head is None:
            return False
        body = await connection.receive_body(head.size_bytes)
        if head.kind is Kind.FAREWELL:
            return False
        asked = self._asked.get(head.number)
        if asked is not None and head.kind not in (REPLY_KINDS[asked.request[0]], Kind.NOTHING):
            return False
        self._answer(head.number, None if head.kind is Kind.NOTHING else body)
        return True


class _Adds(MessageStream):
    """A stream of adds over a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    def send(self, sections: Sequence[EncodedSection]) -> None:
        # Not joined: the same bytes objects go to every bookie of the write set.
        self._connection.send(Kind.FRAME, [section.data for section in sections])

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
    bookie_id: str,
    address: str,
    settings: ConnectionSettings,
    cluster_id: str = "",
    tls: Tls | None = None,
) -> SocketBookieClient:
    """The client of the bookie that listens at ``host:port``; in clear without ``tls``."""
    host, _, port = address.rpartition(":")
    open_bytes: OpenBytes = partial(connect, host, int(port))
    if tls is not None:
        open_bytes = partial(connect_over_tls, host, int(port), tls)
    return SocketBookieClient(bookie_id, open_bytes, settings, cluster_id)
