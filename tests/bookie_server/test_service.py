"""Long polls over gRPC, directly and through a relay: answered, given up and left without a trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from bookie_server.bookie import Bookie
from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.interface import BookieClient
from bookie_server.client.relay import RelayedBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.service import SERVER_OPTIONS, BookieIdentity, BookieService
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.opening import open_storage
from bookie_server.wire import codec
from bookie_server.wire.digest import Crc32cDigest, master_key
from bookie_server.wire.messages import EncodedSection, LongPoll, ReadLacReply, Status
from bookie_server.wire.record import encode_lac_packet, encode_records, parse_run
from bookkeeper_metadata.model import DigestType
from tests.doubles.storage import answer_new
from tests.patience import seconds

pytestmark = pytest.mark.integration

KEY = master_key(b"")
DIGEST = Crc32cDigest()
SETTINGS = ConnectionSettings(read_timeout_ms=2_000)

MakeClient = Callable[[str, str, ConnectionSettings], BookieClient]
TRANSPORTS = [
    pytest.param(GrpcBookieClient, id="grpc"),
    pytest.param(RelayedBookieClient, id="relay", marks=pytest.mark.slow),
]


@asynccontextmanager
async def served(
    place: Path, make_client: MakeClient
) -> AsyncIterator[tuple[Bookie, BookieClient, grpc.aio.Server]]:
    """A bookie behind a real port, and its client."""
    settings = BookieSettings(
        journal_directories=(str(place / "journal"),),
        ledger_directories=(str(place / "ledgers"),),
        journal_zero_chunk_bytes=64 * 1024,
    )
    storage = open_storage(
        RealFileSystem(), settings.storage, instance_id=bytes(16), clock_ms=lambda: 1
    )
    bookie = Bookie(answer_new(storage), settings)
    await bookie.start()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    port = server.add_insecure_port("127.0.0.1:0")
    identity = BookieIdentity("b:1", "", "", str(place))
    server.add_generic_rpc_handlers((BookieService(bookie, identity).handler(),))
    await server.start()
    client = make_client("b:1", f"127.0.0.1:{port}", SETTINGS)
    try:
        yield bookie, client, server
    finally:
        await client.close()
        await server.stop(0)
        await bookie.stop()


async def waiters(bookie: Bookie, count: int) -> None:
    async with asyncio.timeout(seconds(20)):
        while bookie.lac_watch.waiter_count != count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def add(client: BookieClient, first: int, count: int, lac: int) -> None:
    parts = encode_records(
        DIGEST, 7, first, [b"x"] * count, last_add_confirmed=lac, length_before=first
    )
    data = codec.encode_section(codec.encode_section_header(7, KEY, DigestType.CRC32C), parts)
    answered: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    client.write(EncodedSection(7, first, first + count - 1, False, data), answered.set_result)
    assert await answered is Status.OK


@pytest.mark.parametrize("make_client", TRANSPORTS)
async def test_a_poll_is_answered_by_news_or_by_its_timeout(
    tmp_path: Path, make_client: MakeClient
) -> None:
    async with served(tmp_path, make_client) as (bookie, client, _):
        await add(client, 0, 3, -1)
        long = LongPoll(previous_lac=-1, timeout_ms=20_000)
        waiting = asyncio.create_task(client.read_lac(7, long_poll=long))
        await waiters(bookie, 1)
        short = LongPoll(previous_lac=-1, timeout_ms=5)
        assert await client.read_lac(7, long_poll=short) == ReadLacReply(Status.OK)

        packet = encode_lac_packet(DIGEST, 7, 2)
        assert await client.write_lac(7, KEY, packet) is Status.OK
        async with asyncio.timeout(seconds(5)):
            reply = await waiting

        assert (reply.status, reply.explicit_lac) == (Status.OK, packet)
        assert parse_run(reply.records).entry_ids == range(3)
        assert bookie.lac_watch.waiter_count == 0


@pytest.mark.parametrize("make_client", TRANSPORTS)
async def test_a_poll_that_is_given_up_is_forgotten_by_the_bookie(
    tmp_path: Path, make_client: MakeClient
) -> None:
    async with served(tmp_path, make_client) as (bookie, client, _):
        poll = LongPoll(previous_lac=-1, timeout_ms=20_000)
        waiting = [asyncio.create_task(client.read_lac(7, long_poll=poll)) for _ in range(3)]
        await waiters(bookie, 3)

        waiting[0].cancel()
        await waiters(bookie, 2)
        await client.close()
        await waiters(bookie, 0)

        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)


@pytest.mark.parametrize("make_client", TRANSPORTS)
async def test_a_poll_at_a_bookie_that_stops_comes_back_with_nothing(
    tmp_path: Path, make_client: MakeClient
) -> None:
    async with served(tmp_path, make_client) as (bookie, client, server):
        poll = LongPoll(previous_lac=-1, timeout_ms=20_000)
        waiting = asyncio.create_task(client.read_lac(7, long_poll=poll))
        await waiters(bookie, 1)

        await server.stop(0)

        assert (await waiting).status in (Status.UNREACHABLE, Status.NO_LEDGER)
        await waiters(bookie, 0)


@pytest.mark.slow
async def test_a_read_timeout_does_not_cut_a_longer_poll_short(tmp_path: Path) -> None:
    def impatient(bookie_id: str, address: str, _: ConnectionSettings) -> BookieClient:
        return GrpcBookieClient(bookie_id, address, ConnectionSettings(read_timeout_ms=300))

    async with served(tmp_path, impatient) as (_, client, _):
        poll = LongPoll(previous_lac=-1, timeout_ms=500)

        assert (await client.read_lac(7, long_poll=poll)).status is Status.NO_LEDGER
