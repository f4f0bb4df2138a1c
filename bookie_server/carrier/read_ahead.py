"""ReadAhead: what came together is received together, where it is small.

To receive a head, then its body, and then to hear that nothing more is here takes the kernel three calls; where both are
small that is most of what a message costs. So with a head comes what is here behind it, as far as there is memory that
all connections share, and it is copied from there. Behind a large body the next one is awaited to be large as well: its head is
received alone, and its bytes go straight to where they stay.
"""

from __future__ import annotations

import threading

from bookie_server.carrier.byte_stream import ByteStream

AHEAD_BYTES_MAX = 16 * 1024
"""Most bytes that are here before there is room for them, of one connection; there may be ten thousand."""
_NOTHING = memoryview(b"")


class _Landing(threading.local):
    """What the kernel puts bytes into; they are copied out of it before the event loop goes on."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(AHEAD_BYTES_MAX))


_landing = _Landing()


class ReadAhead:
    """In front of one stream; whoever receives by it calls :meth:`keep` at the end of a step of the event loop."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._rest = _NOTHING
        """What came with a head, and was not asked for yet."""
        self._is_large = False
        """Whether the body of the last head was larger than what is received ahead."""

    @property
    def has_bytes(self) -> bool:
        """Whether the next call gives something without asking the stream."""
        return bool(self._rest)

    def receive_into(self, buffer: memoryview, *, is_head: bool = False) -> int | None:
        """As of :class:`ByteStream`; ``is_head``: the buffer is for a head, of which nothing has come."""
        if not self._rest:
            if not is_head or self._is_large:
                return self._receive_alone(buffer, is_head=is_head)
            landing = _landing.memory
            count = self._stream.receive_into(landing)
            if not count:
                return count
            self._rest = landing[:count]
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:] if size < len(self._rest) else _NOTHING
        return size

    def _receive_alone(self, buffer: memoryview, *, is_head: bool) -> int | None:
        count = self._stream.receive_into(buffer)
        if count and is_head:
            self._is_large = False
        elif len(buffer) > AHEAD_BYTES_MAX:
            self._is_large = True
        return count

    def keep(self) -> None:
        """Take what was not asked for out of the memory that others are about to use."""
        if self._rest and self._rest.obj is _landing.memory.obj:
            self._rest = memoryview(bytes(self._rest))
