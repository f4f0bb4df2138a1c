"""A bookie towards sockets that break the protocol: who errs is told and leaves nothing, and the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookie_server.serving import socket_service
from bookie_server.wire import codec
from bookie_server.wire.envelope import HEAD_SIZE, Head, Kind, Purpose, Reason, encode_head
from bookie_server.wire.limits import FRAME_SIZE_MAX, HEADER_SIZE_MAX
from bookie_server.wire.messages import (
    ListRequest,
    LongPoll,
    ReadLacRequest,
    ReadRequest,
    Status,
)
from bookie_server.wire.record import encode_lac_packet
from tests.doubles.raw_sockets import RawPeer, hello, message
from tests.doubles.records import CRC32C, KEY, encoded_section, write
from tests.doubles.served_sockets import (
    OWN,
    ServedSockets,
    complaints_of,
    serving_sockets,
    statuses_of,
    tasks_of_connections,
)
from tests.doubles.waits import pass_turns, until

pytestmark = pytest.mark.integration

MIB = 1024 * 1024
SETTINGS = ConnectionSettings(
    read_timeout_ms=60_000, add_timeout_ms=60_000, reconnect_timeout_ms=100
)
GOOD = message(Kind.FRAME, encoded_section([b"x"]).data)
READ = codec.encode_read_request(1, ReadRequest(ledger_id=7, first_entry=0, last_entry=9))
GOOD_READ = message(Kind.READ, READ, 1)
POLL = codec.encode_read_lac_request(
    ReadLacRequest(7, long_poll=LongPoll(previous_lac=-1, timeout_ms=20_000))
)
LIST = message(Kind.LIST_ENTRIES, codec.encode_list_entries_request(ListRequest(7, 0)), 99)


@pytest.fixture
async def served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedSockets]:
    async with serving_sockets(tmp_path, adds_in_progress_bytes_max=FRAME_SIZE_MAX) as served:
        yield served
    assert complaints_of(caplog) == []


async def assert_parted(peer: RawPeer, reason: Reason) -> None:
    """The next that comes is the bookie's farewell, and it is its last word."""
    assert (await peer.take()).reason is reason
    peer.close()


# -- who is meant ------------------------------------------------------------------------------------


@pytest.mark.parametrize("meant", [("b:2", "cluster-1"), ("b:1", "cluster-2"), ("b:2", "")])
async def test_of_whom_means_another_bookie_nothing_is_read(
    served: ServedSockets, meant: tuple[str, str]
) -> None:
    peer = await served.connect()
    await peer.send(hello(Purpose.ADDS, *meant), GOOD)
    await assert_parted(peer, Reason.NOT_MEANT)

    client = over_tcp(meant[0], served.address, SETTINGS, meant[1])
    assert await write(client, encoded_section([b"x"])) is Status.UNREACHABLE
    missing = (await client.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=0))).missing
    assert [part.status for part in missing] == [Status.UNREACHABLE]
    fence = ReadLacRequest(7, is_fencing=True, master_key=KEY)
    assert (await client.read_lac(fence)).status is Status.UNREACHABLE
    packet = encode_lac_packet(CRC32C, 7, 0)
    assert await client.write_lac(7, KEY, packet) is Status.UNREACHABLE
    assert await client.info() is None
    assert (await client.list_entries(7)).status is Status.UNREACHABLE
    await client.close()

    assert served.ledgers == set()
    assert served.malformed_count == 0
    await served.until_nothing_is_left()


async def test_each_bookie_that_is_missed_is_named_once_and_in_one_short_line(
    served: ServedSockets, caplog: pytest.LogCaptureFixture
) -> None:
    """Writers look for it twenty times a second; and a name may be longer than a farewell."""
    for name in ("b:2", "b:2", "\nERROR x" * 7_000, "b:2"):
        peer = await served.connect()
        await peer.send(hello(Purpose.ADDS, name))
        await assert_parted(peer, Reason.NOT_MEANT)

    lines = [record.getMessage() for record in caplog.records if "meant" in record.getMessage()]
    assert len(lines) == 2
    assert all("\n" not in line and len(line) < 1_000 for line in lines)


@pytest.mark.parametrize("meant", [("b:1", "cluster-1"), ("b:1", ""), ("", "cluster-1"), ("", "")])
async def test_names_that_are_not_given_are_not_compared(
    served: ServedSockets, meant: tuple[str, str]
) -> None:
    patient = replace(SETTINGS, reconnect_timeout_ms=60_000)
    client = over_tcp(meant[0], served.address, patient, meant[1])
    assert await write(client, encoded_section([b"x"])) is Status.OK
    info = await client.info()
    await client.close()

    assert info is not None
    assert (info.bookie_id, info.instance_id) == (OWN.bookie_id, OWN.instance_id)


# -- what is no message ------------------------------------------------------------------------------

