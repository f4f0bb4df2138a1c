"""Requests to one bookie over a connection of their own: out as they come, replies in any order."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bookie_server.carrier.connection import Connection
from bookie_server.wire.codec import MalformedFrameError
from bookkeeper_metadata.foundation.tasks import end_tasks, settle

Q = TypeVar("Q")
R = TypeVar("R")


class RequestStream(ABC, Generic[Q, R]):
    """One per bookie; all methods run on its event loop. How requests and replies are written its kinds say."""

    def __init__(self, open_connection: Callable[[], Awaitable[Connection]]) -> None:
        """``open_connection`` raises ``ConnectionError`` where nobody answers."""
        self._open_connection = open_connection
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._asked: dict[int, Asked[Q, R]] = {}
        self._connection: Connection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._opened = 0

    @property
    def connection_number(self) -> int:
        """Of the connection by which a request goes that is sent now; another once that has ended."""
        return self._opened + (self._connection is None)

    async def ask(self, request: Q, timeout_s: float) -> R | None:
        """The reply to a request; ``None`` if there is none in time."""
        self._number += 1
        number = self._number
        asked: Asked[Q, R] = Asked(request, self._loop.create_future())
        self._asked[number] = asked
        if self._connection is not None:
            self._send(self._connection, number, request)
        elif self._runner is None or self._runner.done():
            self._runner = self._loop.create_task(self._run(), name="bookie-requests")
        timer = self._loop.call_later(timeout_s, settle, asked.reply, None)
        try:
            return await asked.reply
        finally:
            timer.cancel()
            del self._asked[number]
            has_reply = asked.reply.done() and not asked.reply.cancelled() and asked.reply.result()
            if self._connection is not None and not has_reply:
                self._give_up(self._connection, number)

    async def close(self) -> None:
        """Requests still waiting come to nothing."""
        if self._runner is not None:
            await end_tasks([self._runner])
        self._abandon()

    @abstractmethod
    def _send(self, connection: Connection, number: int, request: Q) -> None:
        """Send a request."""

    def _give_up(self, connection: Connection, number: int) -> None:
        """Tell the bookie that nobody waits any longer, if there is a way to: it need not work for it."""

    @abstractmethod
    async def _receive(self, connection: Connection) -> bool:
        """Receive a reply and answer whoever waits for it; false: there will be no more.

        Raises:
            ConnectionError, MalformedFrameError: nor will there.
        """

    def _answer(self, number: int, reply: R | None) -> None:
        """Answer a request, whose caller may have given up meanwhile."""
        if (asked := self._asked.get(number)) is not None:
            settle(asked.reply, reply)

    async def _run(self) -> None:
        """Serve requests over one connection until it ends; the next request opens another."""
        connection: Connection | None = None
        try:
            connection = await self._open_connection()
            for number, asked in self._asked.items():
                self._send(connection, number, asked.request)
            self._connection = connection
            self._opened += 1
            while await self._receive(connection):
                pass
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
class Asked(Generic[Q, R]):
    """A request that waits for its reply."""

    request: Q
    reply: asyncio.Future[R | None]
