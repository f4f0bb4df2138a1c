"""How much of one kind of work there may be at once.

Slots: what each client may have under way; who asks for more waits for itself. Places: what is waited for as a task, which
costs memory: a few for each connection, and more for whoever comes first, so that thousands of connections cannot take a
thousand each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary


class Slots:
    """So many for each client; for use on one event loop."""

    def __init__(self, for_each: int) -> None:
        self._for_each = for_each
        self._of_client: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, client: str) -> asyncio.Semaphore:
        """The client's, the same for all who hold them now; forgotten once nobody does."""
        return self._of_client.setdefault(client, asyncio.Semaphore(self._for_each))


class SharedPlaces:
    """Of one bookie; for use on one event loop."""

    def __init__(self, for_each: int, shared: int) -> None:
        self._for_each = for_each
        self.left = shared
        """Places that nobody has."""

    def of_connection(self, most: int) -> Places:
        """The places of a connection, which may have ``most`` at a time."""
        return Places(self, min(self._for_each, most), most)


class Places:
    """Of one connection, which takes one at a time."""

    def __init__(self, shared: SharedPlaces, own: int, most: int) -> None:
        self._shared = shared
        self._own = asyncio.Semaphore(own)
        self._borrowed = 0
        self._borrowed_max = most - own

    async def take(self) -> Callable[[], None]:
        """Wait for a place; call what is returned, once, to give it back."""
        if self._own.locked() and self._may_borrow:
            self._shared.left -= 1
            self._borrowed += 1
            return self._give_back
        await self._own.acquire()
        return self._own.release

    async def take_free(self) -> Callable[[], None] | None:
        """As :meth:`take`, of the places that are free now; ``None``: none is."""
        return None if self._own.locked() and not self._may_borrow else await self.take()

    @property
    def _may_borrow(self) -> bool:
        return self._shared.left > 0 and self._borrowed < self._borrowed_max

    def _give_back(self) -> None:
        self._borrowed -= 1
        self._shared.left += 1
