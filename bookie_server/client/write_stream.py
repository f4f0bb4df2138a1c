"""The stream of adds to one bookie: self-clocked frames out, answers in, resends after a break.

A frame leaves at once when nothing is unanswered; otherwise sections wait for company until they
make a frame worth its message, and never more than a few frames are unanswered. There is no timed
linger: a quiet stream has the lowest latency, a busy one the largest frames (docs/performance.md).

When the connection breaks, whatever was not answered goes out again, in order, on the next one:
a bookie stores an entry once, so sending it twice is harmless. A section fails (UNREACHABLE) when
its deadline passes, or when the bookie stays away longer than ``reconnect_timeout_ms``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from bookie_server.client.message_stream import MessageStream, OpenStream, StreamEndedError
from bookie_server.client.settings import PROMPT_S, ConnectionSettings
from bookie_server.wire import codec
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.limits import FRAME_SECTIONS_MAX
from bookie_server.wire.messages import EncodedSection, SectionReply, Status, run_id
from bookkeeper_metadata.foundation.tasks import end_tasks

_LOGGER = logging.getLogger(__name__)

_Key = tuple[int, int, int, bool]
_SWEEP_S = 0.05
"""How often deadlines are checked while anything is unanswered."""
_BUSY_S = 0.02
"""Pause after a bookie said that it has too much to do."""
_RETRY_S = 0.05
"""Pause between attempts to reach a bookie that refuses connections."""


@dataclass(slots=True)
class _Frame:
    """Sections sent in one message and not answered yet."""

    sent_s: float
    unanswered: int = 0


@dataclass(slots=True)
class _Pending:
    key: _Key
    section: EncodedSection
    done: Callable[[Status], None]
    deadline_s: float
    frame: _Frame | None = None


@dataclass(slots=True)
class _SameName:
    """What was sent under one name by this connection, and is not answered yet.

    A name is a ledger and the ids at both ends. A bookie that changes its place in a striped ledger gets another share of
    the same run, whose name may be the same, and no answer says which of them it is for.
    """

    to_come: int = 0
    """Answers, those included that nobody waits for any more."""
    waiting: list[_Pending] = field(default_factory=list)


class WriteStream:
    """One per bookie; all methods run on its event loop."""

    def __init__(
        self, open_stream: OpenStream, settings: ConnectionSettings, bookie_id: str = ""
    ) -> None:
        self._open_stream = open_stream
        self._settings = settings
        self._limits = settings.frame_limits
        self._bookie_id = bookie_id
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[_Pending] = deque()
        self._unsent_bytes = 0
        self._unanswered: dict[_Key, _SameName] = {}
        self._frames_in_flight = 0
        self._is_prompt = False
        """Whether the frame that was answered last was answered soon."""
        self._wake = asyncio.Event()
        self._stream: MessageStream | None = None
        """The open one."""
        self._is_pumping = False
        self._busy_until_s = 0.0
        self._lost_since_s: float | None = None
        self._runner: asyncio.Task[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        """See :meth:`bookie_server.client.interface.BookieClient.write`."""
        if self._is_closed:
            # Later, as promised: a caller may still be in the middle of its own sends.
            self._loop.call_soon(done, Status.UNREACHABLE)
            return
        # A connection that broke while nothing waited says nothing of whether the bookie is away now.
        if not self._is_waited_for:
            self._lost_since_s = None
        deadline_s = self._loop.time() + self._settings.add_timeout_ms / 1000
        key = (section.ledger_id, section.first_entry, section.last_entry, section.is_recovery)
        self._unsent.append(_Pending(key, section, done, deadline_s))
        self._unsent_bytes += len(section)
        self._wake.set()
        self._pump_soon()
        if self._runner is None or self._runner.done():
            self._runner = self._loop.create_task(self._run(), name="bookie-write-stream")
        self._sweep_soon()

    async def close(self) -> None:
        """Every section still waiting is answered UNREACHABLE."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._runner is not None:
            await end_tasks([self._runner])
        self._fail(lambda pending: True)

    # -- connection ---------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_closed:
            while not self._unsent:
                self._wake.clear()
                await self._wake.wait()
            try:
                await self._converse()
            except (StreamEndedError, codec.MalformedFrameError) as error:
                # The bookie may or may not have stored what it did not answer: send it again.
                if isinstance(error, StreamEndedError) and error.is_for_room:
                    self._lost_since_s = None
                # From the first break on: attempts that fail in between must not start the time anew.
                elif self._lost_since_s is None:
                    self._lost_since_s = self._loop.time()
            self._resend_unanswered()
            await asyncio.sleep(_RETRY_S)

    async def _converse(self) -> None:
        self._stream = stream = await self._open_stream()
        try:
            self._pump()
            while True:
                self._take_replies(await stream.receive(self._take_at_once))
        finally:
            # Before the resends are queued: they are not for a stream that has ended.
            self._stream = None
            stream.close()

    def _take_at_once(self, data: Buffer) -> bool:
        try:
            self._take_replies(data)
        except codec.MalformedFrameError:
            return False  # and so it ends the stream
        return True

    def _take_replies(self, data: Buffer) -> None:
        assert self._stream is not None  # whose messages these are
        replies = self._stream.parse_replies(data)
        # Only an answer shows that the bookie is there: a connection alone proves nothing.
        self._lost_since_s = None
        for reply in replies:
            self._answer(reply)
        self._pump()

    def _pump_soon(self) -> None:
        """Send once those who write at this moment have done so: they share a frame."""
        if self._stream is not None and not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        while self._stream is not None and self._may_send(self._stream):
            self._stream.send(self._next_frame(self._stream.entries_max))

    def _may_send(self, stream: MessageStream) -> bool:
        # Frames that have expired are not in flight any more, but may be on their way still: behind a bookie or
        # a network that is slower than its writers they would pile up.
        if not self._unsent or stream.unsent_bytes >= self._settings.frame_size_bytes_max:
            return False
        if self._loop.time() < self._busy_until_s or stream.entries_max == 0:
            return False
        return self._frames_in_flight < self._limits.in_flight_at_most(
            self._unsent_bytes, len(self._unsent[0].section), is_prompt=self._is_prompt
        )

    def _next_frame(self, entries_max: int | None) -> list[EncodedSection]:
        frame, size, entries = _Frame(self._loop.time()), 0, 0
        sections: list[EncodedSection] = []
        while self._unsent and len(sections) < FRAME_SECTIONS_MAX:
            pending = self._unsent[0]
            section = pending.section
            size += len(section)
            entries += section.last_entry - section.first_entry + 1
            is_too_large = size > self._settings.frame_size_bytes_max or (
                entries_max is not None and entries > entries_max
            )
            if sections and is_too_large:
                break
            self._unsent.popleft()
            self._unsent_bytes -= len(section)
            pending.frame = frame
            # Noted before it is written: the answer may be faster than the write's return,
            # and what a broken write may have carried is found here.
            same = self._unanswered.setdefault(pending.key, _SameName())
            same.to_come += 1
            same.waiting.append(pending)
            sections.append(section)
        frame.unanswered = len(sections)
        self._frames_in_flight += 1
        return sections

    def _resend_unanswered(self) -> None:
        again = [pending for same in self._unanswered.values() for pending in same.waiting]
        self._unanswered.clear()
        self._frames_in_flight = 0
        self._is_prompt = False
        for pending in again:
            # Its frame ended with the connection: a deadline that
            # passes must not count it down again.
            pending.frame = None
        self._unsent_bytes += sum(len(pending.section) for pending in again)
        self._unsent.extendleft(reversed(again))

    @property
    def _is_waited_for(self) -> bool:
        """Whether anything that was written is not settled."""
        return bool(self._unsent) or any(same.waiting for same in self._unanswered.values())

    # -- answers and deadlines ------------------------------------------------------------------

    def _answer(self, reply: SectionReply) -> None:
        key = (reply.ledger_id, reply.first_entry, reply.last_entry, reply.is_recovery)
        same = self._unanswered.get(key)
        if same is None:
            return  # answered twice
        same.to_come -= 1
        if not same.to_come:
            del self._unanswered[key]
        elif reply.status is Status.OK:
            return  # each is granted once all of them are, and refused with any
        waiting, same.waiting = same.waiting, []
        for pending in waiting:
            if reply.status is Status.BUSY:
                self._ask_again(pending)
            else:
                self._complete(pending, reply.status)

    def _ask_again(self, pending: _Pending) -> None:
        """The bookie has more to do than it takes: let it do some of that, until the add's deadline."""
        self._let_go_of_frame(pending)
        self._is_prompt = False
        self._unsent.appendleft(pending)
        self._unsent_bytes += len(pending.section)
        self._busy_until_s = self._loop.time() + _BUSY_S
        self._loop.call_later(_BUSY_S, self._pump_soon)

    def _let_go_of_frame(self, pending: _Pending) -> None:
        frame, pending.frame = pending.frame, None
        if frame is not None:
            frame.unanswered -= 1
            if frame.unanswered == 0:
                self._frames_in_flight -= 1
                self._is_prompt = self._loop.time() - frame.sent_s <= PROMPT_S

    def _complete(self, pending: _Pending, status: Status) -> None:
        self._let_go_of_frame(pending)
        if _LOGGER.isEnabledFor(logging.DEBUG):
            run = run_id(*pending.key[:3])
            _LOGGER.debug(
                "add ended. run=%s bookie_id=%s status=%s", run, self._bookie_id, status.name
            )
        pending.done(status)

    def _sweep(self) -> None:
        self._sweeper = None
        now_s = self._loop.time()
        is_gone = (
            self._lost_since_s is not None
            and now_s - self._lost_since_s >= self._settings.reconnect_timeout_ms / 1000
        )
        self._fail(lambda pending: is_gone or pending.deadline_s <= now_s)
        if self._is_waited_for:
            self._sweep_soon()

    def _sweep_soon(self) -> None:
        # A section that was given up may have been followed by another, which has begun the sweeps.
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def _fail(self, is_due: Callable[[_Pending], bool]) -> None:
        due: list[_Pending] = []
        for same in self._unanswered.values():
            # Their answers are still to come, and are not for those that are sent under the same name meanwhile.
            due += filter(is_due, same.waiting)
            same.waiting = [pending for pending in same.waiting if not is_due(pending)]
        due += filter(is_due, self._unsent)
        self._unsent = deque(pending for pending in self._unsent if not is_due(pending))
        self._unsent_bytes = sum(len(pending.section) for pending in self._unsent)
        # Last: ``done`` may write the next section, which changes the queues.
        for pending in due:
            self._complete(pending, Status.UNREACHABLE)
        # Frames that came to nothing have made room for what waits behind them.
        self._pump_soon()
