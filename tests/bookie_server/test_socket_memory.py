"""A bookie towards sockets that take its room, its time or its places: the others get theirs."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bookie_server.carrier import sockets
from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookie_server.core.effects import ReplyTo
from bookie_server.memory import frames
from bookie_server.memory.budget import Room
from bookie_server.serving.adds import ANSWERS_UNSENT_MAX
from bookie_server.wire import codec
from bookie_server.wire.envelope import Head, Kind, Purpose, Reason, encode_head
from bookie_server.wire.limits import (
    ENTRY_SIZE_MAX,
    FRAME_SIZE_MAX,
    PIECE_SIZE_MAX,
    READ_SIZE_BYTES_MAX,
)
from bookie_server.wire.messages import (
    EntryList,
    IdRange,
    ListRequest,
    ReadLacRequest,
    ReadRequest,
    Section,
    Status,
    StoredReply,
)
from tests.doubles.raw_sockets import RawPeer, hello, message
from tests.doubles.records import add, encoded_section, section, write
from tests.doubles.served_sockets import (
    ServedSockets,
    complaints_of,
    serving_sockets,
    statuses_of,
    tasks_of_connections,
)
from tests.doubles.waits import pass_turns, until
from tests.patience import seconds

pytestmark = pytest.mark.integration

MIB = 1024 * 1024
SETTINGS = ConnectionSettings(
    read_timeout_ms=60_000, add_timeout_ms=60_000, reconnect_timeout_ms=10_000
)
BUDGET = {"adds_in_progress_bytes_max": 8 * MIB, "reads_in_progress_bytes_max": 8 * MIB}
GOOD = message(Kind.FRAME, encoded_section([b"x"]).data)
LIST = message(Kind.LIST_ENTRIES, codec.encode_list_entries_request(ListRequest(7, 0)), 99)
LARGE_LAC = message(Kind.READ_LAC, codec.encode_read_lac_request(ReadLacRequest(7)), 1)


@pytest.fixture
async def served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedSockets]:
    settings = {**BUDGET, "response_backpressure_timeout_ms": 50}
    async with serving_sockets(tmp_path, **settings) as served:
        yield served
    assert complaints_of(caplog) == []


@pytest.fixture
async def client(served: ServedSockets) -> AsyncIterator[BookieClient]:
    client = over_tcp("b:1", served.address, SETTINGS)
    yield client
    await client.close()


def read_of(number: int, entry_id: int) -> bytes:
    request = ReadRequest(ledger_id=7, first_entry=entry_id, last_entry=entry_id)
    return message(Kind.READ, codec.encode_read_request(number, request), number)


# -- what is large -----------------------------------------------------------------------------------


async def test_the_largest_frames_and_replies_go_through_whole(
    served: ServedSockets, client: BookieClient
) -> None:
    overhead = len(encoded_section([bytes(MIB)]).data) - MIB
    payload = bytes(FRAME_SIZE_MAX // 2 - overhead)
    frame = b"".join(encoded_section([payload], number).data for number in range(2))
    assert len(frame) == FRAME_SIZE_MAX
    peer = await served.open(Purpose.ADDS)

    await peer.send(message(Kind.FRAME, frame))

    peer.shut()
    assert statuses_of(await peer.rest()) == [Status.OK, Status.OK]
    largest = encoded_section([bytes(ENTRY_SIZE_MAX - overhead)], ledger_id=8)
    assert await write(client, largest) is Status.OK
    reply = await client.read(ReadRequest(ledger_id=8, first_entry=0, last_entry=0))
    assert [run.size_bytes > ENTRY_SIZE_MAX - 1_000 for run in reply.runs] == [True]
    many = encoded_section([bytes(1_000)] * (READ_SIZE_BYTES_MAX // 1_000), ledger_id=9)
    assert await write(client, many) is Status.OK
    request = ReadRequest(
        ledger_id=9, first_entry=0, last_entry=10_000, size_bytes_max=READ_SIZE_BYTES_MAX
    )
    (run,) = (await client.read(request)).runs
    assert READ_SIZE_BYTES_MAX - 2_000 < run.size_bytes <= READ_SIZE_BYTES_MAX
    await until(lambda: served.used_bytes == 0)


# -- who does not send -------------------------------------------------------------------------------


async def test_who_announces_a_frame_and_stalls_makes_way_for_others(
    served: ServedSockets, client: BookieClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, it may take its time."""
    monkeypatch.setattr(frames, "STALLED_AFTER_S", 0.01)
    large = message(Kind.FRAME, encoded_section([bytes(5 * MIB - 1_000)]).data)
    peer = await served.open(Purpose.ADDS)
    await peer.send(large[:100])
    await until(lambda: served.used_bytes > 5 * MIB)
    await asyncio.sleep(0.05)
    await peer.send(large[100:])
    assert statuses_of([await peer.take()]) == [Status.OK]
    await until(lambda: served.used_bytes == 0)
    await peer.send(large[:100])
    await until(lambda: served.used_bytes > 5 * MIB)

    # The other has not stalled, however slow the machine is.
    monkeypatch.setattr(frames, "STALLED_AFTER_S", seconds(60))
    assert await write(client, encoded_section([bytes(3 * MIB)], ledger_id=8)) is Status.OK

    assert (await peer.take()).reason is Reason.NO_ROOM
    peer.close()
    assert served.malformed_count == 0
    await until(lambda: served.used_bytes == 0)


