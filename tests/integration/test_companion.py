"""The process beside a bookie: when it begins, that it comes again and ends, and whose settings it has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from bookie_server.settings import BookieSettings
from spark_bookkeeper.cli.processes import companion
from spark_bookkeeper.cli.processes.autorecovery import autorecovery
from spark_bookkeeper.cli.processes.companion import Command, Companion, auto_recovery_beside
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.replication.settings import auto_recovery_settings_table
from tests.integration.processes import eventually
from tests.patience import seconds

pytestmark = pytest.mark.integration

OF_LIFE = "import os, pathlib, sys; pathlib.Path(str(os.getpid())).touch(); sys.stdin.read()"
OF_DEATH = "import os, pathlib, sys; pathlib.Path(str(os.getpid())).touch(); sys.exit(3)"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each process leaves a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(companion, "_PAUSE_S_MIN", 0.01)
    return tmp_path


def lives(place: Path) -> list[str]:
    return os.listdir(place)


def test_nothing_runs_before_it_is_told_to_begin(place: Path) -> None:
    """It would take its own bookie, which is not registered yet, for lost."""
    with Companion(Command([sys.executable, "-c", OF_LIFE], {})) as beside:
        threads_before = beside._thread
        nothing = lives(place)
        beside.begin()
        beside.begin()
        assert eventually(lambda: lives(place) != [], 20)

    assert (threads_before, nothing) == (None, [])
    assert len(lives(place)) == 1


def test_one_that_is_closed_begins_no_more(place: Path) -> None:
    beside = Companion(Command([sys.executable, "-c", OF_LIFE], {}))
    beside.close()
    beside.close()

    beside.begin()

    assert beside._thread is None
    assert lives(place) == []


def test_one_that_ends_is_started_again_with_its_exit_code_said(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Companion(Command([sys.executable, "-c", OF_DEATH], {})) as beside:
        beside.begin()
        assert eventually(lambda: len(lives(place)) > 1, 20)

    assert "auto-recovery ended, starting it again. exit_code=3" in caplog.text


def test_one_that_cannot_be_started_is_tried_again(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the bookie is out of descriptors: it serves on."""
    with Companion(Command([str(place / "missing")], {})) as beside:
        beside.begin()
        assert eventually(lambda: caplog.text.count("cannot be started yet. detail=") > 1, 20)


TLS: dict[str, Any] = {
    "tls_trust_path": "/t.pem",
    "tls_certificate_path": "/bookie.pem",
    "tls_only": False,
}


def beside(file: Path, lines: str, more: Mapping[str, Any] = MappingProxyType({})) -> Sequence[str]:
    """The command line of auto-recovery beside a bookie, whose own settings these are."""
    file.write_text(lines)
    command = auto_recovery_beside(
        BookieSettings(
            bookie_id="b1",
            metadata_service_uri="zk+hierarchical://zk1:2181;zk2:2181/ledgers",
            log_level="warning",
            autorecovery=True,
            autorecovery_config=str(file),
            **more,
        )
    )
    assert command is not None
    return command.line


