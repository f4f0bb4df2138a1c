"""Pieces: a frame that is larger than a message may be travels as several messages, one behind the other.

gRPC takes a message into memory as a whole as soon as somebody waits for one, so what an idle stream may
cost is the largest message. A frame up to ``PIECE_SIZE_MAX`` is one message, byte for byte. The first
message of a larger one says how large the frame is; its receiver reads the others once there is
room for all of it. A frame begins with the size of its first header, which is never that large a number:

    first message: uint32 2³²-1 · uint32 size of the frame · its first bytes        (big-endian)
    the others: the bytes that follow, each message but the last of at least ``PIECE_SIZE_MIN``

Pure: bytes in, bytes out. Nothing is allocated by a size that a peer claims.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.limits import FRAME_SIZE_MAX, PIECE_SIZE_MAX, PIECE_SIZE_MIN
from bookkeeper_metadata.foundation.invariant import invariant

_HEAD = struct.Struct(">II")
_MARK = 2**32 - 1
_MARK_BYTES = _MARK.to_bytes(4)


def messages_of(frame: bytes) -> Iterable[bytes]:
    """The messages that carry a frame: the frame itself, or pieces of about the same size."""
    return (frame,) if len(frame) <= PIECE_SIZE_MAX else _cut(frame)


def _cut(frame: bytes) -> Iterator[bytes]:
    size = _HEAD.size + len(frame)
    # Of one size, so that none but the last can be smaller than half of the largest.
    count = -(-size // PIECE_SIZE_MAX)
    step = -(-size // count)
    invariant(PIECE_SIZE_MIN <= step <= PIECE_SIZE_MAX, "a receiver takes pieces of this size")
    first = step - _HEAD.size
    # Each byte is copied once: gRPC takes nothing but bytes.
    yield b"".join((_HEAD.pack(_MARK, len(frame)), memoryview(frame)[:first]))
    for begin in range(first, len(frame), step):
        yield frame[begin : begin + step]


def is_piece(message: bytes) -> bool:
    """Whether the message is the first piece of a frame, and no frame itself."""
    return message.startswith(_MARK_BYTES)


class Pieces:
    """A frame whose first piece has come."""

    __slots__ = ("_parts", "missing_bytes", "size_bytes")

    def __init__(self, first: bytes) -> None:
        """Raises :class:`MalformedFrameError`."""
        if len(first) < _HEAD.size:
            raise MalformedFrameError(f"a first piece of {len(first)} bytes")
        mark, self.size_bytes = _HEAD.unpack_from(first)
        invariant(mark == _MARK, "who makes this has looked whether it is a piece")
        if not PIECE_SIZE_MAX < self.size_bytes <= FRAME_SIZE_MAX:
            raise MalformedFrameError(f"a frame of {self.size_bytes} bytes in pieces")
        # The head counts as part of its piece.
        self.missing_bytes = _HEAD.size + self.size_bytes
        self._parts: list[memoryview] = []
        self.add(first)
        self._parts[0] = self._parts[0][_HEAD.size :]

    def add(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            MalformedFrameError: it is larger than what is missing, or so small that a frame could be
                as many pieces as it has bytes.
        """
        if len(piece) > self.missing_bytes:
            raise MalformedFrameError(f"a piece of {len(piece)}, {self.missing_bytes} are missing")
        if len(piece) < min(PIECE_SIZE_MIN, self.missing_bytes):
            raise MalformedFrameError(f"a piece of {len(piece)} bytes")
        self.missing_bytes -= len(piece)
        self._parts.append(memoryview(piece))

    def join(self) -> bytes:
        """The frame, once nothing is missing; its pieces are let go."""
        invariant(not self.missing_bytes, "all pieces are here")
        frame = b"".join(self._parts)
        self._parts.clear()
        return frame
