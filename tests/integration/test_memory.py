"""A bookie whose clients do their worst keeps within its memory, and serves the others."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.endpoints import GRPC, SOCKET
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.settings import ClientSettings
from tests.integration.hostile_clients import KINDS, attacked, idle_kinds
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RESIDENT_MIB_MAX = 512
ANNOUNCERS_MIB = 128
"""More, beside everybody else: of each of their streams gRPC takes in a first piece, 576 KiB and its copy."""
TOGETHER = [kind for kind in KINDS if kind not in ("announcers", "oversized")]
"""All who send what they say. Of messages larger than allowed gRPC takes in the whole before it refuses it, so
beside these there is no bound for them: 465 and 530 MiB were measured."""


def patient_settings() -> ClientSettings:
    """An honest client whose bookie is busy waits, here for as long as it takes on a busy machine."""
    timeout_ms = round(seconds(120) * 1_000)
    return ClientSettings(
        connection=ConnectionSettings(
            add_timeout_ms=timeout_ms,
            read_timeout_ms=timeout_ms,
            reconnect_timeout_ms=timeout_ms // 2,
        )
    )


def most_resident_mib(pid: int) -> int:
    """The most memory the process ever had resident."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


@pytest.mark.parametrize(
    "kinds",
    [
        # A gigabyte in three seconds, before.
        pytest.param(["pins"], id="pins"),
        *(
            pytest.param([kind], id=kind, marks=pytest.mark.full)
            for kind in KINDS
            if kind != "pins"
        ),
        pytest.param(TOGETHER, id="all of them", marks=pytest.mark.full),
        pytest.param([*TOGETHER, "announcers"], id="and announcers", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("carrier", [SOCKET, GRPC])
def test_hostile_clients_take_no_more_memory_than_was_promised(
    kinds: list[str], carrier: str, request: pytest.FixtureRequest
) -> None:
    """60 streams of large frames took 3 GB, readers that take no replies 240 MiB each."""
    is_full = request.node.get_closest_marker("full") is not None
    attack_s = 20.0 if is_full else 3.0
    with (
        LocalCluster(bookies=1) as cluster,
        BookKeeper(cluster.metadata_service_uri, settings=patient_settings()) as bk,
    ):
        (bookie,) = cluster.bookies
        pid = bookie.pid
        assert pid is not None
        writer = bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        count = 0
        with attacked(bookie, attack_s, *kinds, carrier=carrier) as attack:
            while attack.poll() is None:
                writer.append(bytes(1_000))
                count += 1
                if count % 10 == 0:
                    found = bk.open_ledger(writer.ledger_id).read_unconfirmed(0, count - 1)
                    assert sum(1 for _ in found) == count
            assert attack.returncode == 0
            assert attack.stdout is not None
            acts = json.loads(attack.stdout.read())
        # Memory that hardly anybody asked for was no achievement.
        assert set(acts) == set(kinds)
        assert idle_kinds(acts) == {}
        # What the attackers left behind waits to be done: it took more than they did.
        for _ in range(20):
            writer.append(bytes(1_000))
            count += 1
        writer.close()

        is_announced = carrier == GRPC and len(kinds) > 1 and "announcers" in kinds
        limit = RESIDENT_MIB_MAX + (ANNOUNCERS_MIB if is_announced else 0)
        assert most_resident_mib(pid) <= limit
        assert (
            bookie.pid,
            sum(1 for _ in bk.open_ledger(writer.ledger_id).read(0, count - 1)),
        ) == (
            pid,
            count,
        )


@pytest.mark.full
def test_adds_go_on_beside_duplicates_and_readers_that_take_nothing() -> None:
    """They waited as long as such readers went on: duplicates, which held the room of adds, were compared behind them."""
    with (
        LocalCluster(bookies=1) as cluster,
        BookKeeper(cluster.metadata_service_uri, settings=patient_settings()) as bk,
    ):
        (bookie,) = cluster.bookies
        writer = bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        with attacked(bookie, 3_600.0, "deaf", "readers", carrier=GRPC) as attack:
            # Long enough for duplicates to take all of the room, were they not compared.
            begun_s, count = time.monotonic(), 0
            while time.monotonic() - begun_s < seconds(20) or count < 20:
                writer.append(bytes(1_000))
                count += 1
            assert attack.poll() is None
        writer.close()

        assert sum(1 for _ in bk.open_ledger(writer.ledger_id).read(0, count - 1)) == count
