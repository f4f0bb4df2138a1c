"""One client's stream of adds: frames in, answers out, whatever carries them.

A frame that does not parse ends the stream; everything else is answered with a status per section,
BAD_REQUEST where it breaks a limit. One message carries whatever became answerable since the last
one, so a journal group costs one message per stream.

Room for a frame is taken before it is read: not to read on is the back pressure, since the carrier's
flow control then stops the client. See :mod:`bookie_server.memory.budget`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial
from itertools import accumulate, islice, takewhile
from typing import Generic, TypeVar

from bookie_server.bookie import Bookie
from bookie_server.core.effects import ReplyTo
from bookie_server.memory.frames import SECTION_OVERHEAD, Frame, FramesInProgress
from bookie_server.serving.refusal import RefusedError
from bookie_server.wire import add_frames
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.envelope import Reason
from bookie_server.wire.messages import Section, SectionReply, Status, run_id
from bookkeeper_metadata.foundation.tasks import end_tasks

REPLIES_MAX = 4_096
"""Most answers in one message, which is encoded in one step."""
ANSWERS_UNSENT_MAX = 1_000
"""Answers that a stream's client has not taken; then no more frames are read from it."""
SECTIONS_AT_ONCE = 16
"""Most sections of a frame that is taken in one step."""
STEP_S = 0.01
"""About the longest that one frame keeps the event loop to itself."""
_LOGGER = logging.getLogger(__name__)


F = TypeVar("F", bound=Sized)
"""A frame as its carrier brings it; its length is that of its bytes."""


class AddCarrier(ABC, Generic[F]):
    """One client's frames, and the way back for their answers."""

    @abstractmethod
    async def next(
        self, in_progress: FramesInProgress, take_at_once: Callable[[F], bool]
    ) -> F | None:
        """The next frame, for which room was taken as the carrier can; ``None``: the client has said all.

        Frames of which ``take_at_once`` says that it has taken them need not come this way, which takes
        turns of the event loop; for those, too, room was taken.

        Raises:
            MalformedFrameError: what comes is no frame.
            TimeoutError: the client does not send the rest of a frame, and others need the room.
        """

    @abstractmethod
    def sections_of(self, frame: F) -> Iterator[Section]:
        """The adds of a frame; raises :class:`MalformedFrameError`."""

    def parts_of(self, section: Section) -> Sequence[Section]:
        """The adds that a refused section was made of, where the client knows nothing of sections."""
        return ()

    @abstractmethod
    def encode(self, replies: Sequence[SectionReply]) -> bytes:
        """The answers to any number of sections, in one message."""

    @abstractmethod
    async def send(self, answers: bytes) -> None:
        """Send a message of answers; returns when the client can be sent the next."""

    @abstractmethod
    async def drain(self) -> None:
        """Return when all that was sent is on its way."""

    @property
    @abstractmethod
    def send_now(self) -> Callable[[bytes], None] | None:
        """What sends a message of answers without a turn of the event loop; ``None``: nothing does, at this moment."""


class FrameCarrier(AddCarrier[Buffer]):
    """Of frames of our own layout."""

    def sections_of(self, frame: Buffer) -> Iterator[Section]:
        return add_frames.sections_of(frame)

    def encode(self, replies: Sequence[SectionReply]) -> bytes:
        return add_frames.encode_write_reply(replies)


