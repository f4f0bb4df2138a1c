"""FramesInProgress: the frames of one stream of adds, from before they are read until they are answered.

gRPC tells the size of a message only when all of it is in memory, and a stream may wait for its next
frame for hours. So a stream at work takes room for its next frame before it reads it, as much as the last
one needed; its bytes wait in the client. An idle stream takes little, and a frame that turns out larger
waits for the rest of its room in memory: nobody is refused, and no idle stream keeps others waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookie_server.memory.budget import MemoryBudget, Room
from bookie_server.wire.limits import FRAME_SIZE_MAX

SECTION_OVERHEAD = 1024
"""Bytes of memory that a section costs beside its records, about."""
EXPECTED_MIN = 64 * 1024
"""Expected of an idle stream; gRPC takes in about as much of a stream that nobody reads."""


class Frame:
    """One frame: its room is given back when every one who holds it has let it go."""

    __slots__ = ("_holders", "_on_answered", "_room")

    def __init__(self, room: Room, on_answered: Callable[[], None]) -> None:
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


class FramesInProgress:
    """Of one stream of this client; the next frame is read between ``expect`` and ``arrive``."""

    def __init__(self, budget: MemoryBudget, client: str) -> None:
        self._budget = budget
        self._room = budget.room(client)
        self._new_room = partial(budget.room, client)
        self._last_bytes = 0
        self._unanswered = 0

    async def expect(self) -> None:
        """Wait for room for the next frame."""
        expected_bytes = EXPECTED_MIN
        # Who has frames on their way most likely sends more of them at once.
        if self._unanswered:
            expected_bytes = min(max(self._last_bytes, EXPECTED_MIN), FRAME_SIZE_MAX)
        if not self._room.try_take(expected_bytes):
            await self._room.take(expected_bytes)
        self._room.lend(self._take_back)

    async def arrive(self, size_bytes: int) -> Frame:
        """Account for the frame that was read, once there is room for it."""
        room, self._room = self._room, self._new_room()
        room.reclaim()
        surplus = size_bytes - room.size_bytes
        if surplus > 0 and self._budget.used_bytes + surplus > self._budget.size_bytes_max:
            # Whoever waits holds nothing, or two could wait for each other.
            room.resize(0)
            await room.take(size_bytes)
        room.resize(size_bytes)
        self._last_bytes = size_bytes
        self._unanswered += 1
        return Frame(room, self._on_answered)

    def _on_answered(self) -> None:
        self._unanswered -= 1

    def _take_back(self) -> None:
        """Give the room of the next frame up: it has not come, and others need it."""
        self._room.resize(0)

    def close(self) -> None:
        """No more frames: give up the room of the next one."""
        self._room.release()