def test_its_own_settings_may_say_what_the_bookies_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also the same cluster in other words, and what only it has."""
    same = 'metadata_service_uri = "zk://zk2/ledgers"\nbookie = "b1"\nlog_level = "warning"\npoll_ms = 7\n'

    command = beside(tmp_path / "own.toml", same)

    assert command[command.index("--bookie") + 1] == "b1"
    assert caplog.text == ""


def test_it_has_the_bookies_files_of_tls_unless_it_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(lines: str) -> Sequence[str]:
        return beside(tmp_path / "own.toml", lines, TLS)

    own = command("")
    assert own[own.index("--tls-trust-path") + 1] == "/t.pem"
    assert own[own.index("--tls-certificate-path") + 1] == "/bookie.pem"
    assert "--tls-key-path" not in own
    assert "--no-tls-only" in own
    other = command('tls_certificate_path = "/healer.pem"\ntls_trust_path = "/t2.pem"\n')
    assert "--tls-certificate-path" not in other
    assert "--tls-trust-path" not in other
    assert "--no-tls-only" in other
    # Nor is the bookie's key taken for a certificate of its own that has its key in the same file.
    combined = beside(
        tmp_path / "own.toml", 'tls_certificate_path = "/both.pem"\n', {**TLS, "tls_key_path": "/k"}
    )
    assert combined[combined.index("--tls-trust-path") + 1] == "/t.pem"
    assert "--tls-key-path" not in combined
    for settings in (own, other):
        context = autorecovery.make_context("autorecovery", list(settings[4:]))
        assert context.params["tls_only"] is False


def test_it_gets_into_zookeeper_as_the_bookie_does_unless_it_is_another_user(
    tmp_path: Path,
) -> None:
    settings = BookieSettings(
        bookie_id="b1",
        autorecovery=True,
        autorecovery_config=str(tmp_path / "own.toml"),
        zookeeper_trust_path="/tls/trust.pem",
        zookeeper_auth_path="/secret/bookie",
    )
    (tmp_path / "own.toml").write_text('zookeeper_auth_path = "/secret/healer"')

    command = auto_recovery_beside(settings)

    assert command is not None
    assert command.line[command.line.index("--zookeeper-trust-path") + 1] == "/tls/trust.pem"
    assert not {"--zookeeper-auth-path", "--zookeeper-acl"} & set(command.line)
    assert not command.environment


def test_it_is_given_its_variables_whatever_the_bookie_was(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOKKEEPER_ZOOKEEPER_ACL", "bookies")
    tell = "import os, pathlib, sys; pathlib.Path(os.environ['BOOKKEEPER_ZOOKEEPER_ACL']).touch(); sys.stdin.read()"
    with Companion(
        Command([sys.executable, "-c", tell], {"BOOKKEEPER_ZOOKEEPER_ACL": "own"})
    ) as beside:
        beside.begin()
        assert eventually(lambda: bool(os.listdir(place)), seconds(20))
    assert os.listdir(place) == ["own"]


def test_others_hashes_stand_in_no_list_of_processes(tmp_path: Path) -> None:
    """Whoever may read them guesses passwords, off line and as fast as they can."""
    acl = "digest:other:N7XuGdMcBIsEYEzxPU4ojw0sV8A=:cdrwa"
    settings = BookieSettings(bookie_id="b1", autorecovery=True, zookeeper_acl=acl)

    command = auto_recovery_beside(settings)

    assert command is not None
    assert acl not in " ".join(command.line)
    table = auto_recovery_settings_table()
    assert table.given(config_path=None, environment=command.environment) == {"zookeeper_acl": acl}


@pytest.mark.parametrize(
    ("lines", "variables", "named"),
    [
        ('bookie = "b2"', {}, ["bookie's bookie", "bookies=b1 its_own=b2"]),
        ("", {"BOOKKEEPER_AUTORECOVERY_BOOKIE": "b2"}, ["bookies=b1 its_own=b2"]),
        (
            'metadata_service_uri = "zk://zk1/other"',
            {},
            ["bookie's metadata_service_uri", "its_own=zk://zk1/other"],
        ),
        (
            'metadata_service_uri = "zk://zk3/ledgers"\nbookie = "b2"',
            {},
            ["its_own=zk://zk3/ledgers", "its_own=b2"],
        ),
    ],
    ids=["another bookie", "by a variable", "another root", "other servers and bookie"],
)
def test_own_settings_for_another_bookie_or_cluster_are_refused(
    lines: str,
    variables: dict[str, str],
    named: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were passed over in silence."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(ValueError, match="take it out of them") as error:
        beside(tmp_path / "own.toml", lines)

    assert all(each in str(error.value) for each in named)


def test_own_settings_of_the_log_are_told_not_to_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = beside(tmp_path / "own.toml", 'log_level = "debug"\nlog_format = "json"\n')

    assert command[command.index("--log-level") + 1] == "warning"
    assert "setting=log_format bookies=text its_own=json" in caplog.text
    assert "setting=log_level bookies=warning its_own=debug" in caplog.text


def test_the_clusters_variable_is_for_all_and_a_flag_of_the_bookie_beats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOKKEEPER_METADATA_URI", "zk://elsewhere/ledgers")

    command = beside(tmp_path / "own.toml", "")

    assert "zk+hierarchical://zk1:2181;zk2:2181/ledgers" in command


@pytest.mark.slow
def test_a_bookie_with_such_a_file_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('bookie = "b2"')
    places = [f"--{kind}-directories={kind}" for kind in ("journal", "ledger")]
    flags = ["--bookie-id=b1", "--autorecovery", "--autorecovery-config=own.toml", *places]

    ended = subprocess.run(
        [sys.executable, "-m", "spark_bookkeeper.cli", "bookie", *flags],
        env=child_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
    )

    assert ended.returncode == 2
    assert ended.stderr.startswith("BK_USAGE: auto-recovery beside a bookie has the")
    assert lives(tmp_path) == ["own.toml"]
