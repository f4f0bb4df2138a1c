"""The service over gRPC, directly and through a relay, and over sockets: long polls, and frames of many sections."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from bookie_server.bookie import Bookie
from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.interface import BookieClient
from bookie_server.client.relay import RelayedBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookie_server.core.effects import Effect, ReplyTo
from bookie_server.serving.reads import READS_IN_FLIGHT_MAX
from bookie_server.wire import add_frames
from bookie_server.wire.messages import (
    BookieInfo,
    EntryList,
    IdRange,
    LongPoll,
    ReadLacReply,
    ReadLacRequest,
    ReadRequest,
    Section,
    Status,
    StoredReply,
)
from bookie_server.wire.record import encode_lac_packet, parse_run
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.records import CRC32C, KEY, encoded_section, write
from tests.doubles.serving import MakeClient, Ports, serving_all
from tests.doubles.storage import start_bookie
from tests.doubles.waits import until
from tests.patience import seconds

pytestmark = pytest.mark.integration

SETTINGS = ConnectionSettings(read_timeout_ms=2_000)

Served = tuple[Bookie, BookieClient, Ports]
SLOW_ADD_S = 0.02
"""Less than half of what a step of the loop may take."""
POLL = ReadLacRequest(7, long_poll=LongPoll(previous_lac=-1, timeout_ms=20_000))


@asynccontextmanager
async def serving(place: Path, make_client: MakeClient) -> AsyncIterator[Served]:
    """A bookie behind a real port, and its client."""
    bookie = await start_bookie(place)
    try:
        async with serving_all(bookie, BookieInfo("b:1"), place) as ports:
            client = make_client("b:1", ports.address(make_client), SETTINGS)
            try:
                yield bookie, client, ports
            finally:
                await client.close()
    finally:
        await bookie.stop()


@pytest.fixture(
    params=[
        pytest.param(GrpcBookieClient, id="grpc"),
        pytest.param(RelayedBookieClient, id="relay", marks=pytest.mark.slow),
        pytest.param(over_tcp, id="sockets"),
    ]
)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, request.param) as everything:
        yield everything


async def waiters(bookie: Bookie, count: int) -> None:
    await until(lambda: bookie.lac_watch.waiter_count == count)


async def test_a_poll_is_answered_by_news_or_by_its_timeout(served: Served) -> None:
    bookie, client, _ = served
    assert await write(client, encoded_section([b"x"] * 3)) is Status.OK
    waiting = asyncio.create_task(client.read_lac(POLL))
    await waiters(bookie, 1)
    short = LongPoll(previous_lac=-1, timeout_ms=5)
    assert await client.read_lac(ReadLacRequest(7, long_poll=short)) == ReadLacReply(Status.OK)

    packet = encode_lac_packet(CRC32C, 7, 2)
    assert await client.write_lac(7, KEY, packet) is Status.OK
    async with asyncio.timeout(seconds(5)):
        reply = await waiting

    assert (reply.status, reply.explicit_lac) == (Status.OK, packet)
    assert parse_run(reply.records).entry_ids == range(3)
    assert bookie.lac_watch.waiter_count == 0


async def test_a_poll_that_is_given_up_is_forgotten_by_the_bookie(served: Served) -> None:
    bookie, client, _ = served
    waiting = [asyncio.create_task(client.read_lac(POLL)) for _ in range(3)]
    await waiters(bookie, 3)

    waiting[0].cancel()
    await waiters(bookie, 2)
    await client.close()
    await waiters(bookie, 0)

    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)


async def test_a_fence_does_not_wait_behind_reads_that_are_not_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over sockets it was not even read: a bookie serves so many reads of a client, and the rest waits there."""
    bookie, client, _ = served
    count = 0

    async def read(*_: object) -> StoredReply:
        nonlocal count
        count += 1
        return await asyncio.Event().wait()  # type: ignore[return-value]

    monkeypatch.setattr(bookie, "read", read)
    request = ReadRequest(ledger_id=7, first_entry=0, last_entry=0)
    reads = [asyncio.create_task(client.read(request)) for _ in range(2 * READS_IN_FLIGHT_MAX)]
    await until(lambda: count == READS_IN_FLIGHT_MAX)

    fence = ReadLacRequest(7, is_fencing=True, master_key=KEY)
    assert (await client.read_lac(fence)).status is Status.NO_ENTRY

    await end_tasks(reads)


async def test_a_poll_at_a_bookie_that_stops_comes_back_with_nothing(served: Served) -> None:
    bookie, client, ports = served
    waiting = asyncio.create_task(client.read_lac(POLL))
    await waiters(bookie, 1)

    await ports.stop()

    assert (await waiting).status in (Status.UNREACHABLE, Status.NO_LEDGER)
    await waiters(bookie, 0)


@pytest.mark.slow
async def test_a_read_timeout_does_not_cut_a_longer_poll_short(tmp_path: Path) -> None:
    def impatient(bookie_id: str, address: str, _: ConnectionSettings) -> BookieClient:
        return GrpcBookieClient(bookie_id, address, ConnectionSettings(read_timeout_ms=300))

    async with serving(tmp_path, impatient) as (_, client, _):
        poll = LongPoll(previous_lac=-1, timeout_ms=500)

        assert (await client.read_lac(ReadLacRequest(7, long_poll=poll))).status is Status.NO_LEDGER


