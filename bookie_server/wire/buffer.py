"""Bytes as they travel: whole, or a view into something larger that is not copied."""

from __future__ import annotations

Buffer = bytes | memoryview


def memory_of(buffer: Buffer) -> tuple[int, int]:
    """Identity and size of the memory that a buffer is part of, all of which it keeps."""
    if isinstance(buffer, memoryview):
        return id(buffer.obj), memoryview(buffer.obj).nbytes
    return id(buffer), len(buffer)
