"""Bytes as they travel: whole, or a view into something larger that is not copied."""

from __future__ import annotations

from collections.abc import Sequence

Buffer = bytes | memoryview
_PARTS_MAX = 64
"""Of a message that is not joined; more of them cost as much as a copy."""


def memory_of(buffer: Buffer) -> tuple[int, int]:
    """Identity and size of the memory that a buffer is part of, all of which it keeps."""
    if isinstance(buffer, memoryview):
        return id(buffer.obj), memoryview(buffer.obj).nbytes
    return id(buffer), len(buffer)


def held_bytes(parts: Sequence[Buffer]) -> int:
    """How much memory the parts keep, other bytes of the same memory included."""
    return sum(dict(map(memory_of, parts)).values())


def kept_light(parts: Sequence[Buffer]) -> Sequence[Buffer]:
    """The parts as they are if they are few, and most of what they keep; else joined, in memory of their own.

    The rest of what they keep is of what was fetched with them, or of the frames that cached entries came in.
    """
    if len(parts) <= _PARTS_MAX and held_bytes(parts) <= 2 * sum(map(len, parts)):
        return parts
    return (b"".join(parts),)
