"""A stream of adds to one of Apache's bookies: a frame for each entry, and an answer for each.

Apache's bookies refuse what is added when 10,000 adds wait in one of their threads; fewer are kept on their way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.client.message_stream import MessageStream, StreamEndedError
from bookie_server.client.rpc.answering import SectionsOfV2, SectionsOfV3, SentSection
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.messages import EncodedSection, SectionReply
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.answer_runs import Answers, answers_at
from bookie_server.wire.rpc.frames import LENGTH_SIZE, frame_at, is_of_v2
from bookie_server.wire.rpc.sections import Portion, adds_of, encode_adds

ENTRIES_IN_FLIGHT_MAX = 5_000
"""Of one stream: half of what makes Apache's bookies refuse some."""
_RECEIVED_SIZE_MAX = 64 * 1024


class RpcAdds(MessageStream):
    """Over a connection of its own; in one version of the protocol."""

    def __init__(self, connection: Connection, version: int, silence_s: float) -> None:
        """A bookie that answers none of what it was sent for ``silence_s``, or leaves something unanswered for twice as
        long, is given up with the connection: it may have dropped answers, and others would wait behind them for ever."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s
        self._heard_s = 0.0
        """When the last answer came, or what is unanswered began to be sent."""
        self._queued: deque[Portion] = deque()
        self._version = version
        self._sections = SectionsOfV3() if version == v3.VERSION else SectionsOfV2()
        self._in_flight = 0
        self._sent_s: dict[SentSection, float] = {}
        """When each section was sent that is not answered, the oldest first."""
        self._received = new_body(_RECEIVED_SIZE_MAX)
        self._rest = b""

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    @property
    def entries_max(self) -> int:
        return 0 if self._queued else max(0, ENTRIES_IN_FLIGHT_MAX - self._in_flight)

    def send(self, sections: Sequence[EncodedSection]) -> None:
        for section in sections:
            adds = adds_of(section, self._version)
            if not self._sections.are_free(adds):
                # It was given up, and is on its way still.
                adds = encode_adds(section, self._version)
            sent = SentSection(section, adds)
            self._sections.expect(sent, adds)
            self._sent_s[sent] = self._loop.time()
            self._queued += adds.portions
        self._pump()

    def _pump(self) -> None:
        parts: list[Buffer] = []
        while self._queued:
            portion = self._queued[0]
            if self._in_flight and self._in_flight + portion.entries > ENTRIES_IN_FLIGHT_MAX:
                break
            self._queued.popleft()
            if not self._in_flight:
                self._heard_s = self._loop.time()
            self._in_flight += portion.entries
            parts += portion.parts
        if parts:
            # Together: each call of the kernel's costs as much as a few small adds.
            self._connection.write(parts)

    async def receive(self, take_at_once: Callable[[Buffer], bool]) -> Buffer:
        untaken: list[Buffer] = []

        def take(count: int) -> bool:
            if self._has_dropped_answers():
                return False
            message = self._rest + self._received[:count]
            if take_at_once(message):
                return True
            untaken.append(message)
            return False

        try:
            is_there = await self._receive_each(take)
        except ConnectionEndedError as error:
            raise StreamEndedError(str(error)) from error
        if not is_there:
            raise StreamEndedError("the bookie ended the connection")
        if not untaken:
            raise StreamEndedError("some adds are never answered")
        return untaken[0]

    async def _receive_each(self, take: Callable[[int], bool]) -> bool:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._silence_s):
                    return await self._connection.receive_each(self._received, take)
            if self._in_flight and self._loop.time() - self._heard_s >= self._silence_s:
                raise StreamEndedError("nothing is answered any more")

    def _has_dropped_answers(self) -> bool:
        oldest_s = next(iter(self._sent_s.values()), None)
        return oldest_s is not None and self._loop.time() - oldest_s >= 2 * self._silence_s

    def parse_replies(self, message: Buffer) -> list[SectionReply]:
        view, at = memoryview(message), 0
        done: list[SectionReply] = []
        while (answers := answers_at(view, at) or _parsed_answer_at(view, at)) is not None:
            at = answers.end
            self._in_flight -= answers.entries
            for sent in self._sections.take(answers):
                del self._sent_s[sent]
                done.append(sent.reply())
        self._rest = bytes(view[at:])
        self._heard_s = self._loop.time()
        self._pump()
        return done

    def close(self) -> None:
        self._connection.close()


def _parsed_answer_at(received: memoryview, at: int) -> Answers | None:
    """The answer whose frame starts at ``at``; ``None``: not all of it is there.

    Raises:
        MalformedFrameError: what is there is none to an add.
    """
    frame = frame_at(received, at)
    if frame is None:
        return None
    answer: v2.Answer | v3.Answer
    answer = v2.parse_answer(frame) if is_of_v2(frame) else v3.parse_answer(frame)
    reply = answer.reply
    if not isinstance(reply, messages.AddReply):
        raise MalformedFrameError(f"a {type(reply).__name__} among answers to adds")
    end = at + LENGTH_SIZE + len(frame)
    if isinstance(answer, v2.Answer):
        return Answers(reply.ledger_id, reply.entry_id, 1, answer.status, end)
    return Answers(None, answer.head.number, 1, answer.status, end)
