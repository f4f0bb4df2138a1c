"""What hostile clients that speak Apache's protocol ask, which others must not feel, and memory must not be taken by."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from bookie_server.serving import service as service_module
from bookie_server.serving.adds import ANSWERS_UNSENT_MAX, REPLIES_MAX, AddStream
from bookie_server.serving.rpc.adds import RpcConnection
from bookie_server.serving.rpc.requests import POLLS_MAX, REQUESTS_IN_FLIGHT_MAX
from bookie_server.wire.limits import FRAME_SIZE_MAX
from bookie_server.wire.messages import SectionReply
from bookie_server.wire.rpc import messages, v3
from bookie_server.wire.rpc.entry_list import parse_entry_list
from bookie_server.wire.rpc.frames import RPC_FRAME_SIZE_MAX
from bookie_server.wire.rpc.incoming import kept
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.bookie_server.rpc.asking import (
    LEDGER,
    MIB,
    PASSWORD_KEY,
    add,
    answers_of,
    both_versions,
    entry,
    frame_of,
    read,
)
from tests.doubles.records import records
from tests.doubles.rpc_peers import ServedRpc, serving_rpc
from tests.doubles.served_sockets import tasks_of_connections
from tests.doubles.waits import until

pytestmark = pytest.mark.integration


async def test_requests_that_are_no_adds_keep_no_bytes_that_nobody_needs(served: ServedRpc) -> None:
    """Sixty long polls with a key of five megabytes took three hundred, and none was counted."""
    peer = await served.connect()
    await peer.ask(add(0, b"x", 3))
    key = bytes(RPC_FRAME_SIZE_MAX - 1_000)
    poll = messages.ReadEntry(LEDGER, -1, key, 5, 30_000, messages.READ_FLAG_PIGGYBACK)
    await peer.send(frame_of(poll, 3))
    assert await peer.receive() is None, "no request but an add is so large"
    small = messages.ReadEntry(LEDGER, -1, bytes(60_000), 5, 30_000, messages.READ_FLAG_PIGGYBACK)
    asked = kept(v3.parse_request(frame_of(small, 3)[4:]))
    assert asked.request == messages.ReadEntry(LEDGER, -1, None, 5, 30_000, 2)


async def test_a_message_of_thousands_of_fields_is_none(served: ServedRpc) -> None:
    """One frame of them kept the event loop for seconds."""
    peer = await served.connect()
    await peer.send(
        struct.pack(">i", 5_000_000) + b"\x0a\x06\x08\x03\x10\x01\x18\x05" + b"\x38\x01" * 2_499_996
    )
    assert await peer.receive() is None
    assert served.bookie.measures.malformed_count == 1


async def test_long_polls_keep_no_add_of_their_connection_waiting(served: ServedRpc) -> None:
    peer = await served.connect()
    await peer.ask(add(0, b"x", 3))
    poll = messages.ReadEntry(LEDGER, -1, None, 2**40, 30_000, messages.READ_FLAG_PIGGYBACK)
    await peer.send(*(frame_of(poll, 3, number) for number in range(POLLS_MAX + 5)))
    await peer.send(add(1, b"y", 3))
    answered = [await peer.receive() for _ in range(6)]
    parsed = [v3.parse_answer(frame[4:]) for frame in answered if frame is not None]
    statuses = sorted(answer.status.name for answer in parsed)
    assert statuses == ["EOK", *["ETOOMANYREQUESTS"] * 5]
    await peer.close()
    await until(lambda: not tasks_of_connections())


async def test_a_poll_never_passes_another_entry_off_as_the_next(served: ServedRpc) -> None:
    """Of a striped ledger the next one is another bookie's."""
    peer = await served.connect()
    for entry_id in (0, 2, 4):
        body = bytes(records([b"z"], entry_id, lac=entry_id - 1))[4:]
        await peer.ask(frame_of(messages.AddEntry(LEDGER, entry_id, PASSWORD_KEY, body), 3))
    poll = messages.ReadEntry(LEDGER, -1, None, 0, 100, messages.READ_FLAG_PIGGYBACK)
    frame = await peer.ask(frame_of(poll, 3))
    assert frame is not None
    reply = v3.parse_answer(frame[4:]).reply
    assert isinstance(reply, messages.ReadReply)
    assert (reply.entry_id, reply.body, reply.max_lac) == (-1, None, 3)


