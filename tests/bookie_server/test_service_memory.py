"""The service towards clients that would fill its memory, on streams that a test holds in its hands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bookie_server.bookie import Bookie
from bookie_server.core.effects import ReplyTo
from bookie_server.serving.adds import ANSWERS_UNSENT_MAX
from bookie_server.serving.grpc_service import GrpcService
from bookie_server.serving.reads import READS_IN_FLIGHT_MAX
from bookie_server.serving.service import BookieService
from bookie_server.storage.checkpoint import CheckpointPlan, CheckpointResult
from bookie_server.storage.logs.entry_log import AfterWrite
from bookie_server.wire import add_frames, codec
from bookie_server.wire.messages import (
    BookieInfo,
    LongPoll,
    Method,
    ReadLacRequest,
    ReadRequest,
    Section,
    Status,
)
from bookie_server.wire.pieces import messages_of
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.model import DigestType
from tests.doubles.records import add, encoded_section, section
from tests.doubles.storage import running_bookie
from tests.doubles.waits import pass_turns, until
from tests.patience import seconds

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


class Stream:
    """One call of a client: what it sends, and whether it takes the replies."""

    def __init__(self, client: str, *, takes: bool = True) -> None:
        self._client = client
        self._sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._takes = asyncio.Event()
        if takes:
            self._takes.set()
        self.read_count = 0
        """Messages that the service has read."""
        self.replies: list[bytes] = []
        self.handler: asyncio.Task[Any] | None = None

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self._sent.put_nowait(message)

    async def messages(self) -> AsyncIterator[bytes]:
        while (message := await self._sent.get()) is not None:
            self.read_count += 1
            yield message
            del message

    # -- as gRPC's context -----------------------------------------------------------------------

    def peer(self) -> str:
        return self._client

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def write(self, message: bytes) -> None:
        await self._takes.wait()
        self.replies.append(message)

    async def abort(self, code: object, details: str) -> None:
        raise ConnectionError(code, details)

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        assert self.handler is not None
        self.handler.add_done_callback(callback)


class Served:
    """A bookie's service, and its handlers called as gRPC would."""

    def __init__(self, bookie: Bookie, place: Path) -> None:
        self.bookie = bookie
        self.service = GrpcService(BookieService(bookie, BookieInfo("b:1"), str(place)))
        self._handlers: list[asyncio.Task[Any]] = []

    def open(self, method: str, client: str, *, takes: bool = True) -> Stream:
        stream = Stream(client, takes=takes)
        handle = {"Write": self.service._write, "Read": self.service._read}[method]
        stream.handler = asyncio.create_task(handle(stream.messages(), stream))
        self._handlers.append(stream.handler)
        return stream

    async def close(self) -> None:
        await end_tasks(self._handlers)


@asynccontextmanager
async def serving(place: Path, **settings: int) -> AsyncIterator[Served]:
    async with running_bookie(place, **settings) as bookie:
        served = Served(bookie, place)
        try:
            yield served
        finally:
            await served.close()


def answer_count(stream: Stream) -> int:
    return sum(len(add_frames.parse_write_reply(message)) for message in stream.replies)


def read_of(request_id: int, entry_id: int) -> bytes:
    request = ReadRequest(ledger_id=7, first_entry=entry_id, last_entry=entry_id)
    return codec.encode_read_request(request_id, request)


