"""Requests to one bookie over a connection of their own: out as they come, replies in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bookie_server.carrier.connection import Connection
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.envelope import REPLY_KINDS, Kind
from bookkeeper_metadata.foundation.tasks import end_tasks, settle


class RequestStream:
    """One per bookie; all methods run on its event loop."""

    def __init__(self, open_connection: Callable[[], Awaitable[Connection]]) -> None:
        """``open_connection`` raises ``ConnectionError`` where nobody answers."""
        self._open_connection = open_connection
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._asked: dict[int, _Asked] = {}
        self._connection: Connection | None = None
        self._runner: asyncio.Task[None] | None = None

    async def ask(self, kind: Kind, request: bytes, timeout_s: float) -> memoryview | None:
        """The reply to a request; ``None`` if there is none in time."""
        self._number += 1
        number, asked = self._number, _Asked(kind, request, self._loop.create_future())
        self._asked[number] = asked
        if self._connection is not None:
            self._connection.send(kind, (request,), number)
        elif self._runner is None or self._runner.done():
            self._runner = self._loop.create_task(self._run(), name="bookie-requests")
        timer = self._loop.call_later(timeout_s, settle, asked.reply, None)
        try:
            return await asked.reply
        finally:
            timer.cancel()
            del self._asked[number]
            has_reply = asked.reply.done() and not asked.reply.cancelled() and asked.reply.result()
            # Nobody waits any longer: the bookie need not work for it.
            if self._connection is not None and not has_reply:
                self._connection.send(Kind.GIVE_UP, (), number)

    async def close(self) -> None:
        """Requests still waiting come to nothing."""
        if self._runner is not None:
            await end_tasks([self._runner])
        self._abandon()

    async def _run(self) -> None:
        """Serve requests over one connection until it ends; the next request opens another."""
        connection: Connection | None = None
        try:
            connection = await self._open_connection()
            for number, asked in self._asked.items():
                connection.send(asked.kind, (asked.request,), number)
            self._connection = connection
            while (head := await connection.receive_head()) is not None:
                body = await connection.receive_body(head.size_bytes)
                if head.kind is Kind.FAREWELL:
                    break
                # Its caller may have given up meanwhile.
                asked_for = self._asked.get(head.number)
                if asked_for is None:
                    continue
                if head.kind is REPLY_KINDS[asked_for.kind]:
                    settle(asked_for.reply, body)
                elif head.kind is Kind.NOTHING:
                    settle(asked_for.reply, None)
                else:
                    break
        except (ConnectionError, MalformedFrameError):
            pass  # every request comes to nothing, below
        finally:
            self._connection = None
            if connection is not None:
                connection.close()
            self._abandon()

    def _abandon(self) -> None:
        for asked in self._asked.values():
            settle(asked.reply, None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that waits for its reply."""

    kind: Kind
    request: bytes
    reply: asyncio.Future[memoryview | None]
