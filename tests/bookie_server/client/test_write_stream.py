"""What a stream of adds does about frames that nobody answers, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

import grpc
import grpc.aio
import pytest

from bookie_server.client.grpc_client import WriteCall
from bookie_server.client.message_stream import OpenStream, StreamEndedError
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.write_stream import WriteStream
from bookie_server.wire import add_frames
from bookie_server.wire.limits import FRAME_SECTIONS_MAX, PIECE_SIZE_MAX
from bookie_server.wire.messages import Status
from bookie_server.wire.pieces import Pieces, is_piece
from tests.doubles.records import encoded_section
from tests.doubles.virtual_time import on_virtual_time


class Slow:
    """A call that is answered once it is told to answer."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def write(self, frame: bytes) -> None:
        self.frames.append(frame)

    async def read(self) -> bytes:
        return await self._answers.get()

    def answer(self, at: int) -> None:
        replies = [part.reply(Status.OK) for part in add_frames.parse_frame(self.frames[at])]
        self._answers.put_nowait(add_frames.encode_write_reply(replies))

    def cancel(self) -> None:
        """Nothing is held."""


class SilentOnce(Slow):
    """A call whose first frame is lost; the others are answered."""

    async def write(self, frame: bytes) -> None:
        await super().write(frame)
        if len(self.frames) > 1:
            self.answer(-1)


class Crowded:
    """A bookie that takes a moment, and ends each stream to make room for others, but for the last."""

    def __init__(self, code: grpc.StatusCode, breaks: int) -> None:
        self._code = code
        self._left = breaks
        self._frame = b""

    def open(self) -> Crowded:
        return self

    async def write(self, message: bytes) -> None:
        self._frame = message

    async def read(self) -> bytes:
        await asyncio.sleep(0.5)
        if self._left:
            self._left -= 1
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(self._code, nothing, nothing)
        replies = [part.reply(Status.OK) for part in add_frames.parse_frame(self._frame)]
        return add_frames.encode_write_reply(replies)

    def cancel(self) -> None:
        """Nothing is held."""


