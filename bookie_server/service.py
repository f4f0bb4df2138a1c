"""The gRPC face of a bookie: frames in, replies out; no decisions.

Generic handlers over raw bytes. A frame that does not parse ends its stream with INVALID_ARGUMENT;
everything else is answered with a status per section or per range, BAD_REQUEST where it breaks a
limit. One reply message carries
whatever became answerable since the last one, so a journal group costs one message per stream.

Room for a frame is taken before it is read, room for a reply before its records are: not to read on is
the back pressure, since gRPC's flow control then stops the client. See :mod:`bookie_server.memory.budget`.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import grpc.aio

from bookie_server.bookie import Bookie
from bookie_server.memory.budget import Room
from bookie_server.memory.connections import Connections
from bookie_server.memory.frames import (
    SECTION_OVERHEAD,
    Frame,
    FramesInProgress,
    PromisedMemory,
)
from bookie_server.memory.slots import Slots
from bookie_server.wire import add_frames, codec
from bookie_server.wire.limits import FRAME_SIZE_MAX, PIECE_SIZE_MAX
from bookie_server.wire.messages import (
    BookieInfo,
    IdRange,
    ReadRequest,
    Section,
    SectionReply,
    Status,
    StoredReply,
    run_id,
)
from bookie_server.wire.pieces import Pieces, is_piece
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.model import NO_ENTRY_ID

SERVICE = "bookkeeper.Bookie"
READS_IN_FLIGHT_MAX = 64
"""Reads of one client executed at once, over all its streams; the others wait in the streams."""
REPLIES_MAX = 4_096
"""Most sections answered in one message, which is encoded in one step."""
ANSWERS_UNSENT_MAX = 1_000
"""Answers to sections that a stream's client has not taken; then no more frames are read from it."""
_COPIES_OF_REPLY = 2
"""gRPC sends a copy, and lets the reply itself go no sooner than that."""
STEP_S = 0.01
"""About the longest that one frame keeps the event loop to itself."""
_LOGGER = logging.getLogger(__name__)

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", PIECE_SIZE_MAX),
    ("grpc.max_send_message_length", FRAME_SIZE_MAX),
    # Two bookies on one port would each get half of the clients.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 1_000),
    # Probing would let a stream that nobody reads take in megabytes instead of 64 KiB.
    ("grpc.http2.bdp_probe", 0),
)


