"""A disk that fills while a writer writes, and is freed again: a real process on a tiny tmpfs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.messages import ReadLacRequest, ReadRequest, Status
from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from tests.doubles.records import KEY
from tests.integration.command_line import CommandLine
from tests.integration.processes import eventually
from tests.integration.tiny_disk import Fourth, fourth
from tests.patience import Deadline

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_MIB = 1024 * 1024
PAYLOAD = bytes(32 * 1024)


def test_a_disk_that_fills_under_a_writer_costs_nothing_and_comes_back_without_a_restart(
    cluster: LocalCluster, tiny_disk: Path
) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(24 * _MIB))
    # On a busy machine the writer may lose the bookie for a while, and fills no disk meanwhile.
    settings = ClientSettings(bookie_quarantine_ms=200, ensemble_change_retry_ms=100)
    uri = cluster.metadata_service_uri
    with fourth(cluster, tiny_disk) as bookie, BookKeeper(uri, settings=settings) as bk:
        writer = bk.create_ledger(ensemble_size=4, write_quorum=4, ack_quorum=2)
        written, deadline = 0, Deadline(60)
        while bookie.state() == "writable":
            for _ in range(20):
                written = writer.append(PAYLOAD + written.to_bytes(4, "big")) + 1
            assert not deadline.has_passed, "the disk never filled"

        # then the writer goes on with the other bookies, and the full one is alive and serves
        assert bookie.state() == "disk"
        for _ in range(40):
            written = writer.append(PAYLOAD + written.to_bytes(4, "big")) + 1
        writer.close()
        assert bookie.process.poll() is None
        with bk.open_ledger(writer.ledger_id) as reader:
            entries = [bytes(entry.payload) for entry in reader.read(0, written - 1)]
        assert [int.from_bytes(entry[-4:], "big") for entry in entries] == list(range(written))

        # when there is room, then it takes entries again
        ballast.unlink()
        assert eventually(lambda: bookie.state() == "writable", 60)
        with bk.create_ledger(ensemble_size=4, write_quorum=4, ack_quorum=4) as again:
            again.append(b"all four")
        assert bookie.process.poll() is None


@pytest.mark.conformance("S4")
def test_a_start_on_a_full_disk_writes_nothing_serves_reads_and_becomes_an_ordinary_one(
    cluster: LocalCluster, tiny_disk: Path, bookkeeper: CommandLine
) -> None:
    with fourth(cluster, tiny_disk) as bookie, BookKeeper(cluster.metadata_service_uri) as bk:
        with bk.create_ledger(ensemble_size=4, write_quorum=4, ack_quorum=4) as writer:
            for number in range(50):
                writer.append(b"entry %d" % number)
        bookie.kill()
        ballast = tiny_disk / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(4096))
        before = contents_of(tiny_disk)
        starts = bookkeeper.json("cookies", "show", bookie.bookie_id)["starts"]

        bookie.start()

        assert eventually(lambda: bookie.state() == "disk", 60)
        assert asyncio.run(read_from(bookie, writer.ledger_id)) == 50
        assert asyncio.run(fence(bookie, writer.ledger_id + 1_000)) is Status.READ_ONLY
        assert contents_of(tiny_disk) == before
        assert bookkeeper.json("cookies", "show", bookie.bookie_id)["starts"] == starts

        ballast.unlink()
        assert eventually(lambda: bookie.state() == "writable", 60)
        assert bookie.process.poll() is None
        assert asyncio.run(read_from(bookie, writer.ledger_id)) == 50
        assert bookkeeper.json("cookies", "show", bookie.bookie_id)["starts"] == starts + 1


def contents_of(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


async def read_from(bookie: Fourth, ledger_id: int) -> int:
    """How many entries this bookie itself returns."""
    client = GrpcBookieClient(bookie.bookie_id, bookie.bookie_id, ConnectionSettings())
    try:
        reply = await client.read(ReadRequest(ledger_id=ledger_id, first_entry=0, last_entry=49))
        return 50 - sum(span.last_entry - span.first_entry + 1 for span in reply.missing)
    finally:
        await client.close()


async def fence(bookie: Fourth, ledger_id: int) -> Status:
    client = GrpcBookieClient(bookie.bookie_id, bookie.bookie_id, ConnectionSettings())
    try:
        request = ReadLacRequest(ledger_id, is_fencing=True, master_key=KEY)
        return (await client.read_lac(request)).status
    finally:
        await client.close()


@pytest.mark.conformance("S10")
def test_a_bookie_made_read_only_by_hand_stays_so_until_it_is_made_writable(
    cluster: LocalCluster, bookkeeper: CommandLine, tmp_path: Path
) -> None:
    with fourth(cluster, tmp_path) as bookie:
        bookkeeper("bookies", "readonly", bookie.bookie_id)
        assert eventually(lambda: bookie.state() == "hand", 60)
        listed = bookkeeper("bookies", "list").splitlines()
        assert any(bookie.bookie_id in line and "hand" in line for line in listed)

        bookkeeper("bookies", "writable", bookie.bookie_id)
        assert eventually(lambda: bookie.state() == "writable", 60)

    assert "BK_NO_SUCH_COOKIE" in bookkeeper.refused("bookies", "readonly", "10.9.8.7:1")
