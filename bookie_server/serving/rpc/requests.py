"""One connection's requests that are no adds: answered as they come to be, each by one of the bookie's answers.

Source of what is answered when: Apache's processors, as far as 4.18.0 was seen to answer (tests/golden/apache).
Stricter: absence is told only where it is proven, so what this bookie cannot know is EIO, behind a fence and
to READ_LAC as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from bookie_server.carrier.connection import Connection
from bookie_server.memory.budget import Room
from bookie_server.serving.outbox import Outbox
from bookie_server.serving.refusal import RefusedError
from bookie_server.serving.rpc.answering import Answered, Answering, refusal_of
from bookie_server.serving.service import BookieService
from bookie_server.wire.buffer import Buffer, held_bytes, kept_light
from bookie_server.wire.messages import Method
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.incoming import Asked
from bookie_server.wire.rpc.statuses import RpcStatus, meaning_of
from bookkeeper_metadata.foundation.measures import Operation
from bookkeeper_metadata.foundation.tasks import end_tasks, has_failed
from bookkeeper_metadata.model import NO_ENTRY_ID

REQUESTS_IN_FLIGHT_MAX = 1_000
"""Requests of one connection that are served at once, long polls aside; others wait in the kernel's buffers."""
POLLS_MAX = 1_000
"""Long polls of one connection; further ones are answered at once. They wait for others' adds, and so none of them may
keep an add of its own connection waiting."""
_LOGGER = logging.getLogger(__name__)


class RpcRequests:
    """For use on one event loop."""

    def __init__(self, service: BookieService, connection: Connection) -> None:
        self._service = service
        self._connection = connection
        self._peer, self._common_name = connection.peer, connection.common_name
        self._answering = Answering(service)
        self._outbox = Outbox(connection, service.room_for_reply)
        self._places = service.places(REQUESTS_IN_FLIGHT_MAX)
        self._places_of_polls = service.places_of_polls(POLLS_MAX)
        self._slots = service.slots_of_reads(self._peer)
        self._measures = service.bookie.measures
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._polls: set[asyncio.Task[None]] = set()

    async def answer(self, asked: Asked) -> None:
        """Begin to answer a request; returns when the next one may come."""
        request = asked.request
        if isinstance(request, messages.ReadEntry) and request.is_long_poll:
            if give_back := await self._places_of_polls.take_free():
                poll = self._begin(asked, give_back)
                self._polls.add(poll)
                poll.add_done_callback(self._polls.discard)
                return
            asked = replace(asked, refusal=RpcStatus.ETOOMANYREQUESTS)
        self._begin(asked, await self._places.take())

    async def finish(self) -> None:
        """Wait until what was asked is answered: whoever says no more may still wait for it, but for no news."""
        for poll in self._polls:
            poll.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """End what is left: nobody is there for its answer."""
        await end_tasks(self._tasks)

    def _begin(self, asked: Asked, give_back: Callable[[], None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._answer(asked), name="answer")
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_done, give_back))
        return task

    def _on_done(self, give_back: Callable[[], None], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        give_back()
        has_failed(task)  # the connection has ended, and says so

    async def _answer(self, asked: Asked) -> None:
        is_read = self._operation(asked.request) is self._measures.reads
        # Not given back before the reply is out: a reader that is
        # slow to take replies has a limited part in memory.
        async with self._slots if is_read else nullcontext():
            # Thousands may be left of a client that went without a word.
            if self._connection.has_ended:
                return
            with self._service.room_for_reply(self._peer) as room:
                parts = await self._parts(asked, room)
                room.resize(held_bytes(parts))
                await self._outbox.send(parts)

    async def _parts(self, asked: Asked, room: Room) -> Sequence[Buffer]:
        """The reply as it is sent: while it is, nothing else keeps what it was made of."""
        operation = self._operation(asked.request)
        started_s = self._loop.time()
        status, reply = await self._reply(asked, room)
        if operation is not None:
            refusal = None if status is RpcStatus.EOK else meaning_of(status).name
            operation.add(self._loop.time() - started_s, refusal)
        if isinstance(reply, messages.ReadReply | messages.BatchReply):
            self._measures.read_bytes += len(reply.body or b"")
        return kept_light(_encode(asked, status, reply))

    async def _reply(self, asked: Asked, room: Room) -> Answered:
        request = asked.request
        if asked.refusal is not None or request is None:
            return asked.refusal or RpcStatus.EBADREQ, refusal_of(request)
        try:
            if isinstance(request, messages.ListEntries):
                self._service.authorize(self._peer, self._common_name, Method.LIST_ENTRIES)
            return await self._answering.answer(request, room)
        except RefusedError:
            return RpcStatus.EUA, refusal_of(request)
        except Exception:
            # A defect ends the request it comes from, and no other.
            _LOGGER.exception("request failed. request=%s", type(request).__name__)
            return RpcStatus.EIO, refusal_of(request)

    def _operation(self, request: messages.Request | None) -> Operation | None:
        """What counts it; a long poll waits for others, which is no work of the disk's, and is not counted."""
        match request:
            case messages.ReadEntry(entry_id=entry_id):
                if request.is_long_poll:
                    return None
                is_last = entry_id == NO_ENTRY_ID
                return self._measures.lac_reads if is_last else self._measures.reads
            case messages.BatchRead():
                return self._measures.reads
            case messages.ReadLac():
                return self._measures.lac_reads
            case _:
                return None


def _encode(asked: Asked, status: RpcStatus, reply: messages.Reply | None) -> tuple[Buffer, ...]:
    """The answer in the version of the request."""
    if isinstance(asked, v3.Numbered):
        return v3.encode_answer(v3.Answer(asked.head, status, reply))
    assert isinstance(reply, v2.Reply)
    return v2.encode_answer(v2.Answer(status, reply, asked.version))