async def test_frames_are_read_only_when_there_is_room_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 streams took a bookie of 128 MiB to 3 GB: each frame was taken first and waited then."""
    held: list[tuple[ReplyTo, Status]] = []
    # None of them is idle, however slow the machine is: an idle one reads a frame with little room.
    monkeypatch.setattr("bookie_server.bookie._IDLE_AFTER_S", 60.0)
    async with serving(tmp_path, adds_in_progress_bytes_max=16 * MIB) as served:
        budget = served.bookie.adds_in_progress
        monkeypatch.setattr(served.bookie, "add", lambda _, to, __: held.append((to, Status.OK)))
        streams = [served.open("Write", f"client {number}") for number in range(12)]
        for number, stream in enumerate(streams):
            data = encoded_section([bytes(4 * MIB)], ledger_id=number).data
            stream.send(data, data)
        # Until nothing more is read, although the bookie answers nothing.
        await until(lambda: budget.used_bytes > 8 * MIB and budget.waiting_count > 0)
        await asyncio.sleep(0.1)

        assert sum(stream.read_count for stream in streams) <= 4
        assert budget.used_bytes <= 16 * MIB

        # Room comes back with the answers, and every frame is read in the end.
        async with asyncio.timeout(60):
            while sum(map(answer_count, streams)) < 24:
                for to, status in held:
                    to(status)
                held.clear()
                await asyncio.sleep(0.001)
        assert budget.used_bytes <= 16 * MIB


async def test_frames_that_waited_for_room_do_not_go_into_a_cache_that_is_full_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 streams had all found room in it before they waited: it held 280 MiB where 128 were promised."""
    may_write = threading.Event()
    sizes = {"write_cache_size_bytes": MIB, "adds_in_progress_bytes_max": 8 * MIB}
    async with serving(tmp_path, **sizes) as served:
        contents, checkpoints = served.bookie.storage.contents, served.bookie.storage.checkpoints
        write = checkpoints.write

        def write_later(
            plan: CheckpointPlan, after_write: AfterWrite | None = None
        ) -> CheckpointResult:
            may_write.wait()
            return write(plan, after_write)

        monkeypatch.setattr(checkpoints, "write", write_later)
        try:
            streams = [served.open("Write", f"client {number}") for number in range(10)]
            for number, stream in enumerate(streams):
                frame = encoded_section([bytes(3 * MIB)], ledger_id=number).data
                stream.send(*messages_of(frame))
            cached_bytes = -1
            # Until no more come.
            while cached_bytes < max(contents.cached_bytes, 2 * MIB):
                cached_bytes = contents.cached_bytes
                await asyncio.sleep(0.3)

            # What made it full, and as much as had its room in memory by then.
            assert cached_bytes <= 2 * MIB + 8 * MIB
        finally:
            may_write.set()
        await until(lambda: all(map(answer_count, streams)))


async def test_a_reader_that_takes_nothing_is_cut_off_when_others_need_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each such stream held 240 MiB."""
    settings = {"reads_in_progress_bytes_max": 8 * MIB, "response_backpressure_timeout_ms": 50}
    async with serving(tmp_path, **settings) as served:
        budget = served.bookie.reads_in_progress
        for entry_id in range(3):
            await add(served.bookie, section([bytes(3 * MIB)], entry_id, lac=entry_id - 1))
        greedy = [served.open("Read", f"greedy {number}", takes=False) for number in range(3)]
        by_name = {stream.peer(): stream for stream in greedy}

        def disconnect(client: str) -> None:
            handler = by_name[client].handler
            assert handler is not None
            handler.cancel()

        monkeypatch.setattr(served.service._clients, "disconnect", disconnect)
        for stream in greedy:
            stream.send(*(read_of(request_id, request_id % 3) for request_id in range(100)))
        await until(lambda: budget.waiting_count > 0)
        assert budget.used_bytes <= 8 * MIB

        honest = served.open("Read", "honest")
        honest.send(read_of(1, 0), read_of(2, 1))
        await until(lambda: len(honest.replies) == 2, 60)

        assert budget.used_bytes <= 8 * MIB


async def test_an_idle_stream_does_not_hold_its_last_frame(tmp_path: Path) -> None:
    gone = asyncio.Event()

    class WatchedBytes(bytes):
        """These say when nobody holds them any more."""

        def __del__(self) -> None:
            gone.set()

    async with serving(tmp_path) as served:
        stream = served.open("Write", "client")
        wrong_key = add_frames.encode_section_header(7, bytes(20), DigestType.CRC32C)
        small = encoded_section([b"ten bytes."]).data
        refused = add_frames.encode_section(wrong_key, [section([bytes(4 * MIB)], 1).run.data])
        frame = WatchedBytes(small + refused)
        stream.send(frame)
        del frame

        async with asyncio.timeout(seconds(10)):
            await gone.wait()

        contents = served.bookie.storage.contents
        assert contents.last_entry(7) == 0
        assert contents.cached_bytes < 1_000
        assert served.bookie.adds_in_progress.used_bytes <= 8 * MIB


async def test_a_writer_that_takes_no_answers_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers were kept without end."""

    def refuse(_: Section, to: ReplyTo, __: str) -> None:
        to(Status.FENCED)

    async with serving(tmp_path) as served:
        monkeypatch.setattr(served.bookie, "add", refuse)
        stream = served.open("Write", "deaf", takes=False)
        stream.send(*[encoded_section([b"x"]).data] * (4 * ANSWERS_UNSENT_MAX))
        await until(lambda: stream.read_count > ANSWERS_UNSENT_MAX)
        await pass_turns(1_000)
        # As many again may be in the message that is not taken.
        assert stream.read_count <= 2 * ANSWERS_UNSENT_MAX + 10

        stream._takes.set()
        await until(lambda: stream.read_count == 4 * ANSWERS_UNSENT_MAX)