NO_HELLOS = {
    "another protocol": b"GET / HTTP/1.1\r\nHost: b\r\n\r\n",
    "an unknown kind": bytes(HEAD_SIZE),
    "no protobuf": message(Kind.HELLO, b"\xff" * 40),
    "text that is none": message(Kind.HELLO, b"\x0a\x02\xff\xff"),
    "too large": encode_head(Head(Kind.HELLO, HEADER_SIZE_MAX + 1)),
    "a frame": GOOD,
    "a welcome": encode_head(Head(Kind.WELCOME, 2)),
}
NO_FRAMES = {
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "zero that is none": b"\0\x10\0\1" + bytes(12),
    "too large": encode_head(Head(Kind.FRAME, FRAME_SIZE_MAX + 1)),
    "a read": GOOD_READ,
    "a second hello": hello(Purpose.ADDS),
    "empty": message(Kind.FRAME),
    "no sections": message(Kind.FRAME, bytes(MIB)),
    "cut sections": message(Kind.FRAME, encoded_section([b"x"] * 9, 1).data[:-1]),
    "a good one in front": message(Kind.FRAME, encoded_section([b"x"], ledger_id=8).data + b"x"),
}
NO_REQUESTS = {
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "too large": encode_head(Head(Kind.READ, HEADER_SIZE_MAX + 1, 2)),
    "a frame, not sent": encode_head(Head(Kind.FRAME, FRAME_SIZE_MAX)),
    "a reply, not sent": encode_head(Head(Kind.READ_REPLY, FRAME_SIZE_MAX, 1)),
    "a second hello": hello(Purpose.REQUESTS),
    "no read": message(Kind.READ, b"\xff" * 40, 2),
}


@pytest.mark.parametrize("sent", NO_HELLOS.values(), ids=NO_HELLOS)
async def test_what_is_no_hello_ends_the_connection_it_came_by(
    served: ServedSockets, sent: bytes
) -> None:
    other = await served.open(Purpose.ADDS)
    peer = await served.connect()
    await peer.send(sent)

    await assert_parted(peer, Reason.MALFORMED)

    assert served.malformed_count == 1
    await other.send(GOOD)
    other.shut()
    assert statuses_of(await other.rest()) == [Status.OK]
    await served.until_nothing_is_left()


@pytest.mark.parametrize("sent", NO_FRAMES.values(), ids=NO_FRAMES)
async def test_what_is_no_frame_ends_its_connection_behind_the_answers_to_those_before(
    served: ServedSockets, sent: bytes
) -> None:
    other, peer = await served.open(Purpose.REQUESTS), await served.open(Purpose.ADDS)
    await peer.send(GOOD, GOOD, sent, GOOD)

    *answers, last = await peer.until_farewell()

    assert statuses_of(answers) == [Status.OK, Status.OK]
    assert last.reason is Reason.MALFORMED
    assert served.malformed_count == 1
    assert served.ledgers == {7}
    await other.send(GOOD_READ)
    assert (await other.take()).kind is Kind.READ_REPLY
    other.close()
    await served.until_nothing_is_left()


@pytest.mark.parametrize("sent", NO_REQUESTS.values(), ids=NO_REQUESTS)
async def test_what_is_no_request_ends_its_connection_behind_the_replies_to_those_before(
    served: ServedSockets, sent: bytes
) -> None:
    """Of a reply or frame among requests, megabytes were taken in before its kind was looked at."""
    other, peer = await served.open(Purpose.ADDS), await served.open(Purpose.REQUESTS)
    await peer.send(GOOD_READ, LIST, sent)

    *replies, last = await peer.until_farewell()

    assert {(each.kind, each.number) for each in replies} == {
        (Kind.READ_REPLY, 1),
        (Kind.LIST_ENTRIES_REPLY, 99),
    }
    assert last.reason is Reason.MALFORMED
    assert served.malformed_count == 1
    await other.send(GOOD)
    other.shut()
    assert statuses_of(await other.rest()) == [Status.OK]
    await served.until_nothing_is_left()


async def test_two_requests_of_one_number_end_their_connection(served: ServedSockets) -> None:
    peer = await served.open(Purpose.REQUESTS)
    short = codec.encode_read_lac_request(
        ReadLacRequest(7, long_poll=LongPoll(previous_lac=-1, timeout_ms=50))
    )
    await peer.send(message(Kind.READ_LAC, short, 5), message(Kind.INFO, b"", 5))

    reply, last = await peer.until_farewell()

    assert (reply.kind, reply.number) == (Kind.READ_LAC_REPLY, 5)
    assert last.reason is Reason.MALFORMED
    assert served.malformed_count == 1


async def test_a_request_that_does_not_parse_comes_to_nothing_alone(served: ServedSockets) -> None:
    peer = await served.open(Purpose.REQUESTS)
    await peer.send(message(Kind.READ_LAC, b"\xff" * 40, 5))
    first = await peer.take()
    await peer.send(message(Kind.INFO, b"", 5))
    second = await peer.take()

    assert [(each.kind, each.number) for each in (first, second)] == [
        (Kind.NOTHING, 5),
        (Kind.INFO_REPLY, 5),
    ]
    assert served.malformed_count == 1


async def test_a_connection_of_no_known_purpose_is_ended(served: ServedSockets) -> None:
    peer = await served.connect()
    await peer.send(hello(None))

    greeting, last = await peer.until_farewell()

    assert greeting.kind is Kind.WELCOME
    assert last.reason is Reason.MALFORMED
    assert served.malformed_count == 1


