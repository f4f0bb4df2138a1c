"""Memory for replies is kept between two of them.

glibc gives the kernel back what lies free at the end of its memory once that is twice the largest piece that was ever
given back by itself. A reader has a few pieces of 2 MiB on their way, so nearly all of them would be given back, and each
new one would be fresh pages: for each 4 KiB of it a turn to the kernel, and memory out of the caches (docs/performance.md).
Bookies have it as it is: there it goes with memory that hostile clients use up.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import numpy as np

_TAUGHT_BYTES = 8 * 1024 * 1024
"""Twice this is more than what replies on their way take together, and what each arena of glibc may keep at its end."""


@cache
def keep_memory() -> None:
    """Have this process keep more of what it frees; once is enough, and for whoever is forked from it."""
    # Never written to, it takes no memory. Where settings of glibc say how much it keeps, or there is another
    # allocator, nothing comes of it.
    with suppress(MemoryError):
        np.empty(_TAUGHT_BYTES, np.uint8)
