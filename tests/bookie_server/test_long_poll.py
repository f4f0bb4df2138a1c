"""A long poll: the answer comes with the news, and with the entries behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.client.local import LocalBookieClient
from bookie_server.wire import codec
from bookie_server.wire.limits import ENTRY_SIZE_MAX, FRAME_SIZE_MAX
from bookie_server.wire.messages import LongPoll, ReadLacReply, ReadLacRequest, Status
from bookie_server.wire.record import HEADER_SIZE, encode_lac_packet, parse_run
from tests.doubles import records
from tests.doubles.records import CRC32C, KEY, encoded_section, write
from tests.doubles.storage import running_bookie

LONG_MS = 20_000
NOW = ReadLacRequest(7)
FENCE = ReadLacRequest(7, is_fencing=True, master_key=KEY)


@pytest.fixture
async def bookie(tmp_path: Path) -> AsyncIterator[Bookie]:
    async with running_bookie(tmp_path) as bookie:
        yield bookie


@pytest.fixture
def client(bookie: Bookie) -> LocalBookieClient:
    return LocalBookieClient("b:1", bookie)


async def add(client: LocalBookieClient, first: int, payloads: Sequence[bytes], lac: int) -> None:
    assert await write(client, encoded_section(payloads, first, lac=lac)) is Status.OK


def poll(
    previous: int, timeout_ms: int = LONG_MS, *, ledger_id: int = 7, **how: int
) -> ReadLacRequest:
    long_poll = LongPoll(previous_lac=previous, timeout_ms=timeout_ms, **how)
    return ReadLacRequest(ledger_id, long_poll=long_poll)


async def soon(waiting: asyncio.Task[ReadLacReply]) -> ReadLacReply:
    """The answer, long before its timeout would bring it."""
    async with asyncio.timeout(LONG_MS / 4000):
        return await waiting


def ids_in(reply: ReadLacReply) -> list[int]:
    return list(parse_run(reply.records).entry_ids) if reply.records else []


async def test_news_that_is_there_is_told_at_once_with_its_entries(
    client: LocalBookieClient,
) -> None:
    await add(client, 0, [b"a", b"b"], -1)
    await add(client, 2, [b"c", b"d"], 1)

    reply = await client.read_lac(poll(-1))
    later = await client.read_lac(poll(0))
    without = await client.read_lac(poll(-1, size_bytes_max=0))
    small = await client.read_lac(poll(-1, size_bytes_max=1))

    assert (ids_in(reply), ids_in(later), ids_in(small)) == ([0, 1], [1], [0])
    assert (without.records, reply.explicit_lac) == (b"", None)
    assert reply.last_entry is not None
    assert parse_run(reply.last_entry).entry_ids == range(3, 4)
    assert without.last_entry == reply.last_entry == (await client.read_lac(NOW)).last_entry


async def test_a_poll_waits_for_the_next_entry_and_then_for_nothing_more(
    bookie: Bookie, client: LocalBookieClient
) -> None:
    await add(client, 0, [b"a"], -1)
    waiting = asyncio.create_task(client.read_lac(poll(-1)))
    assert await client.read_lac(poll(-1, timeout_ms=1)) == ReadLacReply(Status.OK)
    assert not waiting.done()

    await add(client, 1, [b"b"], 0)

    assert ids_in(await soon(waiting)) == [0]
    assert bookie.lac_watch.waiter_count == 0


async def test_an_explicit_lac_wakes_a_poll_before_any_sync(
    bookie: Bookie, client: LocalBookieClient
) -> None:
    await add(client, 0, [b"a", b"b"], -1)
    waiting = asyncio.create_task(client.read_lac(poll(-1)))
    await asyncio.sleep(0)
    packet = encode_lac_packet(CRC32C, 7, 1)
    end = dict(bookie.storage.contents.applied)

    assert await client.write_lac(7, KEY, packet) is Status.OK
    reply = await soon(waiting)

    assert bookie.storage.contents.applied == end  # no journal group was written for it
    assert reply == ReadLacReply(Status.OK, None, packet, reply.records)
    assert ids_in(reply) == [0, 1]


@pytest.mark.conformance("D7")
async def test_an_explicit_lac_survives_a_restart_and_never_falls(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        client = LocalBookieClient("b:1", bookie)
        await add(client, 0, [b"a", b"b", b"c"], -1)
        assert (await client.read_lac(NOW)).explicit_lac is None
        newest = encode_lac_packet(CRC32C, 7, 2)
        await client.write_lac(7, KEY, newest)
        await client.write_lac(7, KEY, encode_lac_packet(CRC32C, 7, 1))  # late

    async with running_bookie(tmp_path) as bookie:
        client = LocalBookieClient("b:1", bookie)
        assert (await client.read_lac(NOW)).explicit_lac == newest
        assert (await client.read_lac(poll(1))).explicit_lac == newest


async def test_a_lac_beyond_its_own_entry_is_no_news(
    bookie: Bookie, client: LocalBookieClient
) -> None:
    """Re-replication's entries may claim one; kept, every poll would be answered at once for ever."""
    claiming = replace(records.section([b"x"], 3, lac=2**62), is_recovery=True)
    assert await records.add(bookie, claiming) is Status.OK

    assert (await client.read_lac(poll(2, 1))).records != b""
    assert await client.read_lac(poll(3, 1)) == ReadLacReply(Status.OK)


async def test_a_fence_ends_the_wait_and_an_unknown_ledger_is_waited_for(
    client: LocalBookieClient,
) -> None:
    unknown = await client.read_lac(poll(-1, timeout_ms=1, ledger_id=9))
    assert unknown == ReadLacReply(Status.NO_LEDGER)
    waiting = asyncio.create_task(client.read_lac(poll(-1)))
    await asyncio.sleep(0)

    await client.read_lac(FENCE)

    assert await soon(waiting) == ReadLacReply(Status.OK)


async def test_a_stopping_bookie_keeps_nobody_waiting(
    bookie: Bookie, client: LocalBookieClient
) -> None:
    waiting = asyncio.create_task(client.read_lac(poll(-1)))
    await asyncio.sleep(0)

    await bookie.stop()

    assert (await soon(waiting)).status is Status.NO_LEDGER


async def test_two_of_the_largest_entries_fit_no_answer_so_the_proof_goes_first(
    client: LocalBookieClient,
) -> None:
    largest = bytes(ENTRY_SIZE_MAX - HEADER_SIZE - CRC32C.size)
    await add(client, 0, [largest], -1)
    await add(client, 1, [largest], 0)

    reply = await client.read_lac(poll(-1))

    assert reply.last_entry is not None
    assert reply.records == b""
    assert len(codec.encode_read_lac_reply(reply)) < FRAME_SIZE_MAX


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(replace(poll(-1), is_fencing=True, master_key=KEY), id="fences"),
        pytest.param(poll(-1, ledger_id=-7), id="of no ledger"),
        pytest.param(poll(-2), id="from before all"),
    ],
)
def test_a_poll_that_makes_no_sense_is_refused(request_: ReadLacRequest) -> None:
    with pytest.raises(codec.BadRequestError):
        codec.parse_read_lac_request(codec.encode_read_lac_request(request_))


@pytest.mark.parametrize("request_", [FENCE, poll(3)])
def test_a_request_of_before_long_polls_still_means_now(request_: ReadLacRequest) -> None:
    assert codec.parse_read_lac_request(codec.encode_read_lac_request(request_)) == request_
