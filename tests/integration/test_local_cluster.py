"""A local cluster keeps its identity and data, says why it does not start, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.errors import LocalDirectoryInUseError, LocalStartError
from spark_bookkeeper.local.ports import free_port
from tests.integration.processes import (
    eventually,
    first_line,
    is_alive,
    paused,
    processes_of,
    python,
)

pytestmark = [pytest.mark.integration, pytest.mark.zookeeper, pytest.mark.slow]

LAUNCHER = """
import sys, time
from spark_bookkeeper import LocalCluster
cluster = LocalCluster(2, directory=sys.argv[1])
cluster.start()
cluster.bookies[0].pause()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def write(cluster: LocalCluster, *payloads: bytes) -> int:
    """A closed ledger of these entries."""
    with BookKeeper(cluster.metadata_service_uri) as client:
        count = len(cluster.bookies)
        with client.create_ledger(
            ensemble_size=count, write_quorum=count, ack_quorum=max(1, count - 1)
        ) as writer:
            writer.append_many(payloads)
        return writer.ledger_id


def read(cluster: LocalCluster, ledger_id: int) -> list[bytes]:
    with BookKeeper(cluster.metadata_service_uri) as client:
        reader = client.open_ledger(ledger_id)
        return [bytes(entry.payload) for entry in reader.read(0, reader.last_add_confirmed)]


def test_every_bookie_serves_once_start_returns(cluster: LocalCluster, bk: BookKeeper) -> None:
    registered = {each.bookie_id for each in bk.bookies() if each.writable}

    assert registered >= {each.bookie_id for each in cluster.bookies}
    assert read(cluster, write(cluster, b"one", b"two")) == [b"one", b"two"]


def test_a_killed_bookie_comes_back_as_itself_with_its_data(cluster: LocalCluster) -> None:
    ledger_id = write(cluster, b"kept")
    bookie, *others = cluster.bookies
    before = bookie.bookie_id, bookie.pid

    bookie.kill()
    assert bookie.pid is None
    bookie.start()

    assert bookie.bookie_id == before[0]
    assert bookie.pid != before[1]
    with paused(others):  # so that only the killed one can answer
        assert read(cluster, ledger_id) == [b"kept"]


