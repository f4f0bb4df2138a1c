"""Every BookieClient says the same of a bookie, whatever carries it; what a protocol cannot say is named here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.client.connecting import connect_to
from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.interface import BookieClient
from bookie_server.client.local import LocalBookieClient
from bookie_server.client.settings import AUTO, RPC_V2, RPC_V3, ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookie_server.wire.limits import ENTRY_SIZE_MAX
from bookie_server.wire.messages import (
    BookieInfo,
    IdRange,
    LongPoll,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
)
from bookie_server.wire.record import RECORD_OVERHEAD, encode_lac_packet, parse_header
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.endpoints import BOOKIE_RPC, GRPC, SOCKET
from tests.doubles.certificates import Authority, serving_with, settings_of
from tests.doubles.records import CRC32C, KEY, encode_copy, encoded_section, records, write
from tests.doubles.serving import over_rpc_v2, over_rpc_v3, serving_all
from tests.doubles.storage import start_bookie
from tests.doubles.waits import until

pytestmark = pytest.mark.integration

SETTINGS = ConnectionSettings(read_timeout_ms=20_000, add_timeout_ms=20_000)
LEDGER = 7
MIB = 1024 * 1024


@dataclass(frozen=True)
class Reached:
    """A bookie, and a client that reaches it in some way."""

    bookie: Bookie
    client: BookieClient
    has_sections: bool
    """Whether the protocol adds many entries as one, and tells of every id that is missing."""

    async def read(self, first: int, last: int, **how: object) -> ReadReply:
        request = ReadRequest(ledger_id=LEDGER, first_entry=first, last_entry=last, **how)  # type: ignore[arg-type]
        return await self.client.read(request)


@asynccontextmanager
async def in_process(place: Path) -> AsyncIterator[Reached]:
    bookie = await start_bookie(place)
    try:
        yield Reached(bookie, LocalBookieClient("b:1", bookie), has_sections=True)
    finally:
        await bookie.stop()


def over(
    make_client: Callable[..., BookieClient], *, has_sections: bool = True
) -> Callable[..., object]:
    @asynccontextmanager
    async def reached(place: Path) -> AsyncIterator[Reached]:
        bookie = await start_bookie(place)
        try:
            async with serving_all(bookie, BookieInfo("b:1"), place) as ports:
                client = make_client("b:1", ports.address(make_client), SETTINGS)
                try:
                    yield Reached(bookie, client, has_sections)
                finally:
                    await client.close()
        finally:
            await bookie.stop()

    return reached


def over_tls(
    protocol: str, bookie_protocol: str = AUTO, *, has_sections: bool = True
) -> Callable[..., object]:
    @asynccontextmanager
    async def reached(place: Path) -> AsyncIterator[Reached]:
        authority = Authority(place / "certificates")
        tls = serving_with(authority.files("bookie"))
        settings = replace(SETTINGS, **settings_of(authority.files("task")))
        bookie = await start_bookie(place)
        try:
            async with serving_all(bookie, BookieInfo("b:1"), place, tls) as ports:
                endpoint = ports.endpoint(protocol)
                client = connect_to("b:1", endpoint, settings, bookie_protocol=bookie_protocol)
                try:
                    yield Reached(bookie, client, has_sections)
                finally:
                    await client.close()
        finally:
            await bookie.stop()

    return reached


WAYS = {
    "in-process": in_process,
    "grpc": over(GrpcBookieClient),
    "sockets": over(over_tcp),
    "rpc-v2": over(over_rpc_v2, has_sections=False),
    "rpc-v3": over(over_rpc_v3, has_sections=False),
    "tls-grpc": over_tls(GRPC),
    "tls-sockets": over_tls(SOCKET),
    "tls-rpc-v2": over_tls(BOOKIE_RPC, RPC_V2, has_sections=False),
    "tls-rpc-v3": over_tls(BOOKIE_RPC, RPC_V3, has_sections=False),
}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
async def reached(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reached]:
    async with request.param(tmp_path) as reached:
        yield reached


def ids_in(reply: ReadReply) -> list[int]:
    return [entry_id for run in reply.runs for entry_id in run.entry_ids]


def status_of(reply: ReadReply, entry_id: int) -> Status:
    """What a reply says of an id; OK: it brings the entry."""
    if entry_id in ids_in(reply):
        return Status.OK
    (span,) = [each for each in reply.missing if each.first_entry <= entry_id <= each.last_entry]
    return span.status


async def fence(reached: Reached, key: bytes = KEY) -> Status:
    request = ReadLacRequest(LEDGER, is_fencing=True, master_key=key)
    return (await reached.client.read_lac(request)).status


# -- adds ----------------------------------------------------------------------------------------------


async def test_what_was_added_is_read_again(reached: Reached) -> None:
    payloads = [b"x" * size for size in (0, 1, 1_000, 70_000, 5)]
    section = encoded_section(payloads)
    assert await write(reached.client, section) is Status.OK
    reply = await reached.read(0, 4)
    assert ids_in(reply) == [0, 1, 2, 3, 4]
    assert not reply.missing
    assert b"".join(bytes(run.data) for run in reply.runs) in section.data


async def test_sections_of_many_entries_at_once_are_all_answered(reached: Reached) -> None:
    """More entries than Apache's bookies take at a time, of two ledgers."""
    answers: list[Status] = []
    for ledger_id in (LEDGER, 8):
        before = 0
        for first in range(0, 8_000, 500):
            section = encoded_section(
                [b"y" * 100] * 500, first, ledger_id=ledger_id, length_before=before
            )
            before += 50_000
            reached.client.write(section, answers.append)
    await until(lambda: len(answers) == 32)
    assert set(answers) == {Status.OK}
    assert status_of(await reached.read(7_999, 7_999), 7_999) is Status.OK


