"""Frames of Apache's protocol: int32 length, then that many bytes; which version they are of.

Source: Apache ``BookieNettyServer`` (``LengthFieldBasedFrameDecoder``) and ``BookieProtoEncoding``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError

LENGTH_SIZE = 4
RPC_FRAME_SIZE_MAX = 5 * 1024 * 1024
"""Largest frame, its length included; Apache's default, and of all its clients."""
_LENGTH = struct.Struct(">i")
_TAG_MIN = 8
"""First byte of any message in protocol buffers: the least field number is 1. Version 2 begins with its version."""


def with_length(parts: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """The parts of a frame, its length in front."""
    return (_LENGTH.pack(sum(map(len, parts))), *parts)


def parse_length(encoded: Buffer, at: int = 0) -> int:
    """The length of the frame that starts at ``at``; its bytes are behind the length's.

    Raises:
        MalformedFrameError: no frame is so long, or so short.
    """
    (length,) = _LENGTH.unpack_from(encoded, at)
    if not 0 < length <= RPC_FRAME_SIZE_MAX - LENGTH_SIZE:
        raise MalformedFrameError(f"a frame of {length} bytes")
    return int(length)


def frame_at(received: memoryview, at: int) -> memoryview | None:
    """The frame that starts at ``at``, without its length; ``None``: not all of it is there.

    Raises:
        MalformedFrameError: there can be none.
    """
    if len(received) - at < LENGTH_SIZE:
        return None
    begin = at + LENGTH_SIZE
    behind = begin + parse_length(received, at)
    return received[begin:behind] if behind <= len(received) else None


def is_of_v2(frame: Buffer) -> bool:
    """Whether a frame is of version 2, or of one before it."""
    return frame[0] < _TAG_MIN
