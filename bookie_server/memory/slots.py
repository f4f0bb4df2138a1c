"""Slots: how much of one kind of work each client may have under way at once; who asks for more waits for itself."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Slots:
    """So many for each client; for use on one event loop."""

    def __init__(self, for_each: int) -> None:
        self._for_each = for_each
        self._of_client: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, client: str) -> asyncio.Semaphore:
        """The client's, the same for all who hold them now; forgotten once nobody does."""
        return self._of_client.setdefault(client, asyncio.Semaphore(self._for_each))
