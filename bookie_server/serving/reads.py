"""One client's reads: requests in as they come, replies out in any order, whatever carries them.

Room for a reply is taken before its records are read; see :mod:`bookie_server.memory.budget`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bookie_server.bookie import Bookie
from bookie_server.memory.budget import Room
from bookie_server.memory.slots import Places
from bookie_server.wire import codec
from bookie_server.wire.buffer import Buffer, held_bytes, kept_light
from bookie_server.wire.messages import IdRange, ReadRequest, Status, StoredReply
from bookkeeper_metadata.foundation.tasks import end_tasks, has_failed
from bookkeeper_metadata.model import NO_ENTRY_ID

READS_IN_FLIGHT_MAX = 64
"""Reads of one client executed at once, over all its streams; the others wait in the streams."""
COPIES_OF_REPLY = 2
"""gRPC sends a copy, and lets the reply itself go no sooner than that."""
_LOGGER = logging.getLogger(__name__)

SendReply = Callable[[int, Sequence[Buffer], Room | None], Awaitable[None]]
"""Sends the reply, in parts, to the request with this number; its room, if it has one, is the client's from now on.
Returns when it is on its way."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Of one stream."""

    slots: asyncio.Semaphore
    """Reads that are executed at once, shared with the client's other streams."""
    places: Places
    """Reads that are taken from the stream; those beyond the slots wait."""
    is_gone: Callable[[], bool]
    """Whether nobody is there for a reply."""
    takes_parts: bool
    """Whether a reply is sent as it is; else each is one part, since to be sent it would be joined."""


class Reads:
    """Serves the reads of one stream."""

    def __init__(self, bookie: Bookie, client: str, limits: ReadLimits, send: SendReply) -> None:
        self._bookie = bookie
        self._client = client
        self._limits = limits
        self._send = send
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, data: bytes, number: int = 0) -> None:
        """Begin to serve a request, which its carrier gave a number; returns when the next one may come.

        Raises:
            MalformedFrameError: it is none.
        """
        try:
            request_id, request = codec.parse_read_request(data)
        except codec.BadRequestError as refused:
            self._bookie.measures.reads.add(0.0, Status.BAD_REQUEST.name)
            await self._send(number, (refused.reply,), None)
            return
        # Before there is a task: requests beyond the limit stay in
        # the carrier's buffers, not in memory of ours.
        give_back = await self._limits.places.take()
        task = asyncio.create_task(self._answer(number, request_id, request), name="read")
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_done, give_back))

    async def finish(self) -> None:
        """Wait until what was taken is answered: whoever ends the requests still waits for it."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """End what is left: nobody is there for its reply."""
        await end_tasks(self._tasks)

    def _on_done(self, give_back: Callable[[], None], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # Not in the task itself: one that is cancelled before it begins runs none of its code.
        give_back()
        has_failed(task)  # its client is gone, and its stream says so

    async def _answer(self, number: int, request_id: int, request: ReadRequest) -> None:
        # Not given back before the reply is out: a reader that is
        # slow to take replies has a limited part in memory.
        async with self._limits.slots:
            # Thousands may be left of a client that went without a word.
            if self._limits.is_gone():
                return
            with self._bookie.reads_in_progress.room(self._client) as room:
                parts = await self._read(request_id, request, room)
                takes_parts = self._limits.takes_parts
                room.resize(held_bytes(parts) if takes_parts else COPIES_OF_REPLY * len(parts[0]))
                await self._send(number, parts, room)

    async def _read(self, request_id: int, request: ReadRequest, room: Room) -> Sequence[Buffer]:
        """The bookie's reply; UNKNOWN, never silence, where a defect or the disk ends the read."""
        loop, measures = asyncio.get_running_loop(), self._bookie.measures
        started_s = loop.time()
        try:
            reply = await self._bookie.read(request, room)
            parts = codec.read_reply_parts(request_id, reply)
            parts = kept_light(parts) if self._limits.takes_parts else (b"".join(parts),)
            measures.reads.add(loop.time() - started_s, _refusal_of(reply))
            measures.read_bytes += sum(map(len, reply.chunks))
            return parts
        except Exception:
            measures.reads.add(loop.time() - started_s, Status.UNKNOWN.name)
            first, last = request.first_entry, request.last_entry
            place = request.ledger_id, first, last
            _LOGGER.exception("read failed. ledger_id=%d first_entry=%d last_entry=%d", *place)
            unknown = StoredReply((), (IdRange(first, last, Status.UNKNOWN),), NO_ENTRY_ID)
            return codec.read_reply_parts(request_id, unknown)


def _refusal_of(reply: StoredReply) -> str | None:
    """What a reader without an entry is told, by the first range of those that it does not get."""
    if reply.chunks or not reply.missing:
        return None
    return reply.missing[0].status.name
