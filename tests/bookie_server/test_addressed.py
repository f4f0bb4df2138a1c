"""A bookie answers only calls that are meant for it, whoever had its address before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import grpc.aio
import pytest

from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.interface import BookieClient
from bookie_server.client.relay import RelayedBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.serving.addressed import AddressedHandler
from bookie_server.serving.grpc_service import SERVER_OPTIONS, GrpcService
from bookie_server.serving.service import BookieService
from bookie_server.wire.messages import BookieInfo, ReadLacRequest, ReadRequest, Status
from bookie_server.wire.record import encode_lac_packet
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.errors import BookKeeperError
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.local.ports import free_port
from spark_bookkeeper.settings import ClientSettings
from tests.doubles.records import CRC32C, KEY, encoded_section, write
from tests.doubles.storage import start_bookie

pytestmark = pytest.mark.integration

SETTINGS = ConnectionSettings(read_timeout_ms=2_000, add_timeout_ms=2_000, reconnect_timeout_ms=100)
OWN = BookieInfo("b:1", "cluster-1")
READ = ReadRequest(ledger_id=7, first_entry=0, last_entry=0)
ROOT = "/ledgers"
MakeClient = Callable[[str, str, ConnectionSettings, str], BookieClient]


@asynccontextmanager
async def bookie_at(port: int, place: Path, identity: BookieInfo) -> AsyncIterator[int]:
    """A bookie of this identity behind a real port, which it yields."""
    bookie = await start_bookie(place)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    service = BookieService(bookie, identity, str(place))
    server.add_generic_rpc_handlers((AddressedHandler(GrpcService(service).handler(), identity),))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
        await bookie.stop()


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    async with bookie_at(0, tmp_path, OWN) as port:
        yield port


@pytest.fixture(
    params=[
        pytest.param(GrpcBookieClient, id="grpc"),
        pytest.param(RelayedBookieClient, id="relay", marks=pytest.mark.slow),
    ]
)
def make_client(request: pytest.FixtureRequest) -> MakeClient:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "meant", [("b:2", "cluster-1"), ("b:1", "cluster-2"), ("b:2", "cluster-2"), ("b:2", "")]
)
async def test_to_whom_means_another_bookie_this_one_is_away(
    port: int, make_client: MakeClient, meant: tuple[str, str]
) -> None:
    bookie_id, cluster_id = meant
    client = make_client(bookie_id, f"127.0.0.1:{port}", SETTINGS, cluster_id)

    assert await write(client, encoded_section([b"x"])) is Status.UNREACHABLE
    missing = (await client.read(READ)).missing
    assert [part.status for part in missing] == [Status.UNREACHABLE]
    fence = ReadLacRequest(7, is_fencing=True, master_key=KEY)
    assert (await client.read_lac(fence)).status is Status.UNREACHABLE
    packet = encode_lac_packet(CRC32C, 7, 0)
    assert await client.write_lac(7, KEY, packet) is Status.UNREACHABLE
    assert await client.info() is None
    assert (await client.list_entries(7)).status is Status.UNREACHABLE
    await client.close()

    # Nothing of it was done.
    right = make_client("b:1", f"127.0.0.1:{port}", SETTINGS, "cluster-1")
    assert (await right.read_lac(ReadLacRequest(7))).status is Status.NO_LEDGER
    assert await write(right, encoded_section([b"x"])) is Status.OK
    await right.close()


@pytest.mark.parametrize("meant", [("b:1", "cluster-1"), ("b:1", ""), ("", "")])
async def test_who_means_this_bookie_or_names_none_is_answered(
    port: int, make_client: MakeClient, meant: tuple[str, str]
) -> None:
    """The last is a client of version 0.1."""
    bookie_id, cluster_id = meant
    client = make_client(bookie_id, f"127.0.0.1:{port}", SETTINGS, cluster_id)

    assert await write(client, encoded_section([b"x"])) is Status.OK
    assert not (await client.read(READ)).missing
    info = await client.info()
    assert info is not None
    assert info.bookie_id == "b:1"
    await client.close()


async def test_a_name_of_any_characters_can_be_meant(port: int) -> None:
    """Ensembles are read from znodes: what stands there must not end a stream with an error."""
    client = GrpcBookieClient("bücher\n ", f"127.0.0.1:{port}", SETTINGS, "")

    assert await write(client, encoded_section([b"x"])) is Status.UNREACHABLE
    await client.close()


async def test_a_bookie_at_a_dead_ones_address_denies_none_of_its_entries(tmp_path: Path) -> None:
    """Started empty, under another id, on the port of one whose id is its address; a recovery then
    closed the ledger at -1."""
    store = MemoryStore()
    await initialize(store, ROOT, random=Random(0))

    def ledgers() -> LedgerClient:
        settings = ClientSettings(connection=SETTINGS, bookie_wait_timeout_ms=0)
        context = LedgerContext(
            store,
            ROOT,
            settings=settings,
            random=Random(1),
            make_client=lambda bookie_id, endpoint, settings: GrpcBookieClient(
                bookie_id, endpoint.address, settings, "cluster-1"
            ),
        )
        return LedgerClient(context)

    registry, port = BookieRegistry(store, ROOT), free_port(set())

    def listens() -> BookieServiceInfo:
        return BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, "127.0.0.1", port, GRPC),))

    old = f"127.0.0.1:{port}"
    async with bookie_at(port, tmp_path / "a", BookieInfo(old, "cluster-1")):
        registration = await registry.register(old, listens())
        client = ledgers()
        writer = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await writer.append(b"acknowledged")
        await client.cluster.close()
    await registration.withdraw()

    async with bookie_at(port, tmp_path / "b", BookieInfo("another", "cluster-1")):
        await registry.register("another", listens())
        reader = ledgers()
        with pytest.raises(BookKeeperError):
            await reader.open_ledger(writer.ledger_id, recovery=True)
        assert not (await reader.ledger_metadata(writer.ledger_id)).is_closed
        await reader.cluster.close()

    async with bookie_at(port, tmp_path / "a", BookieInfo(old, "cluster-1")):
        reader = ledgers()
        handle = await reader.open_ledger(writer.ledger_id, recovery=True)
        assert handle.last_add_confirmed == 0
        await reader.cluster.close()
    await store.close()
