"""What a client counts of what it did, and what a scrape shows of it."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from spark_bookkeeper import aio
from spark_bookkeeper.ledger.errors import LedgerFencedError
from spark_bookkeeper.metrics import ClientMetrics
from tests.spark_bookkeeper.ledger.scene import Scene, numbers


async def test_entries_and_their_waits_are_counted_once(scene: Scene) -> None:
    measures = scene.client.cluster.measures

    for _ in range(3):
        await scene.writer.append_many(numbers(50))

    assert measures.added_entries == 150
    assert measures.adds.count == 3
    assert measures.adds.sum_ms > 0


async def test_an_append_that_is_in_flight_is_not_counted(scene: Scene) -> None:
    scene.cluster.set_faults(drops_writes=True)
    future = scene.writer.append_async(b"x")
    measures = scene.client.cluster.measures

    assert (measures.added_entries, measures.adds.count) == (0, 0)
    future.cancel()


async def test_reads_openings_and_recoveries_are_counted(scene: Scene) -> None:
    await scene.writer.append_many(numbers(10))
    reader = scene.cluster.client(5)
    ledger = await reader.open_ledger(scene.ledger_id, recovery=True)
    assert len([entry async for entry in ledger.read(0, 9)]) == 10
    await reader.open_ledger(scene.ledger_id, recovery=True)
    found = reader.cluster.measures

    assert found.openings.count == 2
    assert found.recoveries.count == 1, "it was closed by then"
    assert found.reads.count > 0
    assert found.read_bytes > 10
    assert scene.client.cluster.measures.creations.count == 1


async def test_a_writer_that_is_fenced_is_counted(scene: Scene) -> None:
    await scene.writer.append(b"x")
    await scene.recover()

    with pytest.raises(LedgerFencedError):
        await scene.writer.append(b"y")

    assert scene.client.cluster.measures.ended_writers == 1


@pytest.mark.cluster(bookies=4)
async def test_a_change_of_the_ensemble_is_counted(scene: Scene) -> None:
    await scene.writer.append(b"x")
    await scene.cluster.take_away(scene.ensemble[0])
    while not scene.client.cluster.measures.ensemble_changes:
        await scene.writer.append(b"y")

    assert len((await scene.metadata()).fragments) == 2


async def test_a_scrape_shows_them_under_apache_s_names(scene: Scene) -> None:
    await scene.writer.append_many(numbers(7))
    client = aio.BookKeeper("zk+hierarchical://127.0.0.1:1/ledgers")
    client.measures = scene.client.cluster.measures
    registry = CollectorRegistry()
    idle = aio.BookKeeper("zk+hierarchical://127.0.0.1:1/ledgers")
    registry.register(ClientMetrics({"a": client, "b": idle}))

    def shown(name: str, client: str = "a") -> float | None:
        return registry.get_sample_value(f"bookkeeper_client_{name}", {"client": client})

    assert shown("added_entries") == 7
    assert shown("ADD_ENTRY_latency_count") == 1
    assert shown("LEDGER_CREATE_latency_count") == 1
    assert shown("NUM_ENSEMBLE_CHANGE") == 0
    assert shown("READ_BYTES") == 0
    assert shown("added_entries", "b") == 0
