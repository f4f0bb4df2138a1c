"""Memory for replies is kept between two of them.

glibc gives the kernel back what lies free at the end of its memory once that is twice the largest piece that was ever
given back by itself. A reader has a few pieces of a MiB on their way, so nearly all of them would be given back, and each
new one would be fresh pages: for each 4 KiB of it a turn to the kernel, and memory out of the caches (docs/performance.md).
Bookies have it as it is: there it goes with memory that hostile clients use up.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_LARGEST_BYTES = 16 * 1024 * 1024
"""More than any reply; a process may keep twice this."""


@cache
def keep_memory() -> None:
    """Have this process keep up to 32 MiB of what it frees; once is enough, and for its children, too."""
    # Never written to, it takes no memory. Where settings of glibc say how much it keeps, or there is another
    # allocator, nothing comes of it.
    np.empty(_LARGEST_BYTES, np.uint8)
