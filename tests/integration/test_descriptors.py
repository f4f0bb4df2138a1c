"""A bookie that far more clients connect to than it has descriptors for goes on."""

from __future__ import annotations

import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import EntryUnreadableError
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from tests.integration.processes import eventually
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DESCRIPTORS = 120
"""Of the bookie's process; it leaves half of them to its files in an emergency, and connections get
half of the rest."""
IDLE = 400
MANY = 2_000
PAYLOAD = bytes(60_000)


@contextmanager
def short_of_descriptors(cluster: LocalCluster, directory: Path) -> Iterator[tuple[int, int]]:
    """Process id and port of a bookie that writes many files and is soon the cluster's only one."""
    port = free_port(set())
    flags = {
        "--metadata-service-uri": cluster.metadata_service_uri,
        "--port": port,
        "--journal-directories": directory / "journal",
        "--ledger-directories": directory / "ledgers",
        "--journal-file-size-bytes": 256 * 1024,
        "--write-cache-size-bytes": 256 * 1024,
    }
    words = [
        sys.executable,
        "-m",
        "bookie_server",
        *(str(word) for flag in flags.items() for word in flag),
    ]
    process = subprocess.Popen(
        ["sh", "-c", f"ulimit -n {DESCRIPTORS} && exec {shlex.join(words)}"],
        stderr=subprocess.DEVNULL,
        env=child_environment(),
    )
    try:
        with BookKeeper(cluster.metadata_service_uri) as bk:
            assert eventually(lambda: any(f":{port}" in b.bookie_id for b in bk.bookies()), 30)
        cluster.bookies[0].stop()
        yield process.pid, port
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def is_open(connection: socket.socket) -> bool:
    """Whether the bookie keeps it; one that it refuses is closed."""
    connection.settimeout(0.01)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return True
    except OSError:
        return False


def test_idle_connections_take_nothing_from_journal_and_checkpoints(tmp_path: Path) -> None:
    """Before, 1,100 of them ended a bookie at its next checkpoint; later they took its reserve."""
    with (
        LocalCluster(bookies=1) as cluster,
        short_of_descriptors(cluster, tmp_path) as (pid, port),
        BookKeeper(cluster.metadata_service_uri) as bk,
        ExitStack() as idle,
    ):
        writer = bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        writer.append(PAYLOAD)
        # Its connections are made before there are no more to be had.
        assert list(bk.open_ledger(writer.ledger_id).read_unconfirmed(0, 0))
        connections = [
            idle.enter_context(socket.create_connection((LOOPBACK, port), seconds(10)))
            for _ in range(IDLE)
        ]
        limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = Path(f"/proc/{pid}/fd")
        assert eventually(lambda: sum(map(is_open, connections)) <= limit // 2, 30)
        # Each carrier has its share of what is for connections.
        assert sum(map(is_open, connections)) > limit // 5
        assert len(list(used.iterdir())) < limit

        for _ in range(60):
            writer.append(PAYLOAD)
        writer.close()
        logs = list((tmp_path / "ledgers").glob("*.log"))
        read = sum(1 for _ in bk.open_ledger(writer.ledger_id).read(0, 60))
        assert (limit, len(logs) > 3, read) == (DESCRIPTORS // 2, True, 61)

        def is_read_by_another() -> bool:
            with BookKeeper(cluster.metadata_service_uri) as other, suppress(EntryUnreadableError):
                return len(list(other.open_ledger(writer.ledger_id).read(0, 60))) == 61
            return False

        idle.close()
        assert eventually(is_read_by_another, 30)


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """As many descriptors for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"a process may have no more than {hard} descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.full
def test_thousands_of_idle_connections_change_nothing_for_a_bookie_with_room_for_them() -> None:
    with (
        descriptors(MANY + 1_000),
        LocalCluster(bookies=1, bookie_settings={"write_cache_size_bytes": 256 * 1024}) as cluster,
        BookKeeper(cluster.metadata_service_uri) as bk,
        ExitStack() as idle,
    ):
        (bookie,) = cluster.bookies
        connections = [
            idle.enter_context(socket.create_connection((LOOPBACK, bookie.port), seconds(10)))
            for _ in range(MANY)
        ]

        with bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
            for _ in range(60):
                writer.append(PAYLOAD)

        assert len(list(bk.open_ledger(writer.ledger_id).read(0, 59))) == 60
        assert len(list((bookie.directory / "ledgers").glob("*.log"))) > 3
        assert all(map(is_open, connections))
        assert bookie.failure() is None
