"""Apache's shell works on our bookies, and its auto-recovery heals them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.peers.apache import JAVA_OPTIONS
from benchmarks.peers.artifacts import Artifacts
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.environment import child_environment
from tests.interop.conftest import MakeJavaClient
from tests.patience import Deadline, seconds

pytestmark = [pytest.mark.integration, pytest.mark.full]

COMMAND_TIMEOUT_S = 90
HEALED_WITHIN_S = 180.0
Shell = Callable[..., subprocess.CompletedProcess[str]]


def configured(directory: Path, uri: str) -> Path:
    """A configuration of Apache's for this cluster."""
    place = directory / "bookkeeper.conf"
    lines = {
        "metadataServiceUri": uri,
        "allowLoopback": "true",
        "journalDirectories": f"{directory}/none",
        "ledgerDirectories": f"{directory}/none",
        "auditorPeriodicCheckInterval": "0",
        "lostBookieRecoveryDelay": "0",
        "openLedgerRereplicationGracePeriod": "1000",
    }
    place.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return place


@pytest.fixture
def shell(artifacts: Artifacts, ours: LocalCluster, tmp_path: Path) -> Shell:
    """Runs a command of ``bookkeeper shell``."""
    config = configured(tmp_path, ours.metadata_service_uri)

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        main = "org.apache.bookkeeper.bookie.BookieShell"
        command = artifacts.command(
            main, "-conf", str(config), *map(str, words), options=JAVA_OPTIONS
        )
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds(COMMAND_TIMEOUT_S),
            check=False,
        )

    return run


def test_the_shell_finds_its_way(ours: LocalCluster, bk: BookKeeper, shell: Shell) -> None:
    writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    writer.append_many([b"payload %d" % number for number in range(20)])
    writer.close()
    ledger_id, bookie_id = writer.ledger_id, ours.bookies[0].bookie_id
    commands: list[tuple[object, ...]] = [
        ("simpletest", "-ensemble", 3, "-writeQuorum", 3, "-ackQuorum", 2, "-numEntries", 100),
        ("listbookies", "-rw", "-h"),
        ("listbookies", "-a"),
        ("bookieinfo",),
        ("listledgers", "-meta"),
        ("ledgermetadata", "-l", ledger_id),
        ("readledger", "-l", ledger_id, "-fe", 0, "-le", 19),
        ("readledger", "-l", ledger_id, "-b", bookie_id, "-fe", 0, "-le", 19),
        ("cookie_get", bookie_id),
        ("endpointinfo", "-b", bookie_id),
        ("whatisinstanceid",),
        ("deleteledger", "-l", ledger_id, "-f"),
    ]
    for command in commands:
        done = shell(*command)
        assert done.returncode == 0, (command, done.stderr[-2_000:])
    assert ledger_id not in set(bk.list_ledgers())


def test_apaches_auto_recovery_heals_our_bookies(
    artifacts: Artifacts, tmp_path: Path, java: MakeJavaClient
) -> None:
    """One of ours is killed for good: what it held is copied to the fourth, by adds whose LAC is not below themselves."""
    with LocalCluster(4) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
        config = configured(tmp_path, cluster.metadata_service_uri)
        client = java(cluster.metadata_service_uri, "v2")
        ledgers = [
            client.write_ledger("CRC32C", (3, 3, 2), (10, 2_000, 0, 70_000)) for _ in range(4)
        ]
        lost = cluster.bookies[0]
        named = [each for each in ledgers if lost.bookie_id in members_of(bk, each)]
        main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
        command = artifacts.command(main, "--conf", str(config), options=JAVA_OPTIONS)
        with (tmp_path / "autorecovery.log").open("wb") as log:
            healing = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        try:
            lost.kill()
            deadline = Deadline(HEALED_WITHIN_S)
            while any(lost.bookie_id in members_of(bk, each) for each in named):
                assert not deadline.has_passed, (tmp_path / "autorecovery.log").read_text()[-4_000:]
                assert healing.poll() is None
        finally:
            healing.kill()
            healing.wait()
        for ledger_id in ledgers:
            reader = bk.open_ledger(ledger_id, password=b"secret")
            assert len(list(reader.read(0, 3))) == 4
        words = ("ledgers", "verify", *map(str, ledgers), "--password", "secret")
        uri = ("--metadata-service-uri", cluster.metadata_service_uri)
        verified = subprocess.run(
            [sys.executable, "-m", "spark_bookkeeper.cli", *words, *uri],
            env=child_environment(),
            check=False,
        )
        assert verified.returncode == 0, "every replica is there, and alike"


def members_of(bk: BookKeeper, ledger_id: int) -> set[str]:
    """All bookies that the metadata of a ledger names."""
    fragments = bk.ledger_metadata(ledger_id).fragments
    return {member for fragment in fragments for member in fragment.ensemble}
