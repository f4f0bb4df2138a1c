"""What stands in the folder that a command is started in is not run: anybody may write there, as in ``/tmp``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bookie_server.client.relay import RelayedBookieClient
from bookie_server.client.settings import ConnectionSettings
from spark_bookkeeper.admin.doctor.findings import Level
from spark_bookkeeper.admin.doctor.machine import examine_machine
from spark_bookkeeper.local.environment import child_environment, package_environment

UNREACHED = "127.0.0.1:1"


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The mark that packages of these names leave when anything of them is run."""
    mark = tmp_path / "was-run"
    folder = tmp_path / "anybodys"
    for name in ("spark_bookkeeper", "bookie_server", "bookkeeper_metadata", "json", "struct"):
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(folder)
    return mark


@pytest.mark.slow
def test_a_process_of_ours_takes_nothing_from_there(foreign: Path) -> None:
    """Auto-recovery beside a bookie was started, again and again, from what stood there."""
    for environment in (package_environment(), child_environment()):
        command = [sys.executable, "-m", "spark_bookkeeper.cli", "--version"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("bookkeeper, version")
    assert not foreign.exists()


@pytest.mark.slow
async def test_nor_does_a_relay(foreign: Path) -> None:
    client = RelayedBookieClient(UNREACHED, UNREACHED, ConnectionSettings(read_timeout_ms=60_000))
    try:
        assert await client.info() is None
    finally:
        await client.close()
    assert not foreign.exists()  # noqa: ASYNC240 - of a file that is not there


@pytest.mark.slow
def test_nor_does_the_question_what_sparks_python_has(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (found,) = (each for each in examine_machine() if each.subject == "spark's python")
    assert found.level is Level.GOOD, found
    assert not foreign.exists()
