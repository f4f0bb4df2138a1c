"""Commands without a cluster: help, wrong use, directories and clusters that cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bookie_server.settings import bookie_settings_table
from bookkeeper_metadata.foundation.settings_sources import SettingsTable
from spark_bookkeeper.cli import run
from spark_bookkeeper.replication.settings import auto_recovery_settings_table
from tests.integration.command_line import CommandLine

pytestmark = pytest.mark.integration


@pytest.fixture
def nowhere(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """For commands that must not need a cluster."""
    return CommandLine("zk+hierarchical://127.0.0.1:1/ledgers", capfd, monkeypatch)


@pytest.mark.slow
def test_an_unreachable_cluster_fails_in_one_line(nowhere: CommandLine) -> None:
    code, out, err = nowhere.outcome("ledgers", "list")

    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("BK_METADATA_UNAVAILABLE: ")
    assert "127.0.0.1:1" in err


def test_a_malformed_uri_is_wrong_use(nowhere: CommandLine) -> None:
    assert "http://example" in nowhere.at("http://example").refused("cluster", "info", code=2)


@pytest.mark.parametrize("command", [["local", "--dir"], ["demo", "--keep"]], ids=" ".join)
def test_a_directory_that_cannot_be_made_is_named(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    wanted = tmp_path / "file" / "below"

    assert run([*command, str(wanted)]) == 1

    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("BK_LOCAL_DIRECTORY: directory cannot be made or written to")
    assert last.endswith(f"directory={wanted}")


def test_a_directory_that_cannot_be_written_to_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.lock").mkdir()

    assert run(["local", "--dir", str(tmp_path)]) == 1

    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("BK_LOCAL_DIRECTORY: ")
    assert str(tmp_path / "cluster.lock") in last


@pytest.mark.parametrize(
    "arguments",
    [
        ["ledgers", "list"],  # no cluster named
        ["ledgers", "show", "seven"],
        ["unknown"],
        ["demo", "--scale", "0"],
        ["logs", "read", "x", "--first-row", "third"],
        ["logs", "read", "x", "--end-row", "-1"],
        ["logs", "tail", "x", "--from", "9" * 19],
        ["local", "--bookies", "0"],
        ["autorecovery", "--http-host", "0.0.0.0"],
        ["autorecovery", "--config", "/no/such/file"],
        ["bookie", "--autorecovery", "--autorecovery-config", "/no/such/file"],
        ["autorecovery", "--lost-bookie-delay-ms", "soon"],
        ["bookie", "--port", "many"],
        ["bookie", "--host", "0.0.0.0"],
    ],
    ids=" ".join,
)
def test_wrong_use_exits_with_two(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BOOKKEEPER_METADATA_URI", raising=False)

    assert run(arguments) == 2
    assert capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "option"), [("read", "--first-row"), ("read", "--end-row"), ("tail", "--from")]
)
def test_a_wrong_place_in_a_log_is_told_by_the_options_own_name(
    nowhere: CommandLine, command: str, option: str
) -> None:
    code, out, err = nowhere.outcome("logs", command, "x", option, "third")

    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        f"Error: Invalid value for '{option}': 'third' is no row number, earliest or latest."
    )


def test_help_names_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0

    shown = capfd.readouterr().out
    for noun in ("bookie", "bookies", "cluster", "demo", "ledgers", "local", "logs"):
        assert f"\n  {noun} " in shown


@pytest.mark.parametrize(
    ("command", "table"),
    [("bookie", bookie_settings_table()), ("autorecovery", auto_recovery_settings_table())],
)
def test_every_setting_is_a_flag(
    command: str, table: SettingsTable[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0

    shown = capfd.readouterr().out
    assert [each.flag for each in table.settings if each.flag not in shown] == []
