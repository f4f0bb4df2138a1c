"""FramesInProgress: the frames of one stream of adds, from before they are read until they are answered.

gRPC tells the size of a message only when all of it is in memory, and a stream may wait for its next
frame for hours. So a stream at work takes room for its next frame before it reads it, as much as the last
one needed; its bytes wait in the client. An idle stream takes little, and a frame that turns out larger
waits for the rest of its room in memory: nobody is refused, and no idle stream keeps others waiting.

A message is a piece at most (:mod:`bookie_server.wire.pieces`), so that is what such a wait may cost. A frame
of several says with the first how large it is, and the others are read once there is room for all of it. Who
announces a frame and does not send it keeps others waiting for ``STALLED_AFTER_S``, and only those
who have announced one, too: frames in pieces wait for a budget of *promises*, a part of the other, before they
wait for that one. Whoever waits for a promise holds nothing.

Answered frames go on in the write cache, and while that is full no frame begins to be read. One whose size is known
looks at it once it has its room, since it may have waited for that while the others filled the cache: so what comes
into a cache that is full by then is this budget at most, however many wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from bookie_server.memory.budget import MemoryBudget, Room
from bookie_server.wire.limits import FRAME_SIZE_MAX

SECTION_OVERHEAD = 1024
"""Bytes of memory that a section costs beside its records, about."""
EXPECTED_MIN = 64 * 1024
"""Expected of an idle stream; gRPC takes in about as much of a stream that nobody reads."""
STALLED_AFTER_S = 0.5
"""A stream in the middle of a frame that sends no piece for so long is ended while others wait for its room.
Longer: announcers that send nothing hold up others; shorter: a busy client may be taken for one."""

STALLED_LOOK_S = 0.1
"""Within this time at least ``EXPECTED_MIN`` bytes must come of a frame that is late, where too many are."""
_LOGGER = logging.getLogger(__name__)


class Frame:
    """One frame: its room is given back when every one who holds it has let it go."""

    __slots__ = ("_holders", "_on_answered", "_room", "arrived_s")

    def __init__(self, room: Room, on_answered: Callable[[], None], arrived_s: float) -> None:
        self.arrived_s = arrived_s
        """By the event loop's clock."""
        self._room = room
        self._on_answered = on_answered
        self._holders = 1

    def hold(self) -> None:
        """One more section of it is to be answered."""
        self._holders += 1

    def let_go(self) -> None:
        """A section is answered, or the frame has been gone through."""
        self._holders -= 1
        if not self._holders:
            self._room.release()
            self._on_answered()


class Sender(Protocol):
    """A connection whose next frame is expected."""

    received_bytes: int
    """All that has come by it."""

    def close(self) -> None: ...


class CacheRoom(Protocol):
    """Whether there is room in the write cache; it waits for a disk, and never for a budget of frames."""

    @property
    def has_room(self) -> bool: ...
    async def wait_for_room(self) -> None: ...


