"""Ledgers over plain sockets on a real cluster whose bookies come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookie_server.client.settings import AUTO, BOOKIE_PROTOCOLS
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import GRPC, SOCKET
from bookkeeper_metadata.store.connect import connect
from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.aio import BookKeeper as AsyncBookKeeper
from tests.patience import seconds

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("protocol", BOOKIE_PROTOCOLS)
async def test_a_client_speaks_as_it_is_told_and_over_sockets_if_it_is_told_nothing(
    cluster: LocalCluster, protocol: str
) -> None:
    store, root = await connect(cluster.metadata_service_uri)
    registered = await BookieRegistry(store, root).writable()
    await store.close()
    for info in registered.values():
        assert info.endpoint(GRPC) is not None
        assert info.endpoint(SOCKET) is not None
    settings = ClientSettings() if protocol == AUTO else ClientSettings(bookie_protocol=protocol)

    async with AsyncBookKeeper(cluster.metadata_service_uri, settings=settings) as bk:
        writer = await bk.create_ledger()
        await writer.append(b"x" * 3_000_000)
        used = (await bk.connect()).cluster.connections._endpoints
        assert {used[each].protocol for each in registered} == {BOOKIE_PROTOCOLS[protocol][0]}
        await writer.close()
        reader = await bk.open_ledger(writer.ledger_id)
        assert [len(entry.payload) async for entry in reader.read(0, 0)] == [3_000_000]


async def test_a_bookie_that_offers_no_sockets_is_used_over_grpc(tmp_path: Path) -> None:
    with LocalCluster(bookies=1, directory=tmp_path, bookie_settings={"socket_port": 0}) as cluster:
        async with AsyncBookKeeper(cluster.metadata_service_uri) as bk:
            writer = await bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            await writer.append(b"x")
            await writer.close()
            used = (await bk.connect()).cluster.connections._endpoints

    assert {endpoint.protocol for endpoint in used.values()} == {GRPC}


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_while_bookies_are_killed_and_started(
    cluster: LocalCluster,
) -> None:
    written = list[bytes]()
    with BookKeeper(cluster.metadata_service_uri) as bk:
        writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        for number, bookie in enumerate(cluster.bookies):
            futures = [writer.append_async(b"%d-%d" % (number, each)) for each in range(500)]
            bookie.kill()
            futures += [writer.append_async(b"%d+%d" % (number, each)) for each in range(500)]
            bookie.start()
            for future in futures:
                future.result(seconds(60))
            written += [b"%d-%d" % (number, each) for each in range(500)]
            written += [b"%d+%d" % (number, each) for each in range(500)]
        with bk.open_ledger(writer.ledger_id, recovery=True) as reader:
            found = [bytes(entry.payload) for entry in reader.read(0, reader.last_add_confirmed)]

    assert found == written
