"""Ledgers over plain sockets on a real cluster whose bookies come and go."""

from __future__ import annotations

import pytest

from bookkeeper_metadata.bookies import GRPC, SOCKET, BookieRegistry
from bookkeeper_metadata.store.connect import connect
from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.aio import BookKeeper as AsyncBookKeeper
from tests.patience import seconds

pytestmark = pytest.mark.integration
SETTINGS = ClientSettings(bookie_protocol=SOCKET)


async def test_a_bookie_registers_both_carriers_and_a_client_uses_the_one_it_is_told(
    cluster: LocalCluster,
) -> None:
    store, root = await connect(cluster.metadata_service_uri)
    registered = await BookieRegistry(store, root).writable()
    await store.close()
    for info in registered.values():
        assert info.endpoint(GRPC) is not None
        assert info.endpoint(SOCKET) is not None

    async with AsyncBookKeeper(cluster.metadata_service_uri, settings=SETTINGS) as bk:
        writer = await bk.create_ledger()
        await writer.append(b"x" * 3_000_000)
        used = (await bk.connect()).cluster.connections._endpoints
        assert {used[each].protocol for each in registered} == {SOCKET}
        await writer.close()
        reader = await bk.open_ledger(writer.ledger_id)
        assert [len(entry.payload) async for entry in reader.read(0, 0)] == [3_000_000]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_while_bookies_are_killed_and_started(
    cluster: LocalCluster,
) -> None:
    written = list[bytes]()
    with BookKeeper(cluster.metadata_service_uri, settings=SETTINGS) as bk:
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