class AddStream(Generic[F]):
    """Serves one client."""

    def __init__(
        self,
        bookie: Bookie,
        in_progress: FramesInProgress,
        carrier: AddCarrier[F],
        is_draining: Callable[[], bool],
    ) -> None:
        """``is_draining``: no more frames are taken."""
        self._bookie = bookie
        self._in_progress = in_progress
        self._carrier = carrier
        self._is_draining = is_draining
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        self._pause_at_s = 0.0
        self._replies: list[SectionReply] = []
        self._answers = 0
        """That these are, one for each section or for each entry."""
        self._unanswered = 0
        self._is_last = False
        """No more frames are taken."""
        self._is_over = False
        """No more answers are sent."""
        self._is_look_due = False
        """It will be looked for answers to be sent."""
        self._begun: tuple[Frame, list[Section]] | None = None
        """A frame of which a part is admitted, and the rest of its sections, for the task to go on with."""
        self._wake, self._taken = asyncio.Event(), asyncio.Event()

    async def serve(self) -> None:
        """Take frames until the client has said all, or the bookie drains, and answer what was taken.

        Raises:
            RefusedError: something was no frame, or the client kept room that others need; what came
                before is answered.
        """
        sender = asyncio.create_task(self._send_replies(), name="write-replies")
        # The reason, not the error: its traceback would hold the frame until all is answered.
        refusal: RefusedError | None = None
        try:
            try:
                await self._take_all_frames(sender)
            except MalformedFrameError as error:
                refusal = RefusedError(Reason.MALFORMED, str(error))
            except TimeoutError:
                refusal = RefusedError(Reason.NO_ROOM, "stalled in a frame; others need its room")
            self._in_progress.close()
            # Some carriers lose a stream that ends while a message is on its way.
            self._is_last = True
            self._wake.set()
            await sender
            if refusal is not None:
                raise refusal
        finally:
            self._in_progress.close()
            # Answers that come later go to a list that is sent no
            # more; the writer sends those sections again.
            await end_tasks([sender])

    async def _send_replies(self) -> None:
        # What becomes answerable while a message is on its way shares the next.
        try:
            while self._replies or self._unanswered or not self._is_last:
                await self._wake.wait()
                self._wake.clear()
                while ready := self._take_replies():
                    await self._carrier.send(self._carrier.encode(ready))
                self._taken.set()
            # What was sent without this task may be on its way by half, and the carrier is about to be closed.
            await self._carrier.drain()
        finally:
            # The client may be gone: nobody must wait for it to take anything.
            self._is_over = True
            self._taken.set()

    def _look_for_replies(self) -> None:
        """Send what has become answerable: from here where that is all to be done, else by the sending task."""
        self._is_look_due = False
        send = None if self._is_last else self._carrier.send_now
        if send is None or self._answers > REPLIES_MAX:
            self._wake.set()
        elif self._replies and not self._is_over:
            ready = self._take_replies()
            try:
                send(self._carrier.encode(ready))
            except Exception:
                # Here it would be the bookie's failure. The task tries again, and its failure is the stream's.
                _LOGGER.exception("answers. client=%s", self._in_progress.client)
                self._replies = ready + self._replies
                self._answers += _answers_in(ready)
                self._wake.set()
            self._taken.set()

    def _take_replies(self) -> list[SectionReply]:
        """The first ones, as many as a message takes."""
        if self._answers <= REPLIES_MAX:
            ready, self._replies, self._answers = self._replies, [], 0
            return ready
        sums = accumulate(reply.answer_count for reply in self._replies)
        count = max(1, sum(1 for _ in takewhile(lambda found: found <= REPLIES_MAX, sums)))
        ready, self._replies = self._replies[:count], self._replies[count:]
        self._answers -= _answers_in(ready)
        return ready

    async def _take_all_frames(self, sender: asyncio.Task[None]) -> None:
        """Take frames; whoever is not answered any more need not wait for that until its time is over."""
        failed, is_taking = asyncio.timeout(None), True

        def on_ended(_: object) -> None:
            # Called in a step behind the sender's end, and so perhaps behind the end of this one, too.
            if is_taking:
                failed.reschedule(0)

        sender.add_done_callback(on_ended)
        try:
            async with failed:
                await self._take_frames()
        except TimeoutError:
            if not failed.expired():
                raise
        finally:
            is_taking = False
            sender.remove_done_callback(on_ended)

    async def _take_frames(self) -> None:
        while True:
            while self._answers > ANSWERS_UNSENT_MAX and not self._is_over:
                self._taken.clear()
                await self._taken.wait()
            if self._is_over:
                return
            # In a method of its own, which holds the frame no longer than it takes to admit it.
            if not await self._take_frame():
                return

    async def _take_frame(self) -> bool:
        """Wait for the next frame and admit its sections; false: there is none, or it is not wanted."""
        data = await self._carrier.next(self._in_progress, self._take_at_once)
        if data is None:
            return False
        self._pause_at_s = self._now_s() + STEP_S
        frame, sections = self._begun or await self._parse(data)
        self._begun = None
        try:
            # The frame is dropped unanswered, even if it has waited for its room until now:
            # its writer sends it again when a bookie is back at this address.
            if self._is_draining():
                return False
            for section in sections:
                self._admit(frame, section)
                await self._pause_if_due()
        finally:
            frame.let_go()
        return True

    async def _parse(self, data: F) -> tuple[Frame, list[Section]]:
        # All are parsed before any is admitted: what follows on
        # the stream of a frame that does not parse means nothing.
        sections: list[Section] = []
        for section in self._carrier.sections_of(data):
            sections.append(section)
            await self._pause_if_due()
        return await self._in_progress.arrive(_memory_of(data, sections)), sections

    def _take_at_once(self, data: F) -> bool:
        """Admit a frame that needs nothing to be waited for; false: the task is to do it, or what is left of it."""
        if self._is_draining() or self._is_over or self._answers > ANSWERS_UNSENT_MAX:
            return False
        try:
            sections = list(islice(self._carrier.sections_of(data), SECTIONS_AT_ONCE + 1))
        except MalformedFrameError:
            return False
        if len(sections) > SECTIONS_AT_ONCE:
            return False
        frame = self._in_progress.try_arrive(_memory_of(data, sections), self._now_s())
        if frame is None:
            return False
        is_begun = False
        try:
            pause_at_s = self._now_s() + STEP_S
            for index, section in enumerate(sections):
                if index and self._now_s() > pause_at_s:
                    self._begun, is_begun = (frame, sections[index:]), True
                    return False
                self._admit(frame, section)
        finally:
            if not is_begun:
                frame.let_go()
        return True

    def _admit(self, frame: Frame, section: Section) -> None:
        self._bookie.add(section, self._hold(frame, section), self._in_progress.client)

    def _admit_next(self, frame: Frame, parts: Iterator[Section]) -> None:
        """Admit them one by one, each in a turn of its own."""
        part = next(parts, None)
        if part is not None:
            self._admit(frame, part)
            self._loop.call_soon(self._admit_next, frame, parts)
            return
        self._unanswered -= 1
        frame.let_go()
        self._wake.set()

    def _hold(self, frame: Frame, section: Section) -> ReplyTo:
        frame.hold()
        self._unanswered += 1
        return partial(self._answer, frame, section)

    async def _pause_if_due(self) -> None:
        """Serve others in between: a frame may have thousands of sections."""
        if self._now_s() > self._pause_at_s:
            await asyncio.sleep(0)
            self._pause_at_s = self._now_s() + STEP_S

    def _answer(self, frame: Frame, section: Section, status: Status) -> None:
        self._unanswered -= 1
        # What every part of it would be told needs no look at each.
        is_of_one = status in (Status.CONFLICT, Status.BAD_REQUEST)
        if is_of_one and (parts := self._carrier.parts_of(section)):
            self._unanswered += 1
            frame.hold()
            # Not from within the bookie's own steps.
            self._loop.call_soon(self._admit_next, frame, iter(parts))
            frame.let_go()
            return
        self._count(section, status, self._now_s() - frame.arrived_s)
        frame.let_go()
        self._replies.append(reply := section.reply(status))
        self._answers += reply.answer_count
        if not self._is_look_due:
            self._is_look_due = True
            self._bookie.call_when_answered(self._look_for_replies)

    def _count(self, section: Section, status: Status, seconds: float) -> None:
        measures = self._bookie.measures
        if status is Status.OK:
            measures.adds.add(seconds)
            measures.added_entries += len(section.run)
            measures.added_bytes += section.run.size_bytes
        else:
            measures.adds.add(seconds, status.name)
        if _LOGGER.isEnabledFor(logging.DEBUG):
            run = run_id(section.ledger_id, section.run.first_entry, section.run.last_entry)
            _LOGGER.debug(
                "add answered. run=%s status=%s ms=%.1f", run, status.name, 1_000 * seconds
            )


def _answers_in(replies: Sequence[SectionReply]) -> int:
    return sum(reply.answer_count for reply in replies)


def _memory_of(data: Sized, sections: Sequence[Section]) -> int:
    """Bytes that a frame takes until it is answered, about."""
    return len(data) + SECTION_OVERHEAD * len(sections)