async def test_lists_of_many_ranges_wait_for_each_other(served: ServedRpc) -> None:
    peer = await served.connect()
    for first in range(0, 4_000, 500):
        adds = (add(first + 2 * each, b"w", 2) for each in range(250) if each % 7)
        sent = list(adds)
        await peer.send(*sent)
        await answers_of(peer, len(sent), 2)
    lister = await served.connect()
    asked = frame_of(messages.ListEntries(LEDGER), 3)
    await lister.send(*(asked for _ in range(50)))
    frames = [await lister.receive() for _ in range(50)]
    assert len(set(frames)) == 1
    reply = v3.parse_answer((frames[0] or b"")[4:]).reply
    assert isinstance(reply, messages.ListReply)
    assert reply.entries is not None
    listed = [
        each for first, last in parse_entry_list(reply.entries) for each in range(first, last + 1)
    ]
    assert listed == sorted(
        first + 2 * each for first in range(0, 4_000, 500) for each in range(250) if each % 7
    )


async def test_reads_of_a_client_that_has_gone_are_not_executed(tmp_path: Path) -> None:
    """Hundreds of such clients kept a core busy for minutes with reads that nobody waited for."""
    async with serving_rpc(tmp_path, reads_in_progress_bytes_max=8 * MIB) as served:
        peer = await served.connect()
        assert (await peer.ask(add(0, bytes(MIB), 3))) is not None
        peer.writer.write(frame_of(messages.ReadEntry(LEDGER, 0), 3) * 3_000)
        await until(lambda: len(tasks_of_connections()) > REQUESTS_IN_FLIGHT_MAX)
        peer.writer.transport.abort()
        await until(lambda: len(tasks_of_connections()) < 10)
        # Those under way when it went, and those that had been answered before.
        assert served.bookie.measures.reads.granted.count < 200
        assert not served.used_bytes


async def test_many_connections_may_not_have_a_thousand_requests_waiting_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "PLACES_SHARED", 500)
    async with serving_rpc(tmp_path, reads_in_progress_bytes_max=8 * MIB) as served:
        writer = await served.connect()
        assert (await writer.ask(add(0, bytes(MIB), 3))) is not None
        for _ in range(10):
            peer = await served.connect()
            peer.writer.write(frame_of(messages.ReadEntry(LEDGER, 0), 3) * 2_000)
        most = 500 + 10 * service_module.PLACES_OF_EACH
        await until(lambda: len(tasks_of_connections()) >= most)
        await asyncio.sleep(0.1)
        assert len(tasks_of_connections()) < most + 50
        # Who has its own few is served.
        assert (await read(writer, 0)).body is not None
    assert not tasks_of_connections()


async def test_many_connections_may_not_have_a_thousand_polls_with_news_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited for room, each of four kilobytes that nobody counted."""
    monkeypatch.setattr(service_module, "PLACES_SHARED", 500)
    # Who takes nothing has to go soon: whoever asks waits for that.
    settings = {
        "reads_in_progress_bytes_max": 8 * MIB,
        "response_backpressure_timeout_ms": 500,
    }
    async with serving_rpc(tmp_path, **settings) as served:
        writer = await served.connect()
        assert (await writer.ask(add(0, bytes(MIB), 3))) is not None
        confirming = bytes(records([b"x"], 1, ledger_id=LEDGER, lac=0))[4:]
        request = messages.AddEntry(LEDGER, 1, PASSWORD_KEY, confirming)
        assert (await writer.ask(frame_of(request, 3))) is not None
        poll = messages.ReadEntry(LEDGER, -1, None, -1, 30_000, messages.READ_FLAG_PIGGYBACK)
        for _ in range(10):
            peer = await served.connect()
            peer.writer.write(frame_of(poll, 3) * 2_000)
        most = 500 + 10 * service_module.PLACES_OF_EACH
        await until(lambda: len(tasks_of_connections()) >= most)
        await asyncio.sleep(0.1)
        # As many may wait to be told that there are too many.
        assert len(tasks_of_connections()) < 2 * most + 50
        # Who has its own few is served: a poll, and a read.
        reply = await writer.ask(frame_of(poll, 3))
        assert reply is not None
        assert v3.parse_answer(reply[4:]).status is RpcStatus.EOK
        assert (await read(writer, 0)).body is not None
    assert not tasks_of_connections()


async def test_polls_of_whom_is_gone_give_their_places_back(served: ServedRpc) -> None:
    places = served.service._places_of_polls
    before = places.left
    peer = await served.connect()
    await peer.ask(add(0, b"x", 3))
    poll = messages.ReadEntry(LEDGER, -1, None, 5, 30_000, messages.READ_FLAG_PIGGYBACK)
    await peer.send(*(frame_of(poll, 3, number) for number in range(40)))
    await until(lambda: places.left == before - 40 + service_module.PLACES_OF_EACH)
    await peer.close()
    await until(lambda: not tasks_of_connections())
    assert places.left == before


@pytest.mark.parametrize("version", [2, 3])
async def test_answers_that_nobody_takes_are_few_and_are_encoded_in_short_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Three connections with refused adds had ninety megabytes kept, and the event loop stood still for seconds."""
    encoded: list[int] = []
    encode = RpcConnection.encode

    def note(self: RpcConnection, replies: Sequence[SectionReply]) -> bytes:
        encoded.append(sum(reply.answer_count for reply in replies))
        return encode(self, replies)

    monkeypatch.setattr(RpcConnection, "encode", note)
    async with serving_rpc(tmp_path) as served:
        peer = await served.connect()
        assert (await peer.ask(add(0, b"x", 3))) is not None
        fence = messages.ReadEntry(LEDGER, 0, PASSWORD_KEY, flag=messages.READ_FLAG_FENCE)
        assert (await peer.ask(frame_of(fence, 3))) is not None
        # With gaps: so their ids are a list.
        batch = b"".join(add(2 * each + 2, b"", version) for each in range(1_000))
        batches = 200
        loop = asyncio.get_running_loop()
        streams = [each for each in gc.get_objects() if isinstance(each, AddStream)]
        (stream,) = [each for each in streams if each._loop is loop]
        sending = asyncio.create_task(peer.send(*[batch] * batches))
        await until(lambda: stream._answers > ANSWERS_UNSENT_MAX)
        await asyncio.sleep(0.1)
        assert stream._answers <= REPLIES_MAX
        left, rest = batches * 1_000, b""
        while left:
            rest += await peer.reader.read(1 << 20)
            at = 0
            while len(rest) >= at + 4 and len(rest) >= (end := at + 4 + int.from_bytes(rest[at : at + 4])):  # fmt: skip
                at, left = end, left - 1
            rest = rest[at:]
        await sending
        assert sum(encoded) == batches * 1_000 + 1
        assert max(encoded) <= REPLIES_MAX


