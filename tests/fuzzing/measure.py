"""What decoding takes: memory at its peak, and lines of Python. Never time, which says more of the machine.

Arrow's memory is counted by Arrow; everything else, numpy's too, by Python.
"""

from __future__ import annotations

import resource
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa


class TooManyStepsError(BaseException):
    """Ends a decoder that has taken more steps than it may; no handler of its own must stop that."""


@contextmanager
def counted_steps(limit: int) -> Iterator[Callable[[], int]]:
    """Counts the lines that run within the block.

    Raises:
        TooManyStepsError: they are more than ``limit``.
    """
    count = 0

    def trace(_: FrameType, event: str, __: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count > limit:
                raise TooManyStepsError(f"more than {limit} lines of Python")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


@contextmanager
def counted_bytes() -> Iterator[Callable[[], int]]:
    """Counts the most bytes that were allocated within the block at one time, Arrow's aside."""
    peak = 0
    tracemalloc.start(1)
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield lambda: peak
    finally:
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()


class ArrowPeak:
    """Arrow's peak since it was made, as far as it is higher than any before."""

    def __init__(self) -> None:
        self._pool = pa.default_memory_pool()
        self._before, self._highest = self._pool.bytes_allocated(), self._pool.max_memory()

    def bytes(self) -> int:
        """0 where an earlier peak was as high: that one was looked at."""
        highest = self._pool.max_memory()
        return int(highest - self._before) if highest > self._highest else 0


@contextmanager
def limited_memory(further_bytes: int) -> Iterator[None]:
    """Within the block the process gets no more memory than this: then it raises, instead of taking the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + further_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