# -- who says nothing, or not all --------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 7, HEAD_SIZE, HEAD_SIZE + 2])
async def test_who_does_not_say_hello_in_time_is_not_waited_for(
    served: ServedSockets, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    welcomed = await served.open(Purpose.ADDS)
    monkeypatch.setattr(socket_service, "HELLO_WITHIN_S", 0.02)
    peer = await served.connect()
    await peer.send(hello(Purpose.ADDS)[:size])

    assert await peer.rest() == []

    # Whoever has said it may be silent as long as it likes.
    await until(lambda: tasks_of_connections().count("serve-connection") == 1)
    await welcomed.send(GOOD)
    assert statuses_of([await welcomed.take()]) == [Status.OK]


@pytest.mark.parametrize("how", ["shut", "close", "reset"])
@pytest.mark.parametrize("part", [3, HEAD_SIZE, HEAD_SIZE + 9, MIB])
async def test_a_connection_that_ends_within_a_frame_leaves_nothing_of_it(
    served: ServedSockets, how: str, part: int
) -> None:
    peer = await served.open(Purpose.ADDS)
    large = message(Kind.FRAME, encoded_section([bytes(3 * MIB)], ledger_id=8).data)
    await peer.send(GOOD)
    assert statuses_of([await peer.take()]) == [Status.OK]
    await peer.send(large[:part])
    if part >= HEAD_SIZE:
        await until(lambda: served.service.memory.promises.used_bytes > 3 * MIB)

    getattr(peer, how)()

    await served.until_nothing_is_left()
    assert served.ledgers == {7}
    assert served.malformed_count == 0


async def test_a_poll_that_is_given_up_is_forgotten_and_its_number_free(
    served: ServedSockets,
) -> None:
    peer = await served.open(Purpose.REQUESTS)
    await peer.send(message(Kind.READ_LAC, POLL, 1), message(Kind.READ_LAC, POLL, 2))
    await until(lambda: served.bookie.lac_watch.waiter_count == 2)

    await peer.send(message(Kind.GIVE_UP, b"", 1), message(Kind.GIVE_UP, b"", 77))
    await until(lambda: served.bookie.lac_watch.waiter_count == 1)

    await peer.send(message(Kind.INFO, b"", 1))
    found = await peer.take()
    assert (found.kind, found.number) == (Kind.INFO_REPLY, 1)


@pytest.mark.parametrize("how", ["shut", "close", "reset"])
async def test_polls_of_whom_is_gone_are_forgotten_at_once(
    served: ServedSockets, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """They were served to their end, up to 30 s long, and kept the places of others."""
    waiting = 0

    async def wait(*_: int) -> bool:
        nonlocal waiting
        waiting += 1
        try:
            return await asyncio.Event().wait()
        finally:
            waiting -= 1

    monkeypatch.setattr(served.bookie.lac_watch, "wait", wait)
    peer = await served.open(Purpose.REQUESTS)
    await peer.send(message(Kind.READ_LAC, POLL, 1), message(Kind.READ_LAC, POLL, 2))
    await until(lambda: waiting == 2)

    getattr(peer, how)()

    await until(lambda: waiting == 0)
    await served.until_nothing_is_left()


async def test_a_frame_that_comes_while_the_bookie_drains_or_its_cache_is_full_is_not_taken(
    served: ServedSockets,
) -> None:
    """Behind frames that were taken where they came, with no task in between that could look."""
    peers = [await served.open(Purpose.ADDS) for _ in range(2)]
    for entry_id, peer in enumerate(peers):
        await peer.send(message(Kind.FRAME, encoded_section([b"x"], entry_id).data))
        assert statuses_of([await peer.take()]) == [Status.OK]

    served.bookie._room.clear()
    await peers[0].send(message(Kind.FRAME, encoded_section([b"x"], 2).data))
    await pass_turns(100)
    assert served.bookie.storage.contents.last_entry(7) == 1
    served.bookie._room.set()
    assert statuses_of([await peers[0].take()]) == [Status.OK]

    served.service.is_draining = True
    await peers[1].send(message(Kind.FRAME, encoded_section([b"x"], 3).data))
    assert statuses_of(await peers[1].rest()) == []
    assert served.bookie.storage.contents.last_entry(7) == 2


async def test_a_stopped_service_ends_everything(served: ServedSockets) -> None:
    adds, requests = await served.open(Purpose.ADDS), await served.open(Purpose.REQUESTS)
    silent = await served.connect()
    await adds.send(encode_head(Head(Kind.FRAME, MIB)))
    await requests.send(message(Kind.READ_LAC, POLL, 1))
    await until(lambda: served.bookie.lac_watch.waiter_count == 1 and served.used_bytes >= MIB)
    await until(lambda: tasks_of_connections().count("serve-connection") == 3)

    await served.sockets.stop()

    assert [await peer.rest() for peer in (adds, requests, silent)] == [[], [], []]
    assert tasks_of_connections() == []
    assert (served.used_bytes, served.bookie.lac_watch.waiter_count) == (0, 0)
