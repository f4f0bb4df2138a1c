"""A relay answers what the client it stands for answers, and says so when it is gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.relay import RelayedBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.messages import EncodedSection, ReadLacRequest, ReadRequest, Status
from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.processes import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SETTINGS = ConnectionSettings(add_timeout_ms=1000, read_timeout_ms=1000, reconnect_timeout_ms=300)
UNREACHED = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=3) as running:
        yield running


def relays() -> list[int]:
    """Process ids of this process's relays."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="utf-8") as file:
        pids = [int(pid) for pid in file.read().split()]
    found = []
    for pid in pids:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"bookie_server.client.relay" in file.read():
                found.append(pid)
    return found


async def written(client: RelayedBookieClient, section: EncodedSection) -> Status:
    answered: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    client.write(section, answered.set_result)
    assert not answered.done()
    return await answered


def test_a_relay_answers_as_the_client_it_stands_for(cluster: LocalCluster) -> None:
    with BookKeeper(cluster.metadata_service_uri) as bk:
        writer = bk.create_ledger()
        writer.append_many([b"x" * size for size in range(2000)])
        writer.close()
    bookie_id = cluster.bookies[0].bookie_id
    whole = ReadRequest(ledger_id=writer.ledger_id, first_entry=0, last_entry=2500)

    async def main() -> None:
        direct = GrpcBookieClient(bookie_id, bookie_id, SETTINGS)
        relayed = RelayedBookieClient(bookie_id, bookie_id, SETTINGS)
        try:
            ours, theirs = await asyncio.gather(direct.read(whole), relayed.read(whole))
            assert [bytes(run.data) for run in ours.runs] == [bytes(r.data) for r in theirs.runs]
            assert ours.missing == theirs.missing
            assert ours.last_add_confirmed == theirs.last_add_confirmed
            assert theirs.runs
            lac = ReadLacRequest(writer.ledger_id)
            assert await direct.read_lac(lac) == await relayed.read_lac(lac)
            entries = await relayed.list_entries(writer.ledger_id)
            assert await direct.list_entries(writer.ledger_id) == entries
            assert entries.status is Status.OK
            info = await relayed.info()
            assert info is not None
            assert info.bookie_id == bookie_id
            refused = EncodedSection(writer.ledger_id, 0, 0, False, b"no section")
            assert await written(relayed, refused) is Status.UNREACHABLE
            assert await direct.write_lac(1, b"", b"x") == await relayed.write_lac(1, b"", b"x")
        finally:
            await asyncio.gather(direct.close(), relayed.close())

    asyncio.run(main())
    assert eventually(lambda: not relays())


async def test_a_bookie_nobody_reaches_is_unreachable_through_a_relay_too() -> None:
    request = ReadRequest(ledger_id=1, first_entry=3, last_entry=7)

    client = RelayedBookieClient(UNREACHED, UNREACHED, SETTINGS)
    try:
        reply = await client.read(request)
        assert [part.status for part in reply.missing] == [Status.UNREACHABLE]
        assert (await client.read_lac(ReadLacRequest(1))).status is Status.UNREACHABLE
        assert await client.info() is None
        section = EncodedSection(1, 0, 0, False, b"whatever")
        assert await written(client, section) is Status.UNREACHABLE
    finally:
        await client.close()
    assert (await client.list_entries(1)).status is Status.UNREACHABLE


async def test_a_killed_relay_answers_unreachable_and_is_followed_by_another(
    cluster: LocalCluster,
) -> None:
    bookie_id = cluster.bookies[0].bookie_id
    patient = ConnectionSettings(add_timeout_ms=60_000, reconnect_timeout_ms=60_000)

    client = RelayedBookieClient(bookie_id, bookie_id, patient)
    try:
        assert await client.info() is not None
        (relay,) = relays()
        os.kill(relay, signal.SIGSTOP)
        unanswered = asyncio.create_task(written(client, EncodedSection(1, 0, 0, False, b"")))
        await asyncio.sleep(0)
        os.kill(relay, signal.SIGKILL)

        assert await unanswered is Status.UNREACHABLE
        assert await client.info() is not None
        assert relays() != [relay]
    finally:
        await client.close()
