"""A relay in front of a real ZooKeeper: whoever made it sees every request and reply pass by name.

It knows just enough of the protocol: every message is a length and that many bytes; a request begins
with its xid and its type, a reply with the xid. Requests of one connection stay in order, as TCP
keeps them. A request that is held back keeps its session: the relay answers the client's pings and
sends pings of its own, and goes on when the client has died, like a server that is slow.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

_HEAD = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_MULTI_HEAD = struct.Struct(">i?i")
_REPLY_HEAD = struct.Struct(">iqi")
_PING_XID, _PING_TYPE = -2, 11
_PING_INTERVAL_S = 0.5
"""Of the relay's own, while a request is held: far below any session timeout."""
_PING = _HEAD.pack(_PING_XID, _PING_TYPE)
_PING_REPLY = _REPLY_HEAD.pack(_PING_XID, 0, 0)


class Request(IntEnum):
    """ZooKeeper's numbers of the requests that change something, and of a multi's check."""

    CREATE = 1
    DELETE = 2
    SET_DATA = 5
    CHECK = 13
    MULTI = 14


@dataclass(frozen=True, slots=True)
class Part:
    """One change, alone or in a multi."""

    kind: Request
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """One request of one client; the same object stands for it when its reply comes."""

    kind: int
    parts: tuple[Part, ...]
    """What it changes, in order; empty for a read."""


class Interceptor(Protocol):
    """Decides what becomes of each message; may wait as long as it likes. By itself it lets all pass."""

    async def request(self, sent: Sent) -> bool:
        """Whether it goes on to the server; if not, the connection is cut."""
        return True

    async def reply(self, sent: Sent) -> bool:
        """Whether the reply to ``sent`` goes on to the client; if not, the connection is cut."""
        return True

    def delivered(self, sent: Sent) -> None:
        """The reply was handed to the client's socket."""
        return


class Relay:
    """Listens on loopback for clients of the ZooKeeper at ``port``."""

    def __init__(self, port: int, interceptor: Interceptor) -> None:
        self._port = port
        self._interceptor = interceptor
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> int:
        """Returns the port to connect to."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close every connection; returns when nothing of the relay is left.

        Nothing is cancelled: cancelling a task inside ``wait_closed`` cancels the stream's own
        future, which everyone else waits for. A closed connection ends its pumps by itself.
        """
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()
        # One may have been accepted a moment ago, by a client that was connecting again: the loop takes
        # a turn to make its transport and another to tell of it.
        for _ in range(2):
            await asyncio.sleep(0)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks)
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        self._writers.append(server_writer)
        connection = _Connection(self._interceptor, writer, server_writer)
        receiver = asyncio.create_task(connection.receive(reader))
        pumps = [
            asyncio.create_task(connection.pump_requests()),
            asyncio.create_task(connection.pump_replies(server_reader)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in (receiver, *pumps):
                pump.cancel()
            await asyncio.gather(receiver, *pumps, return_exceptions=True)
            writer.close()
            server_writer.close()


class _Connection:
    """One client's connection and the one to the server that was made for it."""

    def __init__(
        self, interceptor: Interceptor, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self._interceptor = interceptor
        self._client = client
        self._server = server
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._unanswered: dict[int, Sent] = {}
        self._is_answered = asyncio.Event()
        self._is_answered.set()
        self._is_holding = False
        self._own_pings = 0

    async def receive(self, reader: asyncio.StreamReader) -> None:
        """Take in what the client sends; its end comes after everything it sent."""
        try:
            while True:
                message = await _message(reader)
                if self._is_holding and message == _PING:
                    await _forward(_PING_REPLY, self._client)
                else:
                    self._received.put_nowait(message)
        except (asyncio.IncompleteReadError, OSError):
            self._received.put_nowait(None)

    async def pump_requests(self) -> None:
        handshake = await self._received.get()  # it has no head
        if handshake is None:
            return
        await _forward(handshake, self._server)
        while (message := await self._received.get()) is not None:
            xid, kind = _HEAD.unpack_from(message)
            if xid >= 0:
                sent = Sent(kind, tuple(_parts(kind, message)))
                if not await self._decide(sent):
                    return
                self._unanswered[xid] = sent
                self._is_answered.clear()
            await _forward(message, self._server)
        # The client is gone, what it has sent is not: the server closes a connection with its end.
        await self._is_answered.wait()

    async def pump_replies(self, reader: asyncio.StreamReader) -> None:
        await _forward(await _message(reader), self._client)
        while True:
            message = await _message(reader)
            xid = _LENGTH.unpack_from(message)[0]
            if xid == _PING_XID and self._own_pings:
                self._own_pings -= 1
                continue
            sent = self._unanswered.pop(xid, None)
            if sent is not None and not await self._interceptor.reply(sent):
                return
            with suppress(OSError):  # a client that died does not take back what it has sent
                await _forward(message, self._client)
            if sent is not None:
                self._interceptor.delivered(sent)
            if not self._unanswered:
                self._is_answered.set()

    async def _decide(self, sent: Sent) -> bool:
        decision = asyncio.ensure_future(self._interceptor.request(sent))
        self._is_holding = True
        try:
            while not (await asyncio.wait({decision}, timeout=_PING_INTERVAL_S))[0]:
                self._own_pings += 1
                await _forward(_PING, self._server)
        finally:
            self._is_holding = False
            decision.cancel()
        return decision.result()


def _parts(kind: int, message: bytes) -> Iterator[Part]:
    offset = _HEAD.size
    if kind in (Request.CREATE, Request.DELETE, Request.SET_DATA):
        yield Part(Request(kind), _text(message, offset)[0])
    if kind != Request.MULTI:
        return
    while True:
        part_kind, is_last, _ = _MULTI_HEAD.unpack_from(message, offset)
        offset += _MULTI_HEAD.size
        if is_last:
            return
        path, offset = _text(message, offset)
        if part_kind in (Request.CREATE, Request.SET_DATA):
            offset = _skipped(message, offset)  # the value
        if part_kind == Request.CREATE:
            rights, offset = _number(message, offset)
            for _ in range(rights):
                offset = _skipped(message, _skipped(message, offset + _LENGTH.size))
        offset += _LENGTH.size  # a create's flags, a version
        yield Part(Request(part_kind), path)


def _number(message: bytes, offset: int) -> tuple[int, int]:
    return _LENGTH.unpack_from(message, offset)[0], offset + _LENGTH.size


def _skipped(message: bytes, offset: int) -> int:
    size, offset = _number(message, offset)
    return offset + max(size, 0)


def _text(message: bytes, offset: int) -> tuple[str, int]:
    end = _skipped(message, offset)
    return message[offset + _LENGTH.size : end].decode(), end


async def _message(reader: asyncio.StreamReader) -> bytes:
    size = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
    return await reader.readexactly(size)


async def _forward(message: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(_LENGTH.pack(len(message)) + message)
    await writer.drain()
