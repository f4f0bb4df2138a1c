"""Outbox: replies on one connection, each whole, and no more of them in memory than there is room for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from bookie_server.carrier.connection import Connection
from bookie_server.memory.budget import Room
from bookie_server.wire.buffer import Buffer

_LOGGER = logging.getLogger(__name__)


class Outbox:
    """For use on one event loop; ``room_of`` makes room of a client, who is the connection's peer."""

    def __init__(self, connection: Connection, room_of: Callable[[str], Room]) -> None:
        self._connection = connection
        self._room_of = room_of
        self._writing = asyncio.Lock()

    async def send(self, parts: Sequence[Buffer]) -> None:
        """Send a reply; returns when the kernel has all of it.

        Raises:
            ConnectionEndedError: nobody is there any more.
        """
        # One at a time: what is not sent yet is bounded by the room that its makers hold.
        async with self._writing:
            # Lent though it is empty: a reply that is not taken keeps those behind it waiting, with their room.
            with self._room_of(self._connection.peer) as turn:
                turn.lend(self._disconnect)
                self._connection.write(parts)
                await self._connection.drain()

    def _disconnect(self) -> None:
        _LOGGER.warning(
            "disconnected: it keeps room that others wait for. peer=%s", self._connection.peer
        )
        self._connection.close()