async def test_the_time_for_a_large_frame_begins_anew_with_each_part_of_it(
    served: ServedSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large entry had to come within half a second where others waited: never, from far away."""
    lent: list[float | None] = []
    lend = Room.lend

    def count(room: Room, take_back: object, patience_s: float | None = None) -> None:
        lent.append(patience_s)
        lend(room, take_back, patience_s)  # type: ignore[arg-type]

    monkeypatch.setattr(Room, "lend", count)
    peer = await served.open(Purpose.ADDS)

    await peer.send(message(Kind.FRAME, encoded_section([bytes(5 * MIB - 1_000)]).data))

    assert statuses_of([await peer.take()]) == [Status.OK]
    assert len(lent) >= 2 * 5 * MIB // PIECE_SIZE_MAX
    assert set(lent) == {frames.STALLED_AFTER_S}


async def test_small_frames_wait_for_no_frame_that_others_announce(
    served: ServedSockets, client: BookieClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waited its turn behind all that was announced and did not come."""
    monkeypatch.setattr(frames, "STALLED_AFTER_S", seconds(60))
    for _ in range(4):
        peer = await served.open(Purpose.ADDS)
        await peer.send(encode_head(Head(Kind.FRAME, 3 * MIB)))
    await until(lambda: served.service.memory.promises.waiting_count == 3)

    async with asyncio.timeout(seconds(5)):
        assert await write(client, encoded_section([b"x"])) is Status.OK


# -- who does not take -------------------------------------------------------------------------------


async def test_a_reader_that_takes_nothing_is_cut_off_when_others_need_its_room(
    served: ServedSockets, client: BookieClient
) -> None:
    for entry_id in range(3):
        await add(served.bookie, section([bytes(3 * MIB)], entry_id, lac=entry_id - 1))
    greedy = await served.open(Purpose.REQUESTS, takes_little=True)
    await greedy.send(*(read_of(number, number % 3) for number in range(50)))
    budget = served.bookie.reads_in_progress
    await until(lambda: budget.waiting_count > 0)

    # Adds have room of their own, whoever sends them.
    writer = await served.open(Purpose.ADDS)
    await writer.send(message(Kind.FRAME, encoded_section([b"x"], ledger_id=8).data))
    assert statuses_of([await writer.take()]) == [Status.OK]
    assert budget.used_bytes <= 8 * MIB
    assert tasks_of_connections().count("serve-connection") == 2

    for entry_id in range(3):
        request = ReadRequest(ledger_id=7, first_entry=entry_id, last_entry=entry_id)
        assert not (await client.read(request)).missing
        assert budget.used_bytes <= 8 * MIB
    assert len(await greedy.rest()) <= 1
    await until(lambda: served.used_bytes == 0)


async def test_a_reply_keeps_its_room_when_it_is_given_up_on_its_way(
    served: ServedSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed in memory and its room was given to the next: each giving up cost megabytes."""
    await add(served.bookie, section([bytes(3 * MIB)]))
    asked, list_entries = asyncio.Event(), served.bookie.list_entries

    def watched(request: ListRequest) -> EntryList:
        asked.set()
        return list_entries(request)

    monkeypatch.setattr(served.bookie, "list_entries", watched)
    peer = await served.open(Purpose.REQUESTS, takes_little=True)
    await peer.send(LARGE_LAC)
    await until(lambda: served.used_bytes > 6 * MIB)

    await peer.send(message(Kind.GIVE_UP, b"", 1), LIST)
    await asked.wait()
    await pass_turns(10)

    assert served.used_bytes > 6 * MIB
    found = [await peer.take(), await peer.take()]
    assert [(each.kind, each.number) for each in found] == [
        (Kind.READ_LAC_REPLY, 1),
        (Kind.LIST_ENTRIES_REPLY, 99),
    ]
    await until(lambda: served.used_bytes == 0)


async def test_a_reply_without_room_does_not_keep_the_room_of_those_behind_it(
    served: ServedSockets, client: BookieClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a reply with room of its own was asked to go."""
    await add(served.bookie, section([bytes(9 * MIB // 2)]))
    held = tuple(IdRange(2 * number, 2 * number, Status.OK) for number in range(4_096))
    listed, may_read, read = asyncio.Event(), asyncio.Event(), served.bookie.read

    def list_entries(_: ListRequest) -> EntryList:
        listed.set()
        return EntryList(Status.OK, held)

    async def slow(request: ReadRequest, room: Room) -> StoredReply:
        await may_read.wait()
        return await read(request, room)

    monkeypatch.setattr(served.bookie, "list_entries", list_entries)
    monkeypatch.setattr(served.bookie, "read", slow)
    # The kernel's patience is not what this is about.
    monkeypatch.setattr(sockets, "_UNANSWERED_MAX_MS", 600_000)
    greedy = await served.open(Purpose.REQUESTS, takes_little=True)
    await greedy.send(read_of(1, 0), LIST)
    await listed.wait()
    await pass_turns(10)
    may_read.set()
    await until(lambda: 4 * MIB < served.used_bytes < 8 * MIB)

    reply = await client.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=0))

    assert not reply.missing
    assert await greedy.rest() == []


@pytest.mark.parametrize("how", ["takes", "close", "reset"])
async def test_a_writer_that_takes_no_answers_is_read_no_further(
    served: ServedSockets, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """When such a writer went, its connection stayed, and kept a place from others."""
    count, sent_count = 0, 20 * ANSWERS_UNSENT_MAX

    def refuse(_: Section, to: ReplyTo, __: str) -> None:
        nonlocal count
        count += 1
        to(Status.FENCED)

    monkeypatch.setattr(served.bookie, "add", refuse)
    peer = await served.open(Purpose.ADDS, takes_little=True)
    sending = asyncio.create_task(peer.send(*[GOOD] * sent_count))
    await until(lambda: count > ANSWERS_UNSENT_MAX)
    await pass_turns(1_000)
    assert count < sent_count // 2

    if how == "takes":
        found: list[Status] = []
        while len(found) < sent_count:
            found += statuses_of([await peer.take()])
        await sending
    else:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        getattr(peer, how)()
        await served.until_nothing_is_left()


async def test_nobody_misses_the_outcome_of_requests_whose_client_is_gone(
    served: ServedSockets,
) -> None:
    """The event loop complained of each; the fixture looks."""
    await add(served.bookie, section([bytes(MIB)]))
    peer = await served.open(Purpose.REQUESTS, takes_little=True)
    # More than are read at once, so that nobody receives when it goes.
    await peer.send(LARGE_LAC, LIST, *(read_of(number, 0) for number in range(2, 99)))
    await until(lambda: served.used_bytes > 2 * MIB)

    peer.reset()

    await served.until_nothing_is_left()


# -- who takes time, or places -----------------------------------------------------------------------


@contextmanager
def flooding(address: str, first: bytes, message: bytes) -> Iterator[None]:
    """Say these, the second as fast as it goes, from another thread until the end or a refusal."""
    host, port = address.rsplit(":", 1)
    many = message * (MIB // len(message))
    with socket.create_connection((host, int(port))) as flooded:

        def flood() -> None:
            with suppress(OSError):
                flooded.sendall(first)
                while True:
                    flooded.sendall(many)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            yield
        finally:
            with suppress(OSError):
                flooded.shutdown(socket.SHUT_RDWR)
            thread.join()


FLOODS = {
    "given up": (hello(Purpose.REQUESTS), message(Kind.GIVE_UP, b"", 1)),
    "behind a farewell": (b"GET / HTTP/1.1\r\n\r\n", b"no message"),
}


@pytest.mark.parametrize(("first", "many"), FLOODS.values(), ids=FLOODS)
async def test_who_sends_faster_than_is_taken_does_not_keep_the_loop_to_itself(
    served: ServedSockets, client: BookieClient, first: bytes, many: bytes
) -> None:
    """While its bytes were there, nothing else was done: no answer, no registration, no timer."""
    with flooding(served.address, first, many):
        await until(lambda: tasks_of_connections() == ["serve-connection"])
        for entry_id in range(3):
            assert await write(client, encoded_section([b"x"], entry_id)) is Status.OK
            assert await client.info() is not None


async def test_connections_beyond_the_maximum_are_refused_until_one_goes(tmp_path: Path) -> None:
    async with serving_sockets(tmp_path, connections_max=2) as served:
        first, second = await served.open(Purpose.ADDS), await served.open(Purpose.REQUESTS)
        third: RawPeer = await served.connect()
        assert await third.rest() == []
        client = over_tcp("b:1", served.address, SETTINGS)
        waiting = asyncio.create_task(write(client, encoded_section([b"x"], 1)))
        await first.send(GOOD)
        assert statuses_of([await first.take()]) == [Status.OK]

        second.close()

        # Its writer has tried again and again.
        assert await waiting is Status.OK
        await client.close()
        await first.send(encode_head(Head(Kind.FRAME, 0)))
        assert (await first.take()).reason is Reason.MALFORMED
