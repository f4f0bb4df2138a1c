"""One end of a plain socket in a test's hands: it sends any bytes, and takes messages only when it is told to."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass

from bookie_server.wire.envelope import (
    HEAD_SIZE,
    Head,
    Hello,
    Kind,
    Purpose,
    Reason,
    encode_head,
    encode_hello,
    parse_farewell,
    parse_head,
)
from tests.patience import seconds

LIMIT_S = 30.0
CLOSE_WITH_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Message:
    """What came."""

    kind: Kind
    body: bytes
    number: int = 0

    @property
    def reason(self) -> Reason | None:
        """Of a farewell."""
        assert self.kind is Kind.FAREWELL
        return parse_farewell(self.body)[0]


class RawPeer:
    """Owns a connected socket."""

    def __init__(self, connected: socket.socket, limit_s: float | None = LIMIT_S) -> None:
        """``limit_s``: how long sending or receiving one message may take."""
        connected.setblocking(False)
        self.socket = connected
        self.heard: list[Message] = []
        """All that came."""
        self._loop = asyncio.get_running_loop()
        self._limit_s = None if limit_s is None else seconds(limit_s)

    async def send(self, *parts: bytes) -> None:
        """Send all of it; who is not read has to wait."""
        async with asyncio.timeout(self._limit_s):
            await self._loop.sock_sendall(self.socket, b"".join(parts))

    async def receive(self) -> Message | None:
        """The next message; ``None``: the other side has ended the connection."""
        async with asyncio.timeout(self._limit_s):
            head = await self._exactly(HEAD_SIZE)
            if not head:
                return None
            parsed = parse_head(head)
            body = await self._exactly(parsed.size_bytes)
            if len(body) < parsed.size_bytes:
                return None
            self.heard.append(Message(parsed.kind, body, parsed.number))
            return self.heard[-1]

    async def take(self) -> Message:
        """The next message, of which there is one."""
        found = await self.receive()
        assert found is not None
        return found

    async def rest(self) -> list[Message]:
        """All that comes, up to the end of the connection."""
        found: list[Message] = []
        while (message := await self.receive()) is not None:
            found.append(message)
        return found

    async def until_farewell(self) -> list[Message]:
        """All that comes up to the bookie's last word, which is the last of them; then go."""
        found: list[Message] = []
        while (message := await self.receive()) is not None:
            found.append(message)
            if message.kind is Kind.FAREWELL:
                break
        self.close()
        return found

    def shut(self) -> None:
        """Say that there will be no more, and go on taking."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Go, as a process that exits."""
        self.socket.close()

    def reset(self) -> None:
        """Go, as one that leaves what it was sent unread."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSE_WITH_RESET)
        self.socket.close()

    async def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            try:
                some = await self._loop.sock_recv(self.socket, size - len(found))
            except ConnectionResetError:
                some = b""
            if not some:
                return b""
            found += some
        return found


def message(kind: Kind, body: bytes = b"", number: int = 0) -> bytes:
    """Head and body."""
    return encode_head(Head(kind, len(body), number)) + body


def hello(purpose: Purpose | None, bookie_id: str = "", cluster_id: str = "") -> bytes:
    """A client's first message."""
    return message(Kind.HELLO, encode_hello(Hello(bookie_id, cluster_id, "test", purpose)))


def welcome(bookie_id: str = "", cluster_id: str = "") -> bytes:
    """A bookie's first message."""
    return message(Kind.WELCOME, encode_hello(Hello(bookie_id, cluster_id, "test")))


async def connect_raw(
    address: str, receive_buffer_bytes: int | None = None, *, limit_s: float | None = LIMIT_S
) -> RawPeer:
    """Connect; with a small buffer the kernel takes little of what the test does not take."""
    host, port = address.rsplit(":", 1)
    connecting = socket.socket()
    if receive_buffer_bytes is not None:
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    connecting.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connecting, (host, int(port)))
    return RawPeer(connecting, limit_s)
