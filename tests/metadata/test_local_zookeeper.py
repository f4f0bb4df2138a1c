"""The ZooKeeper of a local cluster keeps its data, and says why when it cannot start."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from spark_bookkeeper.local.errors import LocalStartError
from spark_bookkeeper.local.java import JavaNotFoundError, find_java, pyspark_jars
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.conformance.metadata_store import content


@pytest.mark.zookeeper
@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_what_was_written_is_there_after_a_restart_on_the_same_port(
    tmp_path: Path, end: str
) -> None:
    process = ZooKeeperProcess(tmp_path)
    process.start()
    process.start()
    port = process.port

    store = await ZooKeeperStore.connect([process.service])
    await store.create("/a", b"kept")
    await store.close()
    getattr(process, end)()
    getattr(process, end)()
    assert not process.is_running

    with ZooKeeperProcess(tmp_path, port) as again:
        store = await ZooKeeperStore.connect([again.service])
        assert await content(store, "/a") == (b"kept", 0)
        await store.close()


@pytest.mark.zookeeper
@pytest.mark.slow
def test_a_failed_start_carries_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "version-2").write_text("in the way")
    process = ZooKeeperProcess(tmp_path)

    with pytest.raises(LocalStartError) as error:
        process.start()
    assert "version-2" in error.value.log_tail
    assert len(error.value.log_tail.splitlines()) <= 20


def test_a_port_in_use_is_refused_before_anything_is_spawned(tmp_path: Path) -> None:
    def popen(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("spawned")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            LocalStartError, match=f"another process has port {port} .* choose another with --port"
        ):
            ZooKeeperProcess(tmp_path, port, popen=popen).start()


def test_a_process_that_never_answers_is_killed_after_the_deadline(tmp_path: Path) -> None:
    spawned: list[subprocess.Popen[bytes]] = []

    def popen(command: Any, **options: Any) -> subprocess.Popen[bytes]:
        spawned.append(subprocess.Popen(["sleep", "60"], **options))
        return spawned[-1]

    with pytest.raises(LocalStartError, match="no answer"):
        ZooKeeperProcess(tmp_path, popen=popen).start(timeout_ms=100)
    assert spawned[0].poll() is not None


def test_java_is_found_and_its_absence_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_java().name == "java"

    # when JAVA_HOME has an old one and the PATH none
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)

    with pytest.raises(JavaNotFoundError, match=r"apt-get install .*version 8\)"):
        find_java()


def test_pysparks_jars_hold_a_zookeeper() -> None:
    assert list(pyspark_jars().glob("zookeeper-3.*.jar"))
