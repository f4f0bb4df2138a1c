"""Byte streams on virtual time: what is sent arrives in parts of any size, late, or no more at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from bookie_server.carrier.byte_stream import BUFFERS_MAX, ByteStream
from bookie_server.wire.buffer import Buffer

CAPACITY = 64 * 1024
"""Bytes on their way, or not read yet, in one direction."""
DELAY_S_MAX = 0.02
GIVES_UP_S = 30
"""So long the kernel asks a peer that says nothing."""


class SimStream(ByteStream):
    """One end of a connection; made by :func:`connected`."""

    def __init__(self, random: Random, peer: str) -> None:
        self.peer = peer
        self.is_closed = False
        self._is_silent = False
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._other: SimStream | None = None
        self._arrived = bytearray()
        self._in_flight = 0
        self._due_s = 0.0
        self._has_ended = False
        self._when_readable: Callable[[], None] | None = None
        self._when_writable: Callable[[], None] | None = None

    def send(self, buffers: Sequence[Buffer]) -> int:
        self._check()
        assert len(buffers) <= BUFFERS_MAX
        other = self._other
        assert other is not None
        data = b"".join(buffers)[: CAPACITY - self._in_flight - len(other._arrived)]
        data = data[: self._random.randrange(len(data) + 1)]
        # What is cut in two is cut anywhere.
        if data and not self._is_silent:
            self._in_flight += len(data)
            self._later(other._arrive, data)
        return len(data)

    def call_when_writable(self, call: Callable[[], None]) -> None:
        self._when_writable = call
        self._loop.call_later(self._random.uniform(0, DELAY_S_MAX), self._look_if_writable)

    def receive_into(self, buffer: memoryview) -> int | None:
        self._check()
        if not self._arrived and not self._has_ended:
            return None
        count = min(len(buffer), len(self._arrived), self._random.randrange(1, CAPACITY))
        buffer[:count] = self._arrived[:count]
        del self._arrived[:count]
        return count

    def call_when_readable(self, call: Callable[[], None]) -> None:
        self._when_readable = call
        if self._arrived or self._has_ended:
            self._loop.call_soon(self._wake)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            assert self._other is not None
            if not self._is_silent:
                self._later(self._other._end)

    def fall_silent(self) -> None:
        """What it sends is lost, and nobody is told for long: the network is cut, or the machine at the other end went."""
        self._is_silent = True
        self._loop.call_later(GIVES_UP_S, self.break_off)

    def break_off(self) -> None:
        """Both ends find it broken; what was on its way is lost."""
        for end in (self, self._other):
            assert end is not None
            end._is_silent = end.is_closed = True
            end._tell()

    def _check(self) -> None:
        if self.is_closed:
            raise ConnectionResetError("the connection is gone")

    def _later(self, act: Callable[..., None], *values: bytes) -> None:
        # In order, whatever the delay.
        self._due_s = max(self._due_s, self._loop.time() + self._random.uniform(0, DELAY_S_MAX))
        self._loop.call_at(self._due_s, act, *values)

    def _arrive(self, data: bytes) -> None:
        assert self._other is not None
        self._other._in_flight -= len(data)
        self._arrived += data
        self._wake()

    def _end(self) -> None:
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        if not self.is_closed:
            self._tell()

    def _tell(self) -> None:
        call, self._when_readable = self._when_readable, None
        if call is not None:
            call()

    def _look_if_writable(self) -> None:
        other, call = self._other, self._when_writable
        assert other is not None
        if call is None or self.is_closed:
            return
        if self._in_flight + len(other._arrived) >= CAPACITY:
            self.call_when_writable(call)
        else:
            self._when_writable = None
            call()


def connected(random: Random) -> tuple[SimStream, SimStream]:
    """The two ends of a connection: the client's, and the bookie's."""
    ends = SimStream(random, "bookie"), SimStream(random, "client")
    connect_ends(*ends)
    return ends


def connect_ends(one: SimStream, other: SimStream) -> None:
    """From now on each hears the other."""
    one._other, other._other = other, one


async def send_all(stream: SimStream, data: bytes) -> None:
    """Send bytes as they are; returns when the stream has taken all of them."""
    while data:
        data = data[stream.send((data,)) :]
        await asyncio.sleep(DELAY_S_MAX)
