"""How hostile clients reach a bookie: over gRPC's calls, or over plain sockets."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import grpc
import grpc.aio

from bookie_server.client.grpc_client import CHANNEL_OPTIONS, SERVICE
from bookie_server.wire import codec
from bookie_server.wire.envelope import Head, Kind, Purpose, encode_head
from bookie_server.wire.limits import FRAME_SIZE_MAX
from bookie_server.wire.messages import ReadLacRequest, ReadRequest
from bookie_server.wire.pieces import messages_of
from bookkeeper_metadata.endpoints import GRPC, SOCKET
from tests.doubles.raw_sockets import RawPeer, connect_raw, hello, message

ENDED = grpc.RpcError, asyncio.InvalidStateError, OSError
"""What a line that the bookie has ended says to whoever uses it on."""
_FIRST_BYTES = 64 * 1024
"""Of a frame that is announced: so much of it comes."""


class Line(ABC):
    """One connection for adds, or for reads, or for questions for the LAC."""

    @abstractmethod
    async def add(self, frame: bytes) -> None:
        """Send a frame."""

    @abstractmethod
    async def announce(self) -> None:
        """Begin a frame as large as it may be."""

    @abstractmethod
    async def add_too_large(self, frame: bytes) -> None:
        """Send a frame in a way in which none so large is taken."""

    @abstractmethod
    async def read(self, number: int, request: ReadRequest) -> None:
        """Send a read."""

    @abstractmethod
    async def take(self) -> None:
        """Wait for an answer."""

    @abstractmethod
    async def ask(self, requests: Sequence[ReadLacRequest]) -> None:
        """Have these served, and take no reply."""

    @abstractmethod
    async def give_up(self) -> None:
        """Want the replies no more."""


class GrpcLine(Line):
    """A channel of its own."""

    def __init__(self, channel: grpc.aio.Channel, method: str) -> None:
        make = channel.unary_stream if method == "ReadLac" else channel.stream_stream
        self._open: Any = make(f"/{SERVICE}/{method}")
        # A bookie under attack may take long to take one more connection.
        self._call: Any = None if method == "ReadLac" else self._open(wait_for_ready=True)
        self._asked: list[Any] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls, address: str, method: str) -> AsyncIterator[Self]:
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            yield cls(channel, method)

    async def add(self, frame: bytes) -> None:
        for piece in messages_of(frame):
            await self._call.write(piece)

    async def announce(self) -> None:
        (first, *_) = messages_of(bytes(FRAME_SIZE_MAX))
        await self._call.write(first)

    async def add_too_large(self, frame: bytes) -> None:
        # As one message, which gRPC takes in whole and refuses then.
        await self._call.write(frame)

    async def read(self, number: int, request: ReadRequest) -> None:
        await self._call.write(codec.encode_read_request(number, request))

    async def take(self) -> None:
        await self._call.read()

    async def ask(self, requests: Sequence[ReadLacRequest]) -> None:
        self._asked = [self._open(codec.encode_read_lac_request(request)) for request in requests]
        await asyncio.gather(
            *(each.initial_metadata() for each in self._asked), return_exceptions=True
        )

    async def give_up(self) -> None:
        for each in self._asked:
            each.cancel()


class SocketLine(Line):
    """A connection that says what it must, and no more."""

    def __init__(self, peer: RawPeer) -> None:
        self._peer = peer
        self._number = 0
        self._asked: list[int] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls, address: str, method: str) -> AsyncIterator[Self]:
        peer = await connect_raw(address, limit_s=None)
        try:
            line = cls(peer)
            await peer.send(hello(Purpose.ADDS if method == "Write" else Purpose.REQUESTS))
            await line.take()
            yield line
        finally:
            peer.close()

    async def add(self, frame: bytes) -> None:
        await self._send(Kind.FRAME, frame)

    async def announce(self) -> None:
        await self._peer.send(encode_head(Head(Kind.FRAME, FRAME_SIZE_MAX, 0)))
        await self._peer.send(bytes(_FIRST_BYTES))

    async def add_too_large(self, frame: bytes) -> None:
        # One byte more than any may have.
        await self._send(Kind.FRAME, frame.ljust(FRAME_SIZE_MAX + 1, b"\0"))

    async def read(self, number: int, request: ReadRequest) -> None:
        await self._peer.send(message(Kind.READ, codec.encode_read_request(0, request), number))

    async def take(self) -> None:
        found = await self._peer.receive()
        if found is None or found.kind is Kind.FAREWELL:
            raise ConnectionResetError("the bookie has ended it")

    async def ask(self, requests: Sequence[ReadLacRequest]) -> None:
        self._asked = [await self._ask(request) for request in requests]

    async def give_up(self) -> None:
        for number in self._asked:
            await self._peer.send(message(Kind.GIVE_UP, number=number))

    async def _ask(self, request: ReadLacRequest) -> int:
        await self._send(Kind.READ_LAC, codec.encode_read_lac_request(request))
        return self._number

    async def _send(self, kind: Kind, body: bytes) -> None:
        self._number += 1
        await self._peer.send(message(kind, body, self._number))


LINES: dict[str, type[GrpcLine] | type[SocketLine]] = {GRPC: GrpcLine, SOCKET: SocketLine}