class Pieced:
    """Calls that take messages one by one; the first call breaks behind its second message."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    def open(self) -> Pieced:
        self.calls.append([])
        return self

    async def write(self, message: bytes) -> None:
        messages = self.calls[-1]
        messages.append(message)
        # Others come to the loop between two pieces.
        await asyncio.sleep(0)
        if len(self.calls) == 1 and len(messages) == 2:
            self._answers.put_nowait(b"no answer")
            await asyncio.Event().wait()

    async def read(self) -> bytes:
        return await self._answers.get()

    def answer(self, frame: bytes) -> None:
        replies = [part.reply(Status.OK) for part in add_frames.parse_frame(frame)]
        self._answers.put_nowait(add_frames.encode_write_reply(replies))

    def cancel(self) -> None:
        """Nothing is held."""


def over_calls(open_call: Callable[[], object]) -> OpenStream:
    async def open_stream() -> WriteCall:
        return WriteCall(open_call())

    return open_stream


def whole(messages: list[bytes]) -> list[bytes]:
    """The frames, as a bookie puts them together."""
    frames: list[bytes] = []
    left = deque(messages)
    while left:
        message = left.popleft()
        if is_piece(message):
            pieces = Pieces(message)
            while pieces.missing_bytes:
                pieces.add(left.popleft())
            message = pieces.join()
        frames.append(message)
    return frames


def test_what_waits_behind_frames_that_expired_is_sent() -> None:
    """Their slots were free again, and nobody told the sender: it expired unsent, as they had."""

    async def main() -> None:
        call, statuses = SilentOnce(), dict[str, Status]()
        settings = ConnectionSettings(add_timeout_ms=1_000)
        stream = WriteStream(over_calls(lambda: call), settings)
        stream.write(encoded_section([b"x"], 0), lambda status: statuses.update(first=status))
        await asyncio.sleep(0.5)
        stream.write(encoded_section([b"y"], 1), lambda status: statuses.update(second=status))
        await asyncio.sleep(2)

        assert statuses == {"first": Status.UNREACHABLE, "second": Status.OK}
        await stream.close()

    on_virtual_time(main())


def test_the_pieces_of_a_frame_are_sent_in_a_row_and_all_again_after_a_break() -> None:
    async def main() -> None:
        call, statuses = Pieced(), list[Status]()
        stream = WriteStream(over_calls(call.open), ConnectionSettings())
        sections = [encoded_section([bytes(PIECE_SIZE_MAX)] * 3, 0), encoded_section([b"x"], 3)]
        large = [encoded_section([bytes(PIECE_SIZE_MAX)], first) for first in range(4, 8)]
        for section in (*sections, *large):
            stream.write(section, statuses.append)
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)

        assert len(call.calls[0]) == 2
        sent = whole(call.calls[1])
        for frame in sent:
            call.answer(frame)
        await asyncio.sleep(0.5)
        assert set(statuses) == {Status.OK}
        assert len(sent) == 3
        assert b"".join(sent).startswith(b"".join(section.data for section in sections))
        await stream.close()

    on_virtual_time(main())


def test_a_frame_has_no_more_sections_than_a_bookie_takes() -> None:
    async def main() -> None:
        call, statuses = SilentOnce(), list[Status]()
        stream = WriteStream(over_calls(lambda: call), ConnectionSettings(add_timeout_ms=1_000))
        for entry_id in range(2 * FRAME_SECTIONS_MAX):
            stream.write(encoded_section([b""], entry_id), statuses.append)
        await asyncio.sleep(3)

        sizes = [len(add_frames.parse_frame(frame)) for frame in call.frames]
        assert sizes == [FRAME_SECTIONS_MAX] * 2
        await stream.close()

    on_virtual_time(main())


class Restarted:
    """Calls that answer each frame after a while, until the bookie ends the first of them."""

    def __init__(self, answer_s: float) -> None:
        self.calls = 0
        self._answer_s = answer_s
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    def open(self) -> Restarted:
        self.calls += 1
        return self

    def restart(self) -> None:
        self._answers.put_nowait(b"no answer")

    async def write(self, frame: bytes) -> None:
        await asyncio.sleep(self._answer_s)
        replies = [part.reply(Status.OK) for part in add_frames.parse_frame(frame)]
        self._answers.put_nowait(add_frames.encode_write_reply(replies))

    async def read(self) -> bytes:
        return await self._answers.get()

    def cancel(self) -> None:
        """Nothing is held."""


def test_a_bookie_that_restarted_while_nothing_was_sent_has_the_whole_time_to_answer() -> None:
    """It counted as away since its connection broke, and an add failed 50 ms after it was sent."""

    async def main() -> None:
        bookie, statuses = Restarted(answer_s=0.5), list[Status]()
        stream = WriteStream(
            over_calls(bookie.open), ConnectionSettings(reconnect_timeout_ms=3_000)
        )
        stream.write(encoded_section([b"x"], 0), statuses.append)
        await asyncio.sleep(1)
        bookie.restart()
        await asyncio.sleep(60)

        stream.write(encoded_section([b"y"], 1), statuses.append)
        await asyncio.sleep(1)

        assert statuses == [Status.OK, Status.OK]
        assert bookie.calls == 2
        await stream.close()

    on_virtual_time(main())


def test_a_bookie_that_answered_since_it_broke_off_is_away_only_since_it_broke_off_again() -> None:
    """With something always unanswered the time that it may be away ran on from the first break."""

    async def main() -> None:
        bookie, statuses = Restarted(answer_s=0.5), list[Status]()
        stream = WriteStream(
            over_calls(bookie.open), ConnectionSettings(reconnect_timeout_ms=3_000)
        )
        for number in range(40):
            stream.write(encoded_section([b"x"], number), statuses.append)
            if number in (4, 30):
                bookie.restart()
            await asyncio.sleep(0.3)
        await asyncio.sleep(5)

        assert statuses == [Status.OK] * 40
        assert bookie.calls == 3
        await stream.close()

    on_virtual_time(main())


def test_a_bookie_that_ends_streams_to_make_room_is_not_away() -> None:
    """An add has all its time then; it failed as if nobody had answered since the first such end."""

    async def outcome(code: grpc.StatusCode) -> Status:
        statuses: list[Status] = []
        settings = ConnectionSettings(add_timeout_ms=60_000, reconnect_timeout_ms=2_000)
        stream = WriteStream(over_calls(Crowded(code, breaks=9).open), settings)
        stream.write(encoded_section([b"x"], 0), statuses.append)
        await asyncio.sleep(10)
        await stream.close()
        return statuses[0]

    async def main() -> None:
        assert await outcome(grpc.StatusCode.RESOURCE_EXHAUSTED) is Status.OK
        assert await outcome(grpc.StatusCode.UNAVAILABLE) is Status.UNREACHABLE

    on_virtual_time(main())


class Stuck:
    """A call that takes its first message, and no other; nothing is ever answered."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self._cancelled = asyncio.Event()

    async def write(self, message: bytes) -> None:
        self.messages.append(message)
        if len(self.messages) > 1:
            await asyncio.Event().wait()

    async def read(self) -> bytes:
        # As gRPC's does: of a call that was cancelled here it says that its caller was.
        await self._cancelled.wait()
        raise asyncio.CancelledError

    def cancel(self) -> None:
        self._cancelled.set()