async def test_a_poll_is_answered_where_the_last_entry_knows_less_than_one_below_it(
    served: ServedRpc, caplog: pytest.LogCaptureFixture
) -> None:
    """As where it was sent anew as it was packaged, and the one below it by a recovery."""
    peer = await served.connect()
    for entry_id, lac, flag in ((10, 7, None), (9, 10, messages.ADD_FLAG_RECOVERY)):
        body = bytes(records([b"z"], entry_id, ledger_id=LEDGER, lac=lac))[4:]
        request = messages.AddEntry(LEDGER, entry_id, PASSWORD_KEY, body, flag=flag)
        assert (await peer.ask(frame_of(request, 3))) is not None
    for timeout_ms in (0, 100):
        poll = messages.ReadEntry(LEDGER, -1, None, 8, timeout_ms, messages.READ_FLAG_PIGGYBACK)
        frame = await peer.ask(frame_of(poll, 3))
        assert frame is not None
        answer = v3.parse_answer(frame[4:])
        assert answer.status is RpcStatus.EOK
        assert isinstance(answer.reply, messages.ReadReply)
        assert answer.reply.entry_id == 9
        assert (answer.reply.max_lac or 0) >= 9
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


@both_versions
async def test_two_large_frames_that_are_no_adds_in_a_row_leave_no_room_held(
    served: ServedRpc, version: int
) -> None:
    peer = await served.connect()
    other = PASSWORD_KEY[::-1]
    assert (await peer.ask(add(0, b"x", version))) is not None
    for entry_id in (1, 2):
        body = entry(entry_id, bytes(2 * MIB), ledger_id=LEDGER + 1)
        request = messages.AddEntry(LEDGER, entry_id, other, body)
        assert (await peer.ask(frame_of(request, version))) is not None
        assert not served.used_bytes
    assert (await peer.ask(add(1, bytes(2 * MIB), version))) is not None


@pytest.mark.parametrize("size", [1_000 * 1024])
async def test_frames_that_are_sent_but_for_their_last_byte_are_no_room_that_nobody_counts(
    tmp_path: Path, size: int
) -> None:
    """A thousand of them took a gigabyte, of which nothing was counted."""
    settings = {"adds_in_progress_bytes_max": FRAME_SIZE_MAX}
    async with serving_rpc(tmp_path, 100, **settings) as served:
        half = [await served.connect() for _ in range(40)]
        for peer in half:
            await peer.send(add(0, bytes(size), 2)[:-1])
        gone = 0
        while gone < 40 - 2 * FRAME_SIZE_MAX // size:
            # Others need the room, and get it.
            other = await served.connect()
            assert (await other.ask(add(0, bytes(size), 3))) is not None
            await other.close()
            gone = sum(peer.reader.at_eof() for peer in half)
        # A few that are late are waited for.
        assert gone < 40
        late = next(peer for peer in half if not peer.reader.at_eof())
        assert (await late.ask(b"\0")) is not None