async def test_others_are_served_between_the_sections_of_a_frame(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them in one frame kept the event loop to themselves for seconds."""
    bookie, client, _ = served
    turn, turns_of_adds, turns_of_parsing = 0, set[int](), set[int]()
    parse = add_frames.sections_of

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def take_long() -> int:
        until_s = time.monotonic() + SLOW_ADD_S
        while time.monotonic() < until_s:
            pass
        return turn

    def sections_of(frame: bytes) -> Iterator[Section]:
        for section in parse(frame):
            turns_of_parsing.add(take_long())
            yield section

    def add(section: Section, to: ReplyTo, client: str) -> None:
        turns_of_adds.add(take_long())
        Bookie.add(bookie, section, to, client)

    monkeypatch.setattr(add_frames, "sections_of", sections_of)
    monkeypatch.setattr(bookie, "add", add)
    counting = asyncio.create_task(count_turns())

    answers = [write(client, encoded_section([b"x"], entry_id)) for entry_id in range(20)]
    assert await asyncio.gather(*answers) == [Status.OK] * 20

    counting.cancel()
    assert len(turns_of_adds) == 20
    # A few may have been looked at before, to see whether the frame has only those.
    assert len(turns_of_parsing) in (20, 21)


async def test_a_defect_while_a_read_or_a_duplicate_is_served_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were left unanswered until their client's timeout."""
    bookie, client, _ = served
    assert await write(client, encoded_section([b"x"])) is Status.OK
    defect = Mock(side_effect=ZeroDivisionError)
    monkeypatch.setattr(bookie.storage.contents, "plan_read", defect)

    async with asyncio.timeout(seconds(1)):
        reply = await client.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=3))
        again = await write(client, encoded_section([b"x"]))

    assert reply.missing == (IdRange(0, 3, Status.UNKNOWN),)
    assert again is Status.UNKNOWN
    assert defect.call_count == 2


async def test_a_defect_while_an_add_is_admitted_is_answered_and_others_go_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the stream of all the client's writers, which sent it again until they gave up."""
    bookie, client, _ = served
    admit = bookie._admission.add

    def add(section: Section, to: ReplyTo, client: str) -> list[Effect]:
        if section.run.first_entry == 1:
            raise ZeroDivisionError
        return admit(section, to, client)

    monkeypatch.setattr(bookie._admission, "add", add)

    async with asyncio.timeout(seconds(5)):
        answers = [write(client, encoded_section([b"x"], entry_id)) for entry_id in range(3)]
        assert await asyncio.gather(*answers) == [Status.OK, Status.UNKNOWN, Status.OK]


CALLS: dict[str, Callable[[BookieClient], Awaitable[Status]]] = {
    "write_lac": lambda client: client.write_lac(7, KEY, encode_lac_packet(CRC32C, 7, -1)),
    "read_lac": lambda client: status_of(client.read_lac(ReadLacRequest(7))),
    "list_entries": lambda client: status_of(client.list_entries(7)),
}
"""By what of the bookie they call: those of one request each."""


async def status_of(reply: Awaitable[ReadLacReply | EntryList]) -> Status:
    return (await reply).status


@pytest.mark.parametrize("call", CALLS)
async def test_a_defect_ends_the_call_it_comes_from_and_no_other(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, GrpcBookieClient) as (bookie, client, _):
        with monkeypatch.context() as planted:
            planted.setattr(bookie, call, Mock(side_effect=ZeroDivisionError))
            async with asyncio.timeout(seconds(5)):
                assert await CALLS[call](client) is Status.UNREACHABLE

        assert await CALLS[call](client) in (Status.OK, Status.NO_LEDGER)
        assert not bookie.failed.done()


async def test_a_reply_that_cannot_be_encoded_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard ended with the reply's making: its encoding lay outside."""
    async with serving(tmp_path, GrpcBookieClient) as (bookie, client, _):
        no_number = StoredReply((), (), 2**70)
        monkeypatch.setattr(bookie, "read", AsyncMock(return_value=no_number))

        reply = await client.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=3))

    assert reply.missing == (IdRange(0, 3, Status.UNKNOWN),)


async def test_one_run_finds_what_became_of_an_add_at_both_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "bookie_server")
    async with serving(tmp_path, GrpcBookieClient) as (bookie, client, _):
        assert await write(client, encoded_section([b"x"] * 3)) is Status.OK
        assert await bookie.fence(7, KEY) is Status.OK
        assert await write(client, encoded_section([b"y"], 3)) is Status.FENCED

    said = {
        (record.name.rpartition(".")[2], record.args[0], record.args[-2:])  # type: ignore[index]
        for record in caplog.records
        if "run=" in record.msg
    }
    assert {(where, run) for where, run, _ in said} == {
        (where, run) for where in ("adds", "write_stream") for run in ("7:0-2", "7:3-3")
    }
    assert ("write_stream", "7:3-3", ("b:1", "FENCED")) in said
