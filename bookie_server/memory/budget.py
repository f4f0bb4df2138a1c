"""MemoryBudget: a bookie's clients ask for room before their bytes come into its memory.

Three budgets bound what clients make a bookie hold beside its write cache: adds in progress (frames, until
the last of their sections is answered), reads in progress (from the fetch of the records until
the client has taken the reply) and stored entries that adds are compared with. Each client is one
connection. Who holds least is served next, so a flood waits for itself; between equals the first comes
first, and nobody overtakes by being small.

No deadlock can arise. Whoever holds room waits for the journal, for a disk, for its client or, with
room for an add, for room to compare it with what is stored, which nobody holds for longer than a disk
takes; never the other way round, and nobody waits for more of the same budget while holding some. The
journal and the disks wait for no room. A client that keeps others waiting is not waited for: its room
is *lent*, and while others wait it is taken back once it was lent for ``patience_s``, or for as long as
the loan says. Fences, LAC reads and long polls hold nothing while they wait, and recovery's reads and
adds are served in turn with everybody's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.foundation.tasks import settle

_LATE_S = 0.05
"""So late a timer is only when its loop is busy."""


@dataclass(slots=True, eq=False)
class _Wait:
    """One room that is waited for."""

    size_bytes: int
    future: asyncio.Future[None]


@dataclass(slots=True)
class _Loan:
    """From when on a room may be taken back, and how."""

    due_s: float
    take_back: Callable[[], None]


class Room:
    """One client's part of a budget; empty at first. Give it back with ``release``, or use ``with``."""

    __slots__ = ("_budget", "client", "size_bytes")

    def __init__(self, budget: MemoryBudget, client: str) -> None:
        self._budget = budget
        self.client = client
        self.size_bytes = 0

    def __enter__(self) -> Room:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def try_take(self, size_bytes: int) -> bool:
        """Take so much room if it is there at once; whether it was."""
        invariant(not self.size_bytes, "whoever holds room does not ask for more")
        if not self._budget.try_take(self.client, size_bytes):
            return False
        self.size_bytes = size_bytes
        return True

    async def take(self, size_bytes: int) -> None:
        """Wait for so much room, or for all there is if that is less."""
        invariant(not self.size_bytes, "whoever holds room does not wait for more")
        size_bytes = min(size_bytes, self._budget.size_bytes_max)
        await self._budget.wait(self.client, size_bytes)
        # No await since it was granted: nobody else can have taken it.
        self.size_bytes = size_bytes

    def resize(self, size_bytes: int) -> None:
        """Hold what was really needed. More than was taken is granted: the bytes are there already."""
        self._budget.change(self.client, size_bytes - self.size_bytes)
        self.size_bytes = size_bytes

    def lend(self, take_back: Callable[[], None], patience_s: float | None = None) -> None:
        """Call ``take_back`` when this room is held for long from now on and others wait for it.

        How long is the budget's to say where ``patience_s`` does not.
        """
        self._budget.lend(self, take_back, patience_s)

    def reclaim(self) -> None:
        """End the loan: the room is in use and kept."""
        self._budget.reclaim(self)

    def release(self) -> None:
        """Give everything back; idempotent."""
        self.reclaim()
        self.resize(0)


class MemoryBudget:
    """See the module; for use on one event loop."""

    def __init__(self, size_bytes_max: int, *, patience_s: float) -> None:
        self.size_bytes_max = size_bytes_max
        self.used_bytes = 0
        """What is held by all clients; beyond the maximum where somebody's bytes were underestimated."""
        self._patience_s = patience_s
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[_Wait]] = {}
        """By client, in the order in which they began to wait."""
        self._lent: dict[Room, _Loan] = {}
        self._look: asyncio.TimerHandle | None = None
        self._look_due_s = 0.0

    @property
    def waiting_count(self) -> int:
        """The rooms waited for now."""
        return sum(map(len, self._waiting.values()))

    def room(self, client: str) -> Room:
        """An empty room of this client."""
        return Room(self, client)

    def try_take(self, client: str, size_bytes: int) -> bool:
        """See :meth:`Room.try_take`."""
        if self._waiting or not self.fits(size_bytes):
            return False
        self.change(client, size_bytes)
        return True

    async def wait(self, client: str, size_bytes: int) -> None:
        """Wait until the client holds so much more; see :meth:`Room.take`, which calls it."""
        if self.try_take(client, size_bytes):
            return
        loop = asyncio.get_running_loop()
        wait = _Wait(size_bytes, loop.create_future())
        self._waiting.setdefault(client, deque()).append(wait)
        if self._look is None:
            self._look_later()
        try:
            await wait.future
        except asyncio.CancelledError:
            # Granted and cancelled at once: nobody would give it back.
            if not wait.future.cancelled():
                self.change(client, -size_bytes)
            elif wait in self._waiting.get(client, ()):
                self._forget(client, wait)
                self._grant()
            raise

    def change(self, client: str, by_bytes: int) -> None:
        """Note that the client holds more, or less, which may be room for others."""
        self.used_bytes += by_bytes
        held = self._held.get(client, 0) + by_bytes
        invariant(held >= 0, "nobody gives back more than was taken")
        if held:
            self._held[client] = held
        else:
            self._held.pop(client, None)
        if by_bytes < 0 and self._waiting:
            self._grant()

    def lend(self, room: Room, take_back: Callable[[], None], patience_s: float | None) -> None:
        """See :meth:`Room.lend`."""
        if patience_s is None:
            patience_s = self._patience_s
        self._lent[room] = _Loan(asyncio.get_running_loop().time() + patience_s, take_back)

    def reclaim(self, room: Room) -> None:
        """See :meth:`Room.reclaim`."""
        self._lent.pop(room, None)

    def fits(self, size_bytes: int) -> bool:
        """Whether so much is free, whoever else waits for it."""
        return self.used_bytes + size_bytes <= self.size_bytes_max

    def _grant(self) -> None:
        while self._waiting:
            client = min(self._waiting, key=lambda waiting: self._held.get(waiting, 0))
            wait = self._waiting[client][0]
            # Cancelled, and not yet aware of it.
            if wait.future.cancelled():
                self._forget(client, wait)
                continue
            # Smaller ones behind it wait, too, or a large one would wait for ever.
            if not self.fits(wait.size_bytes):
                return
            self._forget(client, wait)
            self.change(client, wait.size_bytes)
            settle(wait.future, None)

    def _forget(self, client: str, wait: _Wait) -> None:
        waiting = self._waiting[client]
        waiting.remove(wait)
        # Taken out and put in again: the client's next wait stands behind those of its equals.
        del self._waiting[client]
        if waiting:
            self._waiting[client] = waiting

    def _take_back(self) -> None:
        """Take back what was lent for long, as long as somebody waits."""
        loop = asyncio.get_running_loop()
        # A loop that was busy has not heard of what its clients did meanwhile.
        is_late = loop.time() - self._look_due_s > max(self._patience_s / 2, _LATE_S)
        for room, loan in list(self._lent.items()) if not is_late else ():
            if not self._waiting:
                break
            # Who waits for himself only is no trouble to others.
            if loop.time() < loan.due_s or self._waiting.keys() <= {room.client}:
                continue
            self.reclaim(room)
            loan.take_back()
        self._look = None
        if self._waiting:
            self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._look_due_s = loop.time() + self._patience_s / 2
        self._look = loop.call_at(self._look_due_s, self._take_back)