async def test_the_same_add_again_is_the_same_answer(reached: Reached) -> None:
    section = encoded_section([b"x", b"y"])
    first, second = await asyncio.gather(
        write(reached.client, section), write(reached.client, section)
    )
    assert (first, second) == (Status.OK, Status.OK)
    assert await write(reached.client, section) is Status.OK


async def test_another_entry_under_the_same_id_is_refused(reached: Reached) -> None:
    """Apache's protocol has no word for why."""
    assert await write(reached.client, encoded_section([b"first"])) is Status.OK
    status = await write(reached.client, encoded_section([b"other"]))
    assert status is (Status.CONFLICT if reached.has_sections else Status.UNKNOWN)
    assert b"first" in bytes((await reached.read(0, 0)).runs[0].data)


async def test_the_largest_entry(reached: Reached) -> None:
    payload = bytes(range(256)) * ((ENTRY_SIZE_MAX - RECORD_OVERHEAD) // 256)
    assert await write(reached.client, encoded_section([payload])) is Status.OK
    (run,) = (await reached.read(0, 0)).runs
    assert bytes(run.data).endswith(payload)


# -- reads ---------------------------------------------------------------------------------------------


async def test_of_an_entry_that_was_never_added_it_says_so(reached: Reached) -> None:
    assert status_of(await reached.read(0, 0), 0) is Status.NO_LEDGER
    assert await write(reached.client, encoded_section([b"x"], 3)) is Status.OK
    assert status_of(await reached.read(0, 0), 0) is Status.NO_ENTRY
    assert status_of(await reached.read(4, 9), 4) is Status.NO_ENTRY


async def test_what_is_missing_in_between_is_never_taken_for_what_is_not_reached(
    reached: Reached,
) -> None:
    """And the other way round: whoever asks on, from the first id not reached, has a status for every id."""
    assert await write(reached.client, encoded_section([b"a", b"b"], 0)) is Status.OK
    assert await write(reached.client, encoded_section([b"d"], 3, length_before=2)) is Status.OK
    found: dict[int, Status] = {}
    at = 0
    while at <= 5:
        reply = await reached.read(at, 5)
        statuses = {each: status_of(reply, each) for each in range(at, 6)}
        reached_now = {k: v for k, v in statuses.items() if v is not Status.NOT_REACHED}
        assert reached_now
        found |= reached_now
        at = max(reached_now) + 1
    assert found == {
        0: Status.OK,
        1: Status.OK,
        2: Status.NO_ENTRY,
        3: Status.OK,
        4: Status.NO_ENTRY,
        5: Status.NO_ENTRY,
    }


async def test_a_reply_holds_about_as_much_as_it_may(reached: Reached) -> None:
    for entry_id in range(20):
        section = encoded_section([bytes(50_000)], entry_id, length_before=50_000 * entry_id)
        assert await write(reached.client, section) is Status.OK
    reply = await reached.read(0, 19, size_bytes_max=200_000)
    assert 3 <= len(ids_in(reply)) <= 8
    assert status_of(reply, 19) is Status.NOT_REACHED
    assert ids_in(await reached.read(5, 19, size_bytes_max=1)) == [5]


async def test_of_a_striped_ledger_only_its_own_entries_are_asked_for(reached: Reached) -> None:
    stripe = Stripe(3, 2, 0)
    own = [entry_id for entry_id in range(30) if stripe.wants(entry_id)]
    for entry_id in own:
        section = encoded_section([b"z"], entry_id, length_before=entry_id)
        assert await write(reached.client, section) is Status.OK
    reply = await reached.read(0, 32, stripe=stripe)
    assert ids_in(reply) == own
    wanted = stripe.next(30)
    assert status_of(reply, wanted) is Status.NO_ENTRY


# -- fences --------------------------------------------------------------------------------------------


async def test_a_fence_ends_the_writer_and_lets_recovery_go_on(reached: Reached) -> None:
    assert await write(reached.client, encoded_section([b"x"])) is Status.OK
    request = ReadLacRequest(LEDGER, is_fencing=True, master_key=KEY)
    reply = await reached.client.read_lac(request)
    assert reply.status is Status.OK
    assert reply.last_entry is not None
    assert parse_header(reply.last_entry).entry_id == 0
    assert await write(reached.client, encoded_section([b"y"], 1, length_before=1)) is Status.FENCED
    assert (
        await write(reached.client, encode_copy(LEDGER, records([b"y"], 1, length_before=1)))
        is Status.OK
    )
    assert ids_in(await reached.read(0, 1)) == [0, 1]


async def test_a_ledger_that_is_unknown_is_fenced_all_the_same(reached: Reached) -> None:
    assert await fence(reached) in (Status.NO_ENTRY, Status.NO_LEDGER)
    assert await write(reached.client, encoded_section([b"late"])) is Status.FENCED


async def test_a_wrong_key_fences_nothing(reached: Reached) -> None:
    assert await write(reached.client, encoded_section([b"x"])) is Status.OK
    assert await fence(reached, bytes(20)) is Status.UNAUTHORIZED
    reply = await reached.read(0, 3, is_fencing=True, master_key=bytes(20))
    assert status_of(reply, 0) is Status.UNAUTHORIZED
    assert await write(reached.client, encoded_section([b"y"], 1, length_before=1)) is Status.OK


async def test_a_fencing_read_fences_before_it_denies(reached: Reached) -> None:
    assert await write(reached.client, encoded_section([b"x", b"y"])) is Status.OK
    reply = await reached.read(0, 9, is_fencing=True, master_key=KEY)
    assert ids_in(reply) == [0, 1]
    assert all(status_of(reply, each) is Status.NO_ENTRY for each in range(2, 10))
    assert await write(reached.client, encoded_section([b"z"], 2, length_before=2)) is Status.FENCED


# -- the LAC, the list, the rest -----------------------------------------------------------------------------


async def test_the_last_entry_and_the_explicit_lac_prove_what_is_confirmed(
    reached: Reached,
) -> None:
    ask = ReadLacRequest(LEDGER)
    assert (await reached.client.read_lac(ask)).status is Status.NO_LEDGER
    assert await write(reached.client, encoded_section([b"x", b"y"])) is Status.OK
    packet = encode_lac_packet(CRC32C, LEDGER, 1)
    assert await reached.client.write_lac(LEDGER, KEY, packet) is Status.OK
    assert await reached.client.write_lac(LEDGER, bytes(20), packet) is Status.UNAUTHORIZED
    reply = await reached.client.read_lac(ask)
    assert (reply.status, reply.explicit_lac) == (Status.OK, packet)
    assert reply.last_entry is not None
    assert parse_header(reply.last_entry).entry_id == 1


async def test_a_poll_waits_for_news_and_brings_them(reached: Reached) -> None:
    assert await write(reached.client, encoded_section([b"x"])) is Status.OK
    poll = LongPoll(previous_lac=-1, timeout_ms=20_000)
    waiting = asyncio.create_task(reached.client.read_lac(ReadLacRequest(LEDGER, long_poll=poll)))
    await until(lambda: reached.bookie.lac_watch.waiter_count == 1)
    section = encoded_section([b"y"], 1, length_before=1, lac=0)
    assert await write(reached.client, section) is Status.OK
    reply = await waiting
    assert reply.status is Status.OK
    assert reply.last_entry is not None
    assert parse_header(reply.last_entry).last_add_confirmed == 0
    assert parse_header(reply.records).entry_id == 0


async def test_what_waits_as_the_client_is_closed_has_reached_nobody(reached: Reached) -> None:
    if isinstance(reached.client, LocalBookieClient):
        return
    assert await write(reached.client, encoded_section([b"x"])) is Status.OK
    poll = LongPoll(previous_lac=0, timeout_ms=20_000)
    asked = ReadLacRequest(LEDGER, long_poll=poll)
    waiting = asyncio.create_task(reached.client.read_lac(asked))
    given_up = asyncio.create_task(reached.client.read_lac(asked))
    await until(lambda: reached.bookie.lac_watch.waiter_count == 2)
    # Whoever gives up is not answered: its task ends.
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await reached.client.close()
    assert (await waiting).status is Status.UNREACHABLE


async def test_a_poll_without_news_ends_in_time(reached: Reached) -> None:
    assert await write(reached.client, encoded_section([b"x"])) is Status.OK
    poll = LongPoll(previous_lac=-1, timeout_ms=1)
    reply = await reached.client.read_lac(ReadLacRequest(LEDGER, long_poll=poll))
    assert reply.status is Status.OK
    assert not reply.records


async def test_the_list_has_every_entry(reached: Reached) -> None:
    assert (await reached.client.list_entries(LEDGER)).status is Status.NO_LEDGER
    for first in (0, 10, 20):
        section = encoded_section([b"x"] * 5, first, length_before=first)
        assert await write(reached.client, section) is Status.OK
    listed = await reached.client.list_entries(LEDGER)
    assert listed.status is Status.OK
    assert listed.held == tuple(IdRange(each, each + 4, Status.OK) for each in (0, 10, 20))
    page = await reached.client.list_page(LEDGER, 12)
    assert page.held[0].first_entry in (10, 12)
    assert page.held[-1].last_entry == 24


async def test_it_says_who_it_is(reached: Reached) -> None:
    info = await reached.client.info()
    assert info is not None
    assert info.bookie_id == "b:1"


@pytest.mark.parametrize("ask", ["write", "read", "read_lac", "write_lac", "info", "list"])
async def test_what_is_closed_reaches_nobody(reached: Reached, ask: str) -> None:
    if isinstance(reached.client, LocalBookieClient):
        return
    await reached.client.close()
    answers: dict[str, Callable[[], Awaitable[object]]] = {
        "write": lambda: write(reached.client, encoded_section([b"x"])),
        "read": lambda: reached.read(0, 0),
        "read_lac": lambda: reached.client.read_lac(ReadLacRequest(LEDGER)),
        "write_lac": lambda: reached.client.write_lac(LEDGER, KEY, bytes(20)),
        "info": reached.client.info,
        "list": lambda: reached.client.list_entries(LEDGER),
    }
    answer = await answers[ask]()
    assert answer is None or Status.UNREACHABLE in (
        answer,
        getattr(answer, "status", None),
        *(span.status for span in getattr(answer, "missing", ())),
    )
