"""What the disk alone can do: the ceiling of everything that syncs."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

REPLICA_WRITES = 6
"""Three replicas on one disk, each written to a journal and to an entry log."""


def synced_write_mb_per_s(directory: Path, size_bytes: int, seconds: float = 1.0) -> float:
    """Direct writes of ``size_bytes`` into a file filled before, each followed by fdatasync."""
    path = directory / "disk-ceiling"
    span = max(64 * 1024 * 1024 // size_bytes, 1)
    buffer = memoryview(mmap.mmap(-1, size_bytes))
    buffer[:] = os.urandom(size_bytes)
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
    try:
        for at in range(span):
            os.pwrite(file, buffer, at * size_bytes)
        os.fdatasync(file)
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            os.pwrite(file, buffer, (count % span) * size_bytes)
            os.fdatasync(file)
            count += 1
        return count * size_bytes / (time.perf_counter() - started) / 1e6
    finally:
        os.close(file)
        path.unlink()


def file_copy_mb_per_s(directory: Path, size_bytes: int) -> float:
    """A file copied to another, in pieces of 1 MiB, and synced at its end."""
    source, target = directory / "copy-source", directory / "copy-target"
    piece = os.urandom(1024 * 1024)
    with source.open("wb") as file:
        for _ in range(max(1, size_bytes // len(piece))):
            file.write(piece)
    os.sync()
    try:
        started = time.perf_counter()
        with source.open("rb", buffering=0) as old, target.open("wb", buffering=0) as new:
            while data := old.read(1024 * 1024):
                new.write(data)
            os.fdatasync(new.fileno())
        return size_bytes / (time.perf_counter() - started) / 1e6
    finally:
        source.unlink()
        target.unlink(missing_ok=True)


def file_read_mb_per_s(directory: Path, size_bytes: int = 256 * 1024 * 1024) -> float:
    """A plain sequential read of a file in the page cache, in pieces of 1 MiB."""
    path = directory / "read-ceiling"
    path.write_bytes(os.urandom(size_bytes))
    try:
        with path.open("rb", buffering=0) as file:
            while file.read(1024 * 1024):
                continue
            file.seek(0)
            started = time.perf_counter()
            while file.read(1024 * 1024):
                continue
            return size_bytes / (time.perf_counter() - started) / 1e6
    finally:
        path.unlink()