class BookieService:
    """Handlers of bookie.proto's methods over one :class:`Bookie`.

    ``identity`` is what the bookie answers to ``Info``, its numbers aside; the disk it reports is that
    of ``directory``, the first for ledgers. ``port`` is that of the connections, to end some of them.
    """

    def __init__(
        self, bookie: Bookie, identity: BookieInfo, directory: str, port: int | None = None
    ) -> None:
        self._clients = Connections(port)
        self._slots_of_reads = Slots(READS_IN_FLIGHT_MAX)
        self._bookie = bookie
        self._memory = PromisedMemory(bookie.adds_in_progress)
        self._identity = identity
        self._directory = directory
        self.is_draining = False
        """Set when the bookie stops: no more frames are taken from streams."""

    def handler(self) -> grpc.GenericRpcHandler:
        """The handlers to add to a ``grpc.aio.server``."""
        stream, unary = grpc.stream_stream_rpc_method_handler, grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Write": stream(self._write),
                "Read": stream(self._read),
                "ReadLac": unary(self._read_lac),
                "WriteLac": unary(self._refuse_malformed(self._write_lac)),
                "Info": unary(self._refuse_malformed(self._info)),
                "ListEntries": unary(self._refuse_malformed(self._list_entries)),
            },
        )

    async def _write(self, frames: AsyncIterator[bytes], context: Any) -> None:
        now_s = asyncio.get_running_loop().time
        replies: list[SectionReply] = []
        wake, taken = asyncio.Event(), asyncio.Event()
        unanswered = 0

        def answer(frame: Frame, section: Section, status: Status) -> None:
            nonlocal unanswered
            unanswered -= 1
            self._count_add(section, status, now_s() - frame.arrived_s)
            frame.let_go()
            replies.append(section.reply(status))
            wake.set()

        # One task sends: what becomes answerable while a message is on its way shares the next.
        is_last = False

        async def send_replies() -> None:
            while replies or unanswered or not is_last:
                await wake.wait()
                wake.clear()
                while ready := replies[:REPLIES_MAX]:
                    del replies[:REPLIES_MAX]
                    await context.write(add_frames.encode_write_reply(ready))
                taken.set()

        sender = asyncio.create_task(send_replies(), name="write-replies")
        # The reason, not the error: its traceback would hold the frame until all is answered.
        refusal: tuple[grpc.StatusCode, str] | None = None
        in_progress = FramesInProgress(self._memory, context.peer())
        unread = aiter(frames)
        try:
            try:
                while True:
                    while len(replies) > ANSWERS_UNSENT_MAX:
                        taken.clear()
                        await taken.wait()
                    section_count = await self._take_frame(unread, in_progress, answer)
                    if section_count is None:
                        break
                    unanswered += section_count
            except codec.MalformedFrameError as error:
                refusal = self._refusal_of_malformed(error)
            except TimeoutError:
                refusal = (
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    "stalled in a frame; others need its room",
                )
            in_progress.close()
            # The client has said all, or the bookie drains: what was taken from the stream is
            # answered still. gRPC loses a call that ends while a message is on its way.
            is_last = True
            wake.set()
            await sender
            if refusal is not None:
                await self._abort(context, *refusal)
        finally:
            in_progress.close()
            # Answers that come later go to a list that is sent no
            # more; the writer sends those sections again.
            await end_tasks([sender])

    async def _take_frame(
        self,
        unread: AsyncIterator[bytes],
        in_progress: FramesInProgress,
        answer: Callable[[Frame, Section, Status], None],
    ) -> int | None:
        """Read the next frame and admit its sections; returns their number, ``None`` at the end."""
        await self._bookie.wait_for_room()
        await in_progress.expect()
        data = await anext(unread, None)
        if data is not None and is_piece(data):
            data = await self._take_others(Pieces(data), unread, in_progress)
        if data is None:
            return None
        # All are parsed before any is admitted: what follows on
        # the stream of a frame that does not parse means nothing.
        sections = [section async for section in _with_pauses(add_frames.sections_of(data))]
        frame = await in_progress.arrive(len(data) + SECTION_OVERHEAD * len(sections))
        try:
            # The frame is dropped unanswered, even if it has waited for its room until now:
            # its writer sends it again when a bookie is back at this address.
            if self.is_draining:
                return None
            async for section in _with_pauses(sections):
                frame.hold()
                self._bookie.add(section, partial(answer, frame, section), in_progress.client)
        finally:
            frame.let_go()
        return len(sections)

    async def _take_others(
        self, pieces: Pieces, unread: AsyncIterator[bytes], in_progress: FramesInProgress
    ) -> bytes | None:
        """Read the pieces behind a frame's first once there is room for them; ``None`` if they end.

        Raises:
            TimeoutError: the client does not send them, and others need the room.
        """
        await in_progress.announce(pieces.size_bytes)
        async with asyncio.timeout(None) as limit:
            while pieces.missing_bytes:
                in_progress.begin_await(partial(limit.reschedule, 0))
                piece = await anext(unread, None)
                in_progress.end_await()
                if piece is None:
                    return None
                pieces.add(piece)
        return pieces.join()

    async def _read(self, requests: AsyncIterator[bytes], context: Any) -> None:
        client = context.peer()
        disconnect = partial(self._clients.disconnect, client)
        slots = self._slots_of_reads.of(client)
        writing = asyncio.Lock()
        tasks: set[asyncio.Task[None]] = set()

        async def send(frame: bytes, room: Room | None = None) -> None:
            # A call takes one message at a time.
            async with writing:
                if room is not None:
                    room.lend(disconnect)
                await context.write(frame)

        async def answer(request_id: int, request: ReadRequest) -> None:
            # Not given back before the reply is out: a reader that is
            # slow to take replies has a limited part in memory.
            with self._bookie.reads_in_progress.room(client) as room:
                frame = await self._answer_read(request_id, request, room)
                room.resize(_COPIES_OF_REPLY * len(frame))
                await send(frame, room)

        def on_done(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            # Not in the task itself: one that is cancelled before it begins runs none of its code.
            slots.release()

        malformed: codec.MalformedFrameError | None = None
        try:
            try:
                async for data in requests:
                    try:
                        request_id, request = codec.parse_read_request(data)
                    except codec.BadRequestError as refused:
                        self._bookie.measures.reads.add(0.0, Status.BAD_REQUEST.name)
                        await send(refused.reply)
                        continue
                    # Before there is a task: requests beyond the limit stay in
                    # gRPC's buffers, not in memory of ours.
                    await slots.acquire()
                    task = asyncio.create_task(answer(request_id, request), name="read")
                    tasks.add(task)
                    task.add_done_callback(on_done)
            except codec.MalformedFrameError as error:
                malformed = error
            # Whoever ends the requests still waits for the answers; and see ``_write``.
            await asyncio.gather(*tasks, return_exceptions=True)
            if malformed is not None:
                await self._refuse(context, malformed)
        finally:
            await end_tasks(tasks)

    async def _answer_read(self, request_id: int, request: ReadRequest, room: Room) -> bytes:
        """The bookie's reply; UNKNOWN, never silence, where a defect or the disk ends the read."""
        loop, measures = asyncio.get_running_loop(), self._bookie.measures
        started_s = loop.time()
        try:
            reply = await self._bookie.read(request, room)
            frame = codec.encode_read_reply(request_id, reply)
            measures.reads.add(loop.time() - started_s, _refusal_of(reply))
            measures.read_bytes += sum(map(len, reply.chunks))
            return frame
        except Exception:
            measures.reads.add(loop.time() - started_s, Status.UNKNOWN.name)
            first, last = request.first_entry, request.last_entry
            place = request.ledger_id, first, last
            _LOGGER.exception("read failed. ledger_id=%d first_entry=%d last_entry=%d", *place)
            unknown = StoredReply((), (IdRange(first, last, Status.UNKNOWN),), NO_ENTRY_ID)
            return codec.encode_read_reply(request_id, unknown)

    async def _read_lac(self, data: bytes, context: Any) -> bytes:
        client, loop = context.peer(), asyncio.get_running_loop()
        room = self._bookie.reads_in_progress.room(client)

        async def answer(data: bytes) -> bytes:
            request = codec.parse_read_lac_request(data)
            started_s = loop.time()
            reply = await self._bookie.read_lac(request, room)
            self._bookie.measures.read_bytes += len(reply.records)
            # To wait for news is what a long poll is for.
            if request.long_poll is None:
                refusal = None if reply.status is Status.OK else reply.status.name
                self._bookie.measures.lac_reads.add(loop.time() - started_s, refusal)
            return codec.encode_read_lac_reply(reply)

        # The reply is sent behind this method's end.
        context.add_done_callback(lambda _: room.release())
        frame = await self._refuse_malformed(answer)(data, context)
        room.resize(_COPIES_OF_REPLY * len(frame))
        room.lend(partial(self._clients.disconnect, client))
        return frame

    async def _write_lac(self, data: bytes) -> bytes:
        ledger_id, master_key, packet = codec.parse_write_lac_request(data)
        return codec.encode_status(await self._bookie.write_lac(ledger_id, master_key, packet))

    async def _info(self, data: bytes) -> bytes:
        codec.parse_info_request(data)
        # A sick disk may keep this waiting, and the loop must not wait with it.
        disk = await asyncio.to_thread(shutil.disk_usage, self._directory)
        info = replace(
            self._identity,
            ledger_count=len(self._bookie.storage.contents.ledgers),
            disk_total_bytes=disk.total,
            disk_free_bytes=disk.free,
            limbo_count=self._bookie.measures.limbo_count,
        )
        return codec.encode_info(info)

    async def _list_entries(self, data: bytes) -> bytes:
        request = codec.parse_list_entries_request(data)
        return codec.encode_entry_list(self._bookie.list_entries(request))

    def _count_add(self, section: Section, status: Status, seconds: float) -> None:
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

    async def _refuse(self, context: Any, error: codec.MalformedFrameError) -> None:
        await self._abort(context, *self._refusal_of_malformed(error))

    def _refusal_of_malformed(
        self, error: codec.MalformedFrameError
    ) -> tuple[grpc.StatusCode, str]:
        self._bookie.measures.malformed_count += 1
        return grpc.StatusCode.INVALID_ARGUMENT, str(error)

    async def _abort(self, context: Any, code: grpc.StatusCode, detail: str) -> None:
        _LOGGER.warning("stream or request refused. peer=%s detail=%s", context.peer(), detail)
        await context.abort(code, detail)

    def _refuse_malformed(
        self, method: Callable[[bytes], Awaitable[bytes]]
    ) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """Make a unary handler of a method: what breaks a limit is BAD_REQUEST, what does not parse
        INVALID_ARGUMENT.
        """

        async def handle(data: bytes, context: Any) -> bytes:
            try:
                return await method(data)
            except codec.BadRequestError as refused:
                return refused.reply
            except codec.MalformedFrameError as error:
                await self._refuse(context, error)
                # Never reached, since ``abort`` raises; it says so to the type checker.
                raise

        return handle


async def _with_pauses(sections: Iterable[Section]) -> AsyncIterator[Section]:
    """The same; a frame may have thousands of them, and others are served in between."""
    loop = asyncio.get_running_loop()
    pause_at_s = loop.time() + STEP_S
    for section in sections:
        yield section
        if loop.time() > pause_at_s:
            await asyncio.sleep(0)
            pause_at_s = loop.time() + STEP_S


def _refusal_of(reply: StoredReply) -> str | None:
    """What a reader without an entry is told, by the first range of those that it does not get."""
    if reply.chunks or not reply.missing:
        return None
    return reply.missing[0].status.name
