"""FramesInProgress: the frames of one stream of adds, from before they are read until they are answered.

gRPC tells the size of a message only when all of it is in memory, and a stream may wait for its next
frame for hours. So room is taken beforehand for as much as the stream's last frame makes likely, and
given up while the stream is idle and others need it. A frame for which there was too little room is
let in as long as all such frames together stay below a part of the budget; beyond it, it is dropped
and its stream ended: the writer sends it again.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from bookie_server.memory.budget import MemoryBudget, Room
from bookie_server.wire.limits import FRAME_SIZE_MAX

SECTION_OVERHEAD = 1024
"""Bytes of memory that a section costs beside its records, about."""
_EXPECTED_MIN = 64 * 1024
"""Expected of a stream of small frames; gRPC takes in about as much of a stream that nobody reads."""
_LOOKS_MAX = 50
"""How often a frame may be found to be still on its way while others wait for room."""


class TooLittleRoomError(Exception):
    """The frame is larger than was expected, and so are too many others."""


class Frame:
    """One frame: its room is given back when every one who holds it has let it go."""

    __slots__ = ("_holders", "_room")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._holders = 1

    def hold(self) -> None:
        """One more section of it is to be answered."""
        self._holders += 1

    def let_go(self) -> None:
        """A section is answered, or the frame has been gone through."""
        self._holders -= 1
        if not self._holders:
            self._room.release()


class Clients(Protocol):
    """What is known of the connections of clients."""

    def received_bytes(self, client: str) -> int:
        """The bytes received from the client so far, or lately."""

    def disconnect(self, client: str) -> None:
        """End the client's connection."""


class FramesInProgress:
    """Of one stream of this client; the next frame is read between ``expect`` and ``arrive``."""

    def __init__(self, budget: MemoryBudget, client: str, clients: Clients) -> None:
        self._budget = budget
        self._client = client
        self._clients = clients
        self._received_bytes: int | None = None
        """When others needed the room of the next frame for the last time."""
        self._looks = 0
        self._room = budget.room(client)
        self._new_room = partial(budget.room, client)
        self._expected_bytes = FRAME_SIZE_MAX

    async def expect(self) -> None:
        """Wait for room for the next frame."""
        if not self._room.try_take(self._expected_bytes):
            await self._room.take(self._expected_bytes)
        self._received_bytes, self._looks = None, 0
        self._room.lend(self._take_back)

    def arrive(self, size_bytes: int) -> Frame:
        """Account for the frame that was read.

        Raises:
            TooLittleRoomError: it must be dropped.
        """
        room, self._room = self._room, self._new_room()
        surplus = size_bytes - room.size_bytes
        budget = self._budget
        if surplus > 0 and budget.used_bytes + surplus > budget.size_bytes_max * 3 // 2:
            room.release()
            raise TooLittleRoomError
        room.reclaim()
        room.resize(size_bytes)
        # Writers' frames grow and shrink with their load.
        self._expected_bytes = min(max(2 * size_bytes, _EXPECTED_MIN), FRAME_SIZE_MAX)
        return Frame(room)

    def _take_back(self) -> None:
        """Give the room of the next frame up if the stream is idle."""
        received_bytes = self._clients.received_bytes(self._client)
        if received_bytes == self._received_bytes:
            self._room.resize(0)
            return
        self._looks += 1
        if self._looks > _LOOKS_MAX:
            self._clients.disconnect(self._client)
            return
        self._received_bytes = received_bytes
        self._room.lend(self._take_back)

    def close(self) -> None:
        """No more frames: give up the room of the next one."""
        self._room.release()
