"""Memory for what follows a head.

glibc gives the kernel back what lies free at the end of its memory once that is twice the largest piece that was ever
given back by itself. With pieces of a MiB, of which four are on their way, nearly all of them would be given back, and each
new one would be fresh pages: for each 4 KiB of it a turn to the kernel, and memory out of the caches (docs/performance.md).
"""

from __future__ import annotations

from functools import cache

import numpy as np

_LARGEST_BYTES = 16 * 1024 * 1024
"""More than any message; twice this is what a process may keep."""


def new_body(size_bytes: int) -> memoryview:
    """Memory for so many bytes, with anything in it."""
    _teach_allocator()
    # Not a bytearray, which is filled with zeros first.
    return np.empty(size_bytes, np.uint8).data


@cache
def _teach_allocator() -> None:
    # Never written to, it takes no memory. Where settings of glibc say how much it keeps, or there is another
    # allocator, nothing comes of it.
    np.empty(_LARGEST_BYTES, np.uint8)