def test_a_stopped_bookie_withdraws_and_exits_cleanly(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[1]

    bookie.stop()

    with BookKeeper(cluster.metadata_service_uri) as client:
        assert bookie.bookie_id not in {each.bookie_id for each in client.bookies()}
    assert not bookie.is_running
    bookie.start()
    assert bookie.is_running


def test_a_paused_bookie_lives_and_can_be_stopped(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[2]
    bookie.pause()
    lived_while_paused = bookie.is_running

    bookie.stop()

    assert lived_while_paused
    assert not bookie.is_running
    bookie.start()


def test_starting_what_runs_changes_nothing(cluster: LocalCluster) -> None:
    before = [each.pid for each in cluster.bookies], cluster.zookeeper.pid

    cluster.start()
    cluster.bookies[0].start()

    assert ([each.pid for each in cluster.bookies], cluster.zookeeper.pid) == before


def test_another_cluster_may_not_use_the_same_directory(cluster: LocalCluster) -> None:
    with pytest.raises(LocalDirectoryInUseError, match=str(cluster.directory)):
        LocalCluster(1, directory=cluster.directory).start()


def test_nor_may_it_use_the_one_of_a_temporary_cluster() -> None:
    """Its ZooKeeper started on the other's port and files, and the error was about that."""
    with LocalCluster(1) as temporary:
        with pytest.raises(LocalDirectoryInUseError, match=str(temporary.directory)):
            LocalCluster(1, directory=temporary.directory).start()
        assert temporary.zookeeper.is_running
        directory = temporary.directory
    assert not directory.exists()


def test_ids_and_data_survive_in_a_kept_directory(tmp_path: Path) -> None:
    with LocalCluster(1, directory=tmp_path) as first:
        first.add_bookie()
        ids = [each.bookie_id for each in first.bookies]
        sockets = [each.socket_port for each in first.bookies]
        uri = first.metadata_service_uri
        ledger_id = write(first, b"kept")

    assert processes_of(tmp_path) == []
    with LocalCluster(1, directory=tmp_path) as second:
        assert [each.bookie_id for each in second.bookies] == ids
        assert [each.socket_port for each in second.bookies] == sockets
        assert second.metadata_service_uri == uri
        assert read(second, ledger_id) == [b"kept"]


@pytest.mark.conformance("R27")
def test_everything_killed_at_once_comes_back_with_its_data(tmp_path: Path) -> None:
    with LocalCluster(2, directory=tmp_path) as cluster:
        ledger_id = write(cluster, b"a", b"b")

        for bookie in cluster.bookies:
            bookie.kill()
        cluster.zookeeper.kill()
        cluster.start()

        assert read(cluster, ledger_id) == [b"a", b"b"]


def test_a_temporary_cluster_leaves_nothing_and_stops_twice() -> None:
    cluster = LocalCluster(1)
    cluster.start()
    directory = cluster.directory
    assert processes_of(directory)

    cluster.stop()
    cluster.stop()

    assert not directory.exists()
    assert processes_of(directory) == []


def test_a_cluster_starts_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def in_a_notebook() -> int:
        with LocalCluster(1, directory=tmp_path) as cluster:
            return len(cluster.bookies)

    assert asyncio.run(in_a_notebook()) == 1


def test_a_bookie_that_cannot_start_says_why_and_takes_the_cluster_down(tmp_path: Path) -> None:
    port = free_port(set())
    state = {"format": 1, "zookeeper": free_port({port}), "bookies": [port]}
    (tmp_path / "cluster.json").write_text(json.dumps(state))
    (tmp_path / "bookie0").mkdir()
    (tmp_path / "bookie0" / "journal").write_text("no folder")

    with pytest.raises(LocalStartError) as caught:
        LocalCluster(1, directory=tmp_path).start()

    lines = caught.value.log_tail.splitlines()
    assert 1 <= len(lines) <= 20
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert caught.value.log_tail in str(caught.value)
    assert processes_of(tmp_path) == []


def test_nothing_lives_five_seconds_after_its_launcher_was_killed(tmp_path: Path) -> None:
    with python(LAUNCHER, tmp_path) as launcher:
        assert first_line(launcher) == "ready\n"
        pids = [pid for pid in processes_of(tmp_path) if pid != launcher.pid]
        assert len(pids) >= 3  # a JVM and two bookies, one of them paused

        launcher.kill()
        launcher.wait()

        assert eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_a_bookie_writes_its_settings_to_its_configuration(tmp_path: Path) -> None:
    settings = {"checkpoint_interval_ms": 500, "log_level": "warning"}

    with LocalCluster(1, directory=tmp_path, bookie_settings=settings) as cluster:
        config = (cluster.bookies[0].directory / "bookie.toml").read_text()

    assert "checkpoint_interval_ms = 500\n" in config


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [({"bookies": 0}, "bookies must be at least 1"), ({"port": 70_000}, "port must be between")],
)
def test_an_impossible_cluster_is_refused(arguments: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LocalCluster(**arguments)  # type: ignore[arg-type]


def test_a_cluster_with_an_emptied_bookie_starts_when_that_is_said_to_be_lost(
    tmp_path: Path,
) -> None:
    with LocalCluster(2, directory=tmp_path) as cluster:
        ledger_id = write(cluster, b"0")
        lost = cluster.bookies[1]
    for place in ("journal", "ledgers"):
        shutil.rmtree(lost.directory / place)

    with pytest.raises(LocalStartError, match="--replace-lost-directories"):
        LocalCluster(2, directory=tmp_path).start()
    named = [lost.bookie_id]
    with LocalCluster(2, directory=tmp_path, replace_lost_directories=named) as cluster:
        assert read(cluster, ledger_id) == [b"0"]
    with LocalCluster(2, directory=tmp_path) as cluster:
        assert read(cluster, ledger_id) == [b"0"]


def test_a_bookie_that_died_is_started_again_if_asked_for_and_one_that_was_stopped_is_not() -> None:
    with LocalCluster(2, restart_bookies=True) as cluster:
        died, stopped = cluster.bookies
        stopped.stop()
        before = died.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)

        assert eventually(lambda: died.pid not in (None, before), timeout_s=30)
        assert not stopped.is_running
