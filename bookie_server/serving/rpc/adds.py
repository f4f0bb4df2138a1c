"""A connection of Apache's protocol: adds are taken as a stream of ours has them, all else is handed on.

One memory serves all connections to receive in: what came is cut into requests before any other connection
gets its turn, and the entries of adds are copied out of it. A frame that is larger than that memory gets its
own, once there is room for it.

Requests are dealt with in the order in which they came: a read behind an add finds it on its way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from bookie_server.carrier.connection import Connection
from bookie_server.memory.frames import FramesInProgress
from bookie_server.serving.connection_carrier import ConnectionCarrier
from bookie_server.wire.messages import Section, SectionReply
from bookie_server.wire.rpc.answers import encode_add_replies
from bookie_server.wire.rpc.frames import LENGTH_SIZE, parse_length
from bookie_server.wire.rpc.incoming import Asked, Incoming, RpcSection

RECEIVED_SIZE_MAX = 64 * 1024
"""Bytes received at once, for all connections together."""


@dataclass(frozen=True, slots=True)
class Adds:
    """Sections that came together; what they take of memory is their length."""

    sections: Sequence[RpcSection]

    def __len__(self) -> int:
        return sum(section.run.size_bytes for section in self.sections)


class RpcConnection(ConnectionCarrier[Adds]):
    """For use on one event loop; ``answer`` begins to answer a request that is no add."""

    def __init__(
        self,
        connection: Connection,
        scratch: memoryview,
        answer: Callable[[Asked], Awaitable[None]],
        begun: bytes = b"",
    ) -> None:
        """``begun`` is what came already."""
        super().__init__(connection)
        self._scratch = scratch
        self._answer = answer
        self._incoming = Incoming()
        self._ahead: deque[RpcSection | Asked] = deque()
        """What came and was not dealt with yet."""
        self._rest = begun
        """What came and was not cut yet; mostly the beginning of a frame."""

    async def next(
        self, in_progress: FramesInProgress, take_at_once: Callable[[Adds], bool]
    ) -> Adds | None:
        while True:
            while self._ahead:
                first = self._ahead[0]
                if not isinstance(first, RpcSection):
                    if self._connection.has_ended:
                        return None
                    self._ahead.popleft()
                    await self._answer(first)
                    continue
                adds = self._adds_ahead()
                if not (in_progress.has_cache_room and take_at_once(adds)):
                    await in_progress.wait_for_cache()
                    return adds
            if self._rest and self._cut(memoryview(self._rest)):
                await asyncio.sleep(0)
                continue
            self._incoming.check()
            if not await self._receive(in_progress):
                return None

    def sections_of(self, frame: Adds) -> Iterator[Section]:
        return iter(frame.sections)

    def parts_of(self, section: Section) -> Sequence[Section]:
        return section.parts() if isinstance(section, RpcSection) and len(section.run) > 1 else ()

    def encode(self, replies: Sequence[SectionReply]) -> bytes:
        return encode_add_replies(replies)

    def _send(self, answers: bytes) -> None:
        self._connection.write((answers,))

    def _adds_ahead(self) -> Adds:
        """The sections in front of the next request that is no add."""
        sections: list[RpcSection] = []
        while self._ahead and isinstance(first := self._ahead[0], RpcSection):
            sections.append(first)
            self._ahead.popleft()
        return Adds(sections)

    async def _receive(self, in_progress: FramesInProgress) -> bool:
        """Receive something; false: the client has ended the connection."""
        rest = self._rest
        if len(rest) >= LENGTH_SIZE:
            size = LENGTH_SIZE + parse_length(rest)
            if size > len(self._scratch):
                await self._receive_large(size, in_progress)
                return True
        count = await self._connection.receive_some(self._scratch[len(rest) :])
        if not count:
            return False
        self._scratch[: len(rest)] = rest
        self._cut(self._scratch[: len(rest) + count])
        return True

    def _cut(self, received: memoryview) -> bool:
        """Cut what has come, and keep the rest; whether a request was in it."""
        found, size = self._incoming.cut(received)
        self._rest = bytes(received[size:])
        self._ahead += found
        return bool(found)

    async def _receive_large(self, size: int, in_progress: FramesInProgress) -> None:
        """Receive the rest of a frame into memory of its own."""
        self._cut(await self._receive_promised(in_progress, size, self._rest))
        if not (self._ahead and isinstance(self._ahead[-1], RpcSection)):
            in_progress.close()
