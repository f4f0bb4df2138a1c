"""Real processes of a cluster whose ZooKeeper takes TLS only, and users: bookies, auto-recovery, commands, a client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trustme

from bookkeeper_metadata.store.zookeeper_settings import ZOOKEEPER_VARIABLES
from spark_bookkeeper import BookKeeper
from spark_bookkeeper.local.environment import package_environment
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from tests.integration.command_line import CommandLine
from tests.integration.processes import eventually
from tests.metadata.secure_zookeeper import Certificates, SecureZooKeeper, user_file
from tests.patience import seconds

pytestmark = pytest.mark.integration


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[SecureZooKeeper, trustme.CA]]:
    authority = trustme.CA()
    with SecureZooKeeper(tmp_path / "zookeeper", authority, "need") as process:
        yield process, authority


@pytest.fixture
def commands(
    secure: tuple[SecureZooKeeper, trustme.CA],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    """By the environment with a certificate and as a user, as everything that is started."""
    process, authority = secure
    own = Certificates.make(tmp_path / "own", "client", authority)
    given = {
        "zookeeper_trust_path": own.trust_path,
        "zookeeper_certificate_path": own.path,
        "zookeeper_auth_path": user_file(tmp_path, "me"),
    }
    for name, value in given.items():
        monkeypatch.setenv(ZOOKEEPER_VARIABLES[name], value)
    uri = f"zk+hierarchical://{process.secure_service}/ledgers"
    return CommandLine(uri, capfd, monkeypatch)


def bookie_command(uri: str, place: Path, *flags: str) -> list[str]:
    ports: set[int] = set()
    port, rpc_port = (free_port(ports) for _ in range(2))
    settings = {
        "metadata-service-uri": uri,
        "bookie-id": place.name,
        "host": LOOPBACK,
        "port": port,
        "rpc-port": rpc_port,
        "journal-directories": place / "journal",
        "ledger-directories": place / "ledgers",
    }
    given = [f"--{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "spark_bookkeeper.cli", "bookie", *given, *flags]


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=package_environment(), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(seconds(30))


def test_a_cluster_works_by_tls_as_a_user_and_nothing_of_it_is_open(
    commands: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands("cluster", "init")
    with ExitStack() as stack:
        for number in range(3):
            flags = ("--autorecovery",) if number == 0 else ()
            command = bookie_command(commands.uri, tmp_path / f"b{number}", *flags)
            stack.enter_context(running(command, tmp_path / f"b{number}.log"))

        def is_all_there() -> bool:
            code, out, _ = commands.outcome("cluster", "info", "--json")
            return code == 0 and all(f'"b{number}"' in out for number in range(3))

        assert eventually(is_all_there, 60)
        # Beside its bookie, with the bookie's way in.
        assert eventually(
            lambda: "b0" in commands.outcome("autorecovery", "status", "--json")[1], 60
        )
        with BookKeeper(commands.uri) as client:
            with client.create_ledger() as writer:
                writer.append(b"by TLS")
            entries = client.open_ledger(writer.ledger_id).read(0, 0)
            assert [bytes(entry.payload) for entry in entries] == [b"by TLS"]
            with client.create_log("events").writer() as log:
                log.append(b"row")
        assert commands("logs", "read", "events", "--limit", "1") != ""

        found = commands.json("metadata", "acl", "check")
        assert found["as_wanted"] == found["nodes"] > 30

        monkeypatch.delenv(ZOOKEEPER_VARIABLES["zookeeper_auth_path"])
        refused = commands.refused("ledgers", "list")
        assert refused.startswith("BK_METADATA_ACCESS")


def test_a_bookie_without_its_file_says_which_and_does_not_start(
    commands: CommandLine, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    command = bookie_command(
        commands.uri, tmp_path / "b9", f"--zookeeper-auth-path={missing}", "--log-format=json"
    )

    done = subprocess.run(
        command, env=package_environment(), capture_output=True, text=True, timeout=seconds(60)
    )

    assert done.returncode == 1
    assert missing in done.stderr + done.stdout
    assert "No such file or directory" in done.stderr + done.stdout
