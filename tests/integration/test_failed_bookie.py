"""A bookie that cannot do its work any more ends, with an exit code that says so: real processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.messages import ReadLacRequest, Status
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from tests.doubles.records import KEY
from tests.integration.failing_bookie import HANGING
from tests.integration.processes import eventually, new_bookie_id
from tests.patience import seconds

pytestmark = pytest.mark.integration

PIPE_SIZE = 4_096
FENCED = Status.NO_ENTRY
"""What a bookie says once it has fenced a ledger that it knows nothing of."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=1) as running:
        yield running


class Failing:
    """A second bookie of the cluster, with a defect that waits for :meth:`show`."""

    def __init__(self, cluster: LocalCluster, plant: str, directory: Path) -> None:
        self._uri = cluster.metadata_service_uri
        self._trigger = directory / "trigger"
        self.hanging = directory / HANGING
        self.bookie_id = new_bookie_id()
        self.socket_port = free_port({int(self.bookie_id.rpartition(":")[2])})
        flags = {
            "--metadata-service-uri": self._uri,
            "--port": self.bookie_id.rpartition(":")[2],
            "--socket-port": str(self.socket_port),
            "--rpc-port": "0",
            "--journal-directories": str(directory / "journal"),
            "--ledger-directories": str(directory / "ledgers"),
            "--gc-interval-ms": "1000",
        }
        words = [word for flag in flags.items() for word in flag]
        module = "tests.integration.failing_bookie"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, plant, str(self._trigger), *words],
            stderr=subprocess.PIPE,
            # With it, standard error has no buffer that the end of a process could wait for.
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
        assert self.process.stderr is not None
        # Nobody reads it, and it takes little.
        fcntl.fcntl(self.process.stderr, fcntl.F_SETPIPE_SZ, PIPE_SIZE)

    @property
    def is_registered(self) -> bool:
        with BookKeeper(self._uri) as bk:
            return any(bookie.bookie_id == self.bookie_id for bookie in bk.bookies())

    def show(self) -> None:
        """Let the planted defect happen."""
        self._trigger.touch()

    def exit_code(self) -> int:
        return self.process.wait(seconds(60))

    async def fence(self) -> Status:
        """Ask for something that needs the journal."""
        client = GrpcBookieClient(self.bookie_id, self.bookie_id, ConnectionSettings())
        try:
            request = ReadLacRequest(ledger_id=7, is_fencing=True, master_key=KEY)
            return (await client.read_lac(request)).status
        finally:
            await client.close()


@contextmanager
def failing(cluster: LocalCluster, plant: str, directory: Path) -> Iterator[Failing]:
    bookie = Failing(cluster, plant, directory)
    try:
        assert eventually(lambda: bookie.is_registered, 30)
        yield bookie
    finally:
        bookie.process.kill()
        bookie.process.communicate()


@asynccontextmanager
async def hanging(cluster: LocalCluster, plant: str, directory: Path) -> AsyncIterator[Failing]:
    """One whose disk hangs already."""
    with failing(cluster, plant, directory) as bookie:
        assert await asyncio.to_thread(eventually, bookie.hanging.exists, 30)
        yield bookie


@pytest.mark.slow
@pytest.mark.parametrize("is_draining", [False, True])
async def test_a_journal_that_fails_ends_the_bookie_with_exit_code_1(
    is_draining: bool, cluster: LocalCluster, tmp_path: Path
) -> None:
    """During the drain it was 0, "bookie stopped": whoever restarts bookies saw nothing amiss."""
    with failing(cluster, "journal", tmp_path) as bookie:
        fenced = asyncio.create_task(bookie.fence())
        await asyncio.sleep(0.5)  # time to be admitted; too little makes this test weaker, not red
        if is_draining:
            bookie.process.terminate()
            assert await asyncio.to_thread(eventually, lambda: not bookie.is_registered, 30)

        bookie.show()

        assert await asyncio.to_thread(bookie.exit_code) == 1
        assert await fenced is not FENCED


@pytest.mark.slow
def test_a_registration_that_is_not_kept_any_more_ends_the_bookie(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Served on, it would look dead to everyone who chooses bookies."""
    with failing(cluster, "registration", tmp_path) as bookie:
        bookie.show()

        assert bookie.exit_code() == 1


@pytest.mark.slow
async def test_a_disk_that_hangs_keeps_no_bookie_from_ending(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """It waited for what its collection does there, stayed registered and answered that it was well."""
    async with hanging(cluster, "upkeep", tmp_path) as bookie:
        assert await bookie.fence() is FENCED

        bookie.process.terminate()

        assert await asyncio.to_thread(bookie.exit_code) == 1
        assert not bookie.is_registered


@pytest.mark.slow
async def test_a_second_signal_ends_a_bookie_that_hangs_at_its_end(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with hanging(cluster, "upkeep, for ever", tmp_path) as bookie:
        bookie.process.terminate()
        assert await asyncio.to_thread(eventually, lambda: not bookie.is_registered, 30)

        bookie.process.terminate()

        assert await asyncio.to_thread(bookie.exit_code) == 1


@pytest.mark.slow
async def test_a_bookie_that_has_failed_acknowledges_nothing_whatever_hangs(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with hanging(cluster, "upkeep", tmp_path) as bookie:
        bookie.show()

        assert await bookie.fence() is not FENCED

        assert await asyncio.to_thread(bookie.exit_code) == 1


@pytest.mark.slow
async def test_a_log_that_nobody_reads_keeps_no_bookie_from_its_work(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Strangers could fill the pipe that it logs to, and it stood still for ever."""
    with failing(cluster, "disk", tmp_path) as bookie:
        for _ in range(PIPE_SIZE // len("a line of its log")):
            with socket.create_connection((LOOPBACK, bookie.socket_port)) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(16))

        assert await bookie.fence() is FENCED
        bookie.process.terminate()
        assert await asyncio.to_thread(bookie.exit_code) == 0
