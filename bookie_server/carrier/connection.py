"""Connection: messages over a byte stream, both ways.

Sending copies nothing: the buffers of a message go to the kernel as they are, and what it does not take
at once is kept as the rest of those buffers. Receiving puts a message's bytes where they stay: memory for
a message is made when its head has been read and its receiver has room for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np

from bookie_server.carrier.byte_stream import BUFFERS_MAX, ByteStream
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.envelope import HEAD_SIZE, Head, Kind, encode_head, parse_head
from bookkeeper_metadata.foundation.tasks import settle

STEP_S = 0.002
"""About the longest that one connection keeps the event loop to itself while bytes keep coming."""
_DISCARDED_AT_ONCE = 64 * 1024


def new_body(size_bytes: int) -> memoryview:
    """Memory for what follows a head."""
    # Not a bytearray, which is filled with zeros first.
    return np.empty(size_bytes, np.uint8).data


class ConnectionEndedError(ConnectionError):
    """It broke, was closed, or ended in the middle of a message."""


class Connection:
    """Owns the stream; for use on one event loop. One task receives, any number send."""

    def __init__(self, stream: ByteStream) -> None:
        self.peer = stream.peer
        self._stream = stream
        self._unsent: deque[Buffer] = deque()
        self.unsent_bytes = 0
        """Of what was sent: how much the kernel has not taken yet."""
        self._loop = asyncio.get_running_loop()
        self._pause_at_s = 0.0
        self._is_waiting = False
        self._drained: asyncio.Future[None] | None = None
        self._end = ""
        """Why it has ended; empty: it has not."""
        self._head = memoryview(bytearray(HEAD_SIZE))

    def send(self, kind: Kind, parts: Sequence[Buffer], number: int = 0) -> None:
        """Send a message; what is not taken at once is sent as soon as it is.

        That the connection has ended is not told here, but to whoever receives, or waits in ``drain``.
        """
        if self._end:
            return
        size_bytes = sum(map(len, parts))
        self._unsent.append(encode_head(Head(kind, size_bytes, number)))
        self._unsent.extend(part for part in parts if len(part))
        self.unsent_bytes += HEAD_SIZE + size_bytes
        if not self._is_waiting:
            self._flush()

    async def drain(self) -> None:
        """Wait until the kernel has taken all that was sent.

        Raises:
            ConnectionEndedError: it never will.
        """
        while self._unsent and not self._end:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        if self._end:
            raise ConnectionEndedError(self._end)

    async def receive_head(self) -> Head | None:
        """The next message's head; ``None``: the peer has ended the connection between two messages.

        Raises:
            ConnectionEndedError: it has ended otherwise.
            MalformedFrameError: what comes is no head.
        """
        return parse_head(self._head) if await self._fill(self._head) else None

    async def receive_body(self, size_bytes: int) -> memoryview:
        """What follows the head, at once; or :meth:`fill` a body part by part.

        Raises:
            ConnectionEndedError: not all of it came.
        """
        body = new_body(size_bytes)
        await self.fill(body)
        return body

    async def fill(self, part: memoryview) -> None:
        """Receive the next bytes of a body; raises as :meth:`receive_body` does."""
        if len(part) and not await self._fill(part):
            raise self._ended("in the middle of a message")

    async def discard_all(self) -> None:
        """Read until the peer ends the connection, and keep nothing.

        Raises:
            ConnectionEndedError: it has ended otherwise.
        """
        scratch = memoryview(bytearray(_DISCARDED_AT_ONCE))
        while await self._receive(scratch):
            pass

    def close(self) -> None:
        """End it, at once: what is not sent is lost; idempotent."""
        self._ended("closed")

    async def _fill(self, buffer: memoryview) -> bool:
        """Whether it is full; else the peer sent nothing more at all."""
        filled = 0
        while filled < len(buffer):
            count = await self._receive(buffer[filled:])
            if not count and filled:
                raise self._ended("in the middle of a message")
            if not count:
                return False
            filled += count
        return True

    async def _receive(self, buffer: memoryview) -> int:
        # As long as bytes are there a stream may give them without a pause.
        if self._loop.time() >= self._pause_at_s:
            await asyncio.sleep(0)
            self._pause_at_s = self._loop.time() + STEP_S
        if self._end:
            raise ConnectionEndedError(self._end)
        try:
            return await self._stream.receive_into(buffer)
        except OSError as error:
            raise self._ended(str(error)) from error

    def _flush(self) -> None:
        self._is_waiting = False
        while self._unsent:
            try:
                taken = self._stream.send(tuple(islice(self._unsent, BUFFERS_MAX)))
            except OSError as error:
                self._ended(str(error))
                return
            if not taken:
                self._is_waiting = True
                self._stream.call_when_writable(self._flush)
                return
            self.unsent_bytes -= taken
            self._forget(taken)
        self._tell()

    def _forget(self, taken: int) -> None:
        unsent = self._unsent
        while taken:
            first = unsent.popleft()
            if taken < len(first):
                unsent.appendleft(memoryview(first)[taken:])
                return
            taken -= len(first)

    def _ended(self, detail: str) -> ConnectionEndedError:
        """End it, unless it has ended; returns why it has."""
        if not self._end:
            self._end = f"{detail}; peer={self.peer}"
            self._unsent.clear()
            self.unsent_bytes = 0
            self._stream.close()
            self._tell()
        return ConnectionEndedError(self._end)

    def _tell(self) -> None:
        if self._drained is not None:
            settle(self._drained, None)
            self._drained = None