def test_what_a_stuck_bookie_is_sent_does_not_pile_up() -> None:
    """Sections that expire make room for others; their frames were queued behind each other without end."""

    async def main() -> None:
        call, statuses = Stuck(), list[Status]()
        opened = WriteCall(call)
        settings = ConnectionSettings(add_timeout_ms=1_000)

        async def open_stream() -> WriteCall:
            return opened

        stream = WriteStream(open_stream, settings)
        for entry_id in range(200):
            stream.write(encoded_section([bytes(100_000)], entry_id), statuses.append)
            await asyncio.sleep(0.1)
            assert opened.unsent_bytes < 2 * settings.frame_size_bytes_max
        await asyncio.sleep(2)
        await stream.close()
        assert statuses == [Status.UNREACHABLE] * 200

    on_virtual_time(main())


@pytest.mark.parametrize(
    ("size", "taken_s", "in_flight"),
    [
        (90_000, 0.2, 8),
        (180_000, 0.2, 4),
        # Others would only become older.
        (90_000, 0.3, 3),
    ],
)
def test_more_frames_go_out_unanswered_where_they_cannot_grow_and_are_answered_soon(
    size: int, taken_s: float, in_flight: int
) -> None:
    async def main() -> None:
        call = Slow()
        header = len(encoded_section([b""]))
        settings = ConnectionSettings(frame_size_bytes_target=30_000, frame_size_bytes_max=90_000)
        stream = WriteStream(over_calls(lambda: call), settings)
        entry_ids = itertools.count()

        async def write(count: int) -> None:
            for entry_id in itertools.islice(entry_ids, count):
                section = encoded_section([bytes(size - header)], entry_id)
                stream.write(section, lambda status: None)
                await asyncio.sleep(0.001)

        await write(10)
        # At first nobody knows how soon the bookie answers.
        assert len(call.frames) == 3
        for answered in range(8):
            await asyncio.sleep(taken_s if answered == 0 or in_flight == 3 else 0)
            call.answer(answered)
            await write(5)
        assert len(call.frames) - 8 == in_flight
        await stream.close()

    on_virtual_time(main())


def test_a_stream_is_closed_whatever_its_call_says_of_it() -> None:
    """A call that is cancelled looks like a task that is: the one was taken for the other, and closing never ended."""

    async def main() -> None:
        call = Stuck()
        opened = WriteCall(call)
        reading = asyncio.ensure_future(opened.receive(lambda _: False))
        await asyncio.sleep(0)
        opened.close()
        with pytest.raises(StreamEndedError):
            await reading

        stream = WriteStream(over_calls(Stuck), ConnectionSettings(add_timeout_ms=1_000))
        stream.write(encoded_section([b"x"], 0), lambda _: None)
        await asyncio.sleep(0.5)
        await stream.close()

    on_virtual_time(main())
