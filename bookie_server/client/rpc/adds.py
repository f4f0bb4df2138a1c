"""A stream of adds to one of Apache's bookies: a frame for each entry, and an answer for each.

An answer of version 2 says ledger and entry, and nothing of which request it is for. So of two sections that hold the same
entry, as one that was given up and sent again, each is answered once all of its entries have been answered once for
itself, the earlier one first; and what is refused counts as refused to both.

Apache's bookies refuse what is added when 10,000 adds wait in one of their threads; fewer are kept on their way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.client.message_stream import MessageStream, StreamEndedError
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.messages import EncodedSection, SectionReply, Status
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.frames import LENGTH_SIZE, frame_at, is_of_v2
from bookie_server.wire.rpc.quick import QuickAnswer, answer_at
from bookie_server.wire.rpc.sections import EncodedAdds, Portion, adds_of, encode_adds
from bookie_server.wire.rpc.statuses import RpcStatus, meaning_of

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
        self._answers = _AnswersOfV3() if version == v3.VERSION else _AnswersOfV2()
        self._in_flight = 0
        self._sent_s: dict[_Sent, float] = {}
        """When each section was sent that is not answered, the oldest first."""
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
            if not self._answers.are_free(adds.numbers):
                adds = encode_adds(
                    section, self._version
                )  # it was given up, and is on its way still
            sent = _Sent(section, adds)
            self._answers.expect(sent, adds)
            self._sent_s[sent] = self._loop.time()
            self._queued += adds.portions
        self._pump()

    def _pump(self) -> None:
        while self._queued:
            count, parts = self._queued[0]
            if self._in_flight and self._in_flight + count > ENTRIES_IN_FLIGHT_MAX:
                return
            self._queued.popleft()
            if not self._in_flight:
                self._heard_s = self._loop.time()
            self._in_flight += count
            self._connection.write(parts)

    async def receive(self, take_at_once: Callable[[Buffer], bool]) -> Buffer:
        received = new_body(_RECEIVED_SIZE_MAX)
        if self._has_dropped_answers():
            raise StreamEndedError("some adds are never answered")
        try:
            count = await self._receive_some(received)
        except ConnectionEndedError as error:
            raise StreamEndedError(str(error)) from error
        if not count:
            raise StreamEndedError("the bookie ended the connection")
        return self._rest + received[:count]

    async def _receive_some(self, received: memoryview) -> int:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._silence_s):
                    return await self._connection.receive_some(received)
            if self._in_flight and self._loop.time() - self._heard_s >= self._silence_s:
                raise StreamEndedError("nothing is answered any more")

    def _has_dropped_answers(self) -> bool:
        oldest_s = next(iter(self._sent_s.values()), None)
        return oldest_s is not None and self._loop.time() - oldest_s >= 2 * self._silence_s

    def parse_replies(self, message: Buffer) -> list[SectionReply]:
        view, at = memoryview(message), 0
        done: list[SectionReply] = []
        while (answer := answer_at(view, at) or _parsed_answer_at(view, at)) is not None:
            at = answer.end
            sent = self._answers.match(answer)
            self._in_flight -= 1
            if sent.take(answer.status):
                del self._sent_s[sent]
                done.append(sent.reply())
        self._rest = bytes(view[at:])
        self._heard_s = self._loop.time()
        self._pump()
        return done

    def close(self) -> None:
        self._connection.close()


class _Sent:
    """A section that is being answered, entry by entry."""

    __slots__ = ("_status", "missing", "section", "unanswered")

    def __init__(self, section: EncodedSection, adds: EncodedAdds) -> None:
        self.section = section
        self._status = RpcStatus.EOK
        self.missing = len(adds.entry_ids)
        self.unanswered: set[int] = set()
        """Entries; of version 2."""

    def take(self, status: RpcStatus) -> bool:
        """One more entry is answered; whether it was the last."""
        self.missing -= 1
        if status is not RpcStatus.EOK:
            self.refuse(status)
        return not self.missing

    def refuse(self, status: RpcStatus) -> None:
        """An entry is refused, or may be."""
        # What is to be sent again comes last: any other refusal is for good.
        if self._status in (RpcStatus.EOK, RpcStatus.ETOOMANYREQUESTS):
            self._status = status

    def reply(self) -> SectionReply:
        section = self.section
        ids = section.ledger_id, section.first_entry, section.last_entry
        return SectionReply(*ids, section.is_recovery, meaning_of_add(self._status))


def meaning_of_add(status: RpcStatus) -> Status:
    """What a bookie's answer to an add means; one that denies what it was sent has not understood."""
    meaning = meaning_of(status)
    return Status.UNKNOWN if meaning.is_evidence_of_absence else meaning


class _AnswersOfV2:
    """Of one connection."""

    def __init__(self) -> None:
        self._sent: dict[int, list[_Sent]] = {}
        """By ledger, in the order in which they were sent."""

    def are_free(self, numbers: range) -> bool:
        """They always are: there are none."""
        return True

    def expect(self, sent: _Sent, adds: EncodedAdds) -> None:
        """Answers to these adds will come."""
        sent.unanswered = set(adds.entry_ids)
        self._sent.setdefault(sent.section.ledger_id, []).append(sent)

    def match(self, answer: QuickAnswer) -> _Sent:
        """Whose answer it is."""
        same = self._sent.get(answer.ledger_id, [])
        asked = [sent for sent in same if answer.entry_id in sent.unanswered]
        if not asked:
            raise MalformedFrameError(
                f"an answer to what was not asked. entry_id={answer.entry_id}"
            )
        if answer.status is not RpcStatus.EOK:
            # Refusals overtake grants, so it may be meant for any of them.
            for sent in asked[1:]:
                sent.refuse(answer.status)
        first = asked[0]
        first.unanswered.discard(answer.entry_id)
        if not first.unanswered:
            same.remove(first)
            if not same:
                del self._sent[answer.ledger_id]
        return first


class _AnswersOfV3:
    """Of one connection."""

    def __init__(self) -> None:
        self._sent: dict[int, _Sent] = {}
        """By number."""

    def are_free(self, numbers: range) -> bool:
        """Whether no answers with these numbers are to come."""
        return not any(number in self._sent for number in numbers)

    def expect(self, sent: _Sent, adds: EncodedAdds) -> None:
        """Answers to these adds will come."""
        self._sent.update(dict.fromkeys(adds.numbers, sent))

    def match(self, answer: QuickAnswer) -> _Sent:
        """Whose answer it is."""
        sent = self._sent.pop(answer.number, None)
        if sent is None:
            raise MalformedFrameError(f"an answer to what was not asked. number={answer.number}")
        return sent


def _parsed_answer_at(received: memoryview, at: int) -> QuickAnswer | None:
    """The answer whose frame starts at ``at``; ``None``: not all of it is there.

    Raises:
        MalformedFrameError: what is there is none to an add.
    """
    frame = frame_at(received, at)
    if frame is None:
        return None
    number, ids = 0, (-1, -1)
    if is_of_v2(frame):
        answer: v2.Answer | v3.Answer = v2.parse_answer(frame)
        reply = answer.reply
        if isinstance(reply, messages.AddReply):
            ids = reply.ledger_id, reply.entry_id
    else:
        answer = v3.parse_answer(frame)
        reply, number = answer.reply, answer.head.number
    if not isinstance(reply, messages.AddReply):
        raise MalformedFrameError(f"a {type(reply).__name__} among answers to adds")
    return QuickAnswer(*ids, number, answer.status, at + LENGTH_SIZE + len(frame))
