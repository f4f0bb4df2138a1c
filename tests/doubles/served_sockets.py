"""A bookie behind a plain socket, for clients that are raw sockets, and what such clients have left there."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.carrier.sockets import listen
from bookie_server.serving.service import BookieService
from bookie_server.serving.socket_service import SocketService
from bookie_server.wire import add_frames
from bookie_server.wire.envelope import Kind, Purpose
from bookie_server.wire.messages import BookieInfo, SectionReply, Status
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.raw_sockets import Message, RawPeer, connect_raw, hello
from tests.doubles.storage import running_bookie
from tests.doubles.waits import until

OWN = BookieInfo("b:1", "cluster-1")
SMALL_BUFFER_BYTES = 4_096
"""Of the kernel, so that a client which takes nothing is noticed soon."""
_TASKS = {"serve-connection", "write-replies", "answer", "read"}


@dataclass
class ServedSockets:
    """A bookie behind a port."""

    bookie: Bookie
    service: BookieService
    sockets: SocketService
    address: str
    peers: list[RawPeer] = field(default_factory=list)

    async def connect(self, *, takes_little: bool = False) -> RawPeer:
        """A connection that has said nothing."""
        peer = await connect_raw(self.address, SMALL_BUFFER_BYTES if takes_little else None)
        self.peers.append(peer)
        return peer

    async def open(self, purpose: Purpose, *, takes_little: bool = False) -> RawPeer:
        """A connection that has been welcomed."""
        peer = await self.connect(takes_little=takes_little)
        await peer.send(hello(purpose))
        assert (await peer.take()).kind is Kind.WELCOME
        return peer

    @property
    def malformed_count(self) -> int:
        return self.bookie.measures.malformed_count

    @property
    def ledgers(self) -> set[int]:
        return set(self.bookie.storage.contents.ledgers)

    @property
    def used_bytes(self) -> int:
        """Room that clients hold."""
        return room_held(self.service)

    async def until_nothing_is_left(self) -> None:
        """Every connection has ended, and holds nothing any more."""
        await until(lambda: not tasks_of_connections() and not self.used_bytes)


@asynccontextmanager
async def serving_sockets(
    place: Path, connections_max: int = 20, **settings: int
) -> AsyncIterator[ServedSockets]:
    """Serve a bookie at ``place``; the kernel keeps little of what clients do not take."""
    async with running_bookie(place, **settings) as bookie:
        service = BookieService(bookie, OWN, str(place))
        sockets = SocketService(service, connections_max=connections_max)
        with listen("127.0.0.1", 0) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
            accepting = asyncio.create_task(sockets.run(listener))
            host, port = listener.getsockname()
            served = ServedSockets(bookie, service, sockets, f"{host}:{port}")
            try:
                yield served
            finally:
                for peer in served.peers:
                    peer.close()
                await end_tasks([accepting])
                await sockets.stop()


def room_held(service: BookieService) -> int:
    """Bytes of room that the clients of a bookie hold."""
    memory, reads = service.memory, service.bookie.reads_in_progress
    return memory.budget.used_bytes + memory.promises.used_bytes + reads.used_bytes


def tasks_of_connections() -> list[str]:
    """What works for connections now."""
    return [name for task in asyncio.all_tasks() if (name := task.get_name()) in _TASKS]


def answers_of(messages: list[Message]) -> list[SectionReply]:
    """The sections that these messages answer."""
    replies = [each.body for each in messages if each.kind is Kind.WRITE_REPLY]
    return [answer for reply in replies for answer in add_frames.parse_write_reply(reply)]


def statuses_of(messages: list[Message]) -> list[Status]:
    """What the sections are answered with."""
    return [answer.status for answer in answers_of(messages)]


def complaints_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the event loop says of errors that nobody took, and the bookie of defects."""
    gc.collect()
    found = [record for record in caplog.records if record.levelno >= logging.ERROR]
    return [record.getMessage() for record in found]
