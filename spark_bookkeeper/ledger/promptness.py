"""Promptness: whether what one writer sends is acknowledged soon. One run at a time is timed: to time each would cost each."""

from __future__ import annotations

import asyncio

from bookie_server.client.settings import PROMPT_S


class Promptness:
    """Of one writer; on its event loop."""

    def __init__(self) -> None:
        self._timed: int | None = None
        self._begun_s = 0.0
        self._now_s = asyncio.get_running_loop().time

    def on_sent(self, last_entry: int) -> None:
        """A run, or a part of one, that ends with this entry is sent."""
        if self._timed is None:
            self._timed, self._begun_s = last_entry, self._now_s()

    def on_acknowledged(self, last_entry: int) -> bool | None:
        """Every entry up to this one is acknowledged: whether soon; ``None``: none that was timed is among them."""
        if self._timed is None or last_entry < self._timed:
            return None
        self._timed = None
        return self._now_s() - self._begun_s <= PROMPT_S