class PromisedMemory:
    """What the streams of adds share: memory for frames, of which frames that were announced get a part.

    The rest is for frames of one piece, whatever was promised to clients that send nothing.
    """

    def __init__(self, budget: MemoryBudget, cache: CacheRoom) -> None:
        self.budget = budget
        self.cache = cache
        self.promises = MemoryBudget(budget.size_bytes_max // 2, patience_s=STALLED_AFTER_S)
        self.stalled = MemoryBudget(budget.size_bytes_max, patience_s=STALLED_AFTER_S)
        """What frames take whose room was given to others, for they did not come; part of them may have."""


class FramesInProgress:
    """Of one stream of this client; the next frame is read between ``expect`` and ``arrive``."""

    def __init__(self, memory: PromisedMemory, client: str) -> None:
        self.client = client
        self._budget = memory.budget
        self._room = memory.budget.room(client)
        self._promise = memory.promises.room(client)
        self._stalled = memory.stalled.room(client)
        self._new_room = partial(memory.budget.room, client)
        self._cache = memory.cache
        self._last_bytes = 0
        self._unanswered = 0

    @property
    def has_cache_room(self) -> bool:
        """Whether the write cache takes frames."""
        return self._cache.has_room

    async def wait_for_cache(self) -> None:
        """Wait until the write cache takes frames, as it must be waited for in front of each."""
        await self._cache.wait_for_room()

    async def expect(self, size_bytes: int | None = None, sender: Sender | None = None) -> None:
        """Wait for room for the next frame, whose size some carriers tell before they read it, and who sends it."""
        # Where it is not known, the frame may be hours away.
        if size_bytes is None:
            await self.wait_for_cache()
        expected_bytes = EXPECTED_MIN if size_bytes is None else size_bytes
        # Who has frames on their way most likely sends more of them at once.
        if size_bytes is None and self._unanswered:
            expected_bytes = min(max(self._last_bytes, EXPECTED_MIN), FRAME_SIZE_MAX)
        if not self._room.try_take(expected_bytes):
            await self._room.take(expected_bytes)
        # What was waited for may have filled it.
        if size_bytes is not None:
            await self.wait_for_cache()
        self._room.lend(partial(self._take_back, sender))

    def try_expect(self, size_bytes: int, sender: Sender) -> bool:
        """As ``expect`` does, where nothing has to be waited for; whether that is so."""
        if not self._cache.has_room or not self._room.try_take(size_bytes):
            return False
        self._room.lend(partial(self._take_back, sender))
        return True

    async def announce(self, size_bytes: int) -> None:
        """Wait for room for all of a frame of which the first piece is here."""
        self._room.release()
        await self._promise.take(size_bytes)
        await self._room.take(size_bytes)
        await self.wait_for_cache()

    def begin_await(self, give_up: Callable[[], None]) -> None:
        """Have ``give_up`` called if the next piece does not come and others need the room."""

        def take_back() -> None:
            self.end_await()
            give_up()

        for room in (self._promise, self._room):
            room.lend(take_back, STALLED_AFTER_S)

    def end_await(self) -> None:
        """The piece is here, or nobody waits for it any more."""
        self._promise.reclaim()
        self._room.reclaim()

    async def arrive(self, size_bytes: int) -> Frame:
        """Account for the frame that was read, once there is room for it."""
        arrived_s = asyncio.get_running_loop().time()
        if (frame := self.try_arrive(size_bytes, arrived_s)) is not None:
            return frame
        # Whoever waits holds nothing, or two could wait for each other.
        room = self._take_over()
        room.resize(0)
        await room.take(size_bytes)
        return self._frame(room, size_bytes, arrived_s)

    def try_arrive(self, size_bytes: int, arrived_s: float) -> Frame | None:
        """The frame that was read, which came at ``arrived_s``; ``None``: there is no room for it now."""
        surplus = size_bytes - self._room.size_bytes
        # Of a frame that was announced all has room but what its sections cost beside their bytes.
        if surplus > 0 and not self._promise.size_bytes and not self._budget.fits(surplus):
            return None
        return self._frame(self._take_over(), size_bytes, arrived_s)

    def _take_over(self) -> Room:
        room, self._room = self._room, self._new_room()
        room.reclaim()
        self._promise.release()
        self._stalled.release()
        return room

    def _frame(self, room: Room, size_bytes: int, arrived_s: float) -> Frame:
        room.resize(size_bytes)
        self._last_bytes = size_bytes
        self._unanswered += 1
        return Frame(room, self._on_answered, arrived_s)

    def _on_answered(self) -> None:
        self._unanswered -= 1

    def _take_back(self, sender: Sender | None) -> None:
        """Give the room of the next frame up: it has not come, and others need it."""
        size_bytes = self._room.size_bytes
        self._room.resize(0)
        # All but its last byte may be here: a few clients are slow, and a hundred are hostile.
        if sender is not None and not self._stalled.try_take(size_bytes):
            # What the event loop has had no time for yet is no fault of the client's.
            look = partial(self._end_stalled, sender, sender.received_bytes, self._room)
            asyncio.get_running_loop().call_later(STALLED_LOOK_S, look)

    def _end_stalled(self, sender: Sender, received_bytes: int, room: Room) -> None:
        if self._room is room and sender.received_bytes - received_bytes < EXPECTED_MIN:
            _LOGGER.warning("disconnected: it does not send its frame. client=%s", self.client)
            sender.close()

    def close(self) -> None:
        """Give up the room of the next frame: none is to come, or what came is none."""
        self._promise.release()
        self._stalled.release()
        self._room.release()