async def test_a_reply_counts_as_often_as_it_is_in_memory(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await add(served.bookie, section([bytes(MIB)]))
        stream = served.open("Read", "slow", takes=False)
        stream.send(read_of(1, 0))
        budget = served.bookie.reads_in_progress
        await until(lambda: bool(budget._lent))

        # Beside ours, gRPC holds a copy until the client has taken it.
        assert 2 * MIB < budget.used_bytes < 2.1 * MIB


async def test_a_long_poll_holds_room_only_once_there_is_news(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        budget = served.bookie.reads_in_progress
        await add(served.bookie, section([bytes(MIB)]))
        poll = ReadLacRequest(7, long_poll=LongPoll(previous_lac=-1, timeout_ms=20_000))
        stream = Stream("tail")
        stream.handler = asyncio.create_task(
            served.service._answer(Method.READ_LAC, codec.encode_read_lac_request(poll), stream)
        )
        await until(lambda: served.bookie.lac_watch.waiter_count == 1)
        assert budget.used_bytes == 0

        added = asyncio.create_task(add(served.bookie, section([bytes(MIB)], 1, lac=0)))
        seen: list[int] = []
        stream.handler.add_done_callback(lambda _: seen.append(budget.used_bytes))
        frame = await stream.handler
        await added

        # Given back once gRPC is done with the reply.
        assert len(frame) > 2 * MIB
        await until(lambda: budget.used_bytes == 0)


async def test_all_streams_of_a_client_share_its_reads_in_flight(tmp_path: Path) -> None:
    """A connection may have 1,000 streams, and had 64 reads in progress on each: 250 MiB."""
    async with serving(tmp_path) as served:
        asked: list[int] = []

        async def read(request: ReadRequest, _: object) -> object:
            asked.append(request.first_entry)
            return await asyncio.Event().wait()

        served.bookie.read = read  # type: ignore[method-assign,assignment]
        count = READS_IN_FLIGHT_MAX
        streams = [served.open("Read", "client", takes=False) for _ in range(3)]
        for place, stream in enumerate(streams):
            stream.send(*(read_of(place * count + number, place) for number in range(count)))
        await until(lambda: len(asked) == count)
        served.open("Read", "other client").send(read_of(0, 3))
        await until(lambda: 3 in asked)
        await pass_turns(10)
        assert len(asked) == count + 1

        # What ends gives its places to the others, even those of reads that had not begun.
        for stream in streams[:2]:
            assert stream.handler is not None
            await end_tasks([stream.handler])
        await until(lambda: asked.count(2) == count)
