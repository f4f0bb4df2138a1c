"""DamageLog: says of every damaged block once that it is, and counts them.

A damaged block is met again by every read of its entries, until a recovery has replaced them. An
operator wants to hear of each one once, and how many there are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from bookie_server.storage.disk.damage import Damage

_LOGGER = logging.getLogger(__name__)
BLOCKS_REMEMBERED_MAX = 100_000
"""Places kept in memory; of further ones neither is anything said nor are they counted."""


class DamageLog:
    """The damaged blocks met since the start; loop thread only."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()

    @property
    def count(self) -> int:
        """How many blocks were found damaged since the start, those replaced since among them."""
        return len(self._known)

    def note(self, blocks: Iterable[Damage]) -> None:
        """Log the blocks that were not met before."""
        for block in blocks:
            place = block.path, block.offset
            if place in self._known or self.count == BLOCKS_REMEMBERED_MAX:
                continue
            self._known.add(place)
            _LOGGER.error("stored block damaged. %s blocks_damaged=%d", block, self.count)
            if self.count == BLOCKS_REMEMBERED_MAX:
                _LOGGER.error("no more damaged blocks are named. blocks_damaged=%d", self.count)
