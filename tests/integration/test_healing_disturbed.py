"""What heals is killed again and again, and the metadata service goes away meanwhile: nothing is lost, and it heals all the same."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.environment import child_environment
from tests.integration.processes import command, end_session
from tests.patience import Deadline, seconds

pytestmark = [pytest.mark.integration, pytest.mark.full]

PAYLOADS = [b"%d" % number * 200 for number in range(300)]
LEDGERS = 150


class Healing:
    """A cluster of five that has lost a bookie for good, and what may be done about it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.uri = cluster.metadata_service_uri
        self.ledger_ids: list[int] = []
        self.lost: LocalBookie | None = None

    def write(self) -> None:
        with BookKeeper(self.uri) as bk:
            for _ in range(LEDGERS):
                with bk.create_ledger() as writer:
                    writer.append_many(PAYLOADS)
                self.ledger_ids.append(writer.ledger_id)

    def lose(self) -> str:
        """Kill one for good; ZooKeeper ends its session at once."""
        self.lost = self.cluster.bookies[0]
        self.lost.kill()
        end_session(self.uri, self.lost.bookie_id)
        return self.lost.bookie_id

    def start_daemon(self, bytes_per_second: int = 0) -> subprocess.Popen[bytes]:
        """The process that heals, at a pace."""
        program = [sys.executable, "-m", "spark_bookkeeper.cli", "autorecovery"]
        settings = ("--poll-ms", "100", "--retry-ms-min", "500", "--log-level", "error")
        pace = ("--bytes-per-second", str(bytes_per_second))
        return subprocess.Popen(
            [*program, "--metadata-service-uri", self.uri, *settings, *pace],
            env=child_environment(),
        )

    def naming(self, bookie_id: str) -> list[int]:
        """Ledgers whose metadata names a bookie."""
        with BookKeeper(self.uri) as bk:
            return [
                each for each in self.ledger_ids if bookie_id in bk.ledger_metadata(each).bookie_ids
            ]

    def assert_whole(self) -> None:
        """Every replica has every entry; then another bookie is killed, and all is read."""
        assert command(self.uri, "underreplicated", "list")["underreplicated"] == []
        verified = command(self.uri, "ledgers", "verify", "--all")
        assert verified["passed"]
        assert sum(each["copies_missing"] for each in verified["ledgers"]) == 0
        next(each for each in self.cluster.bookies if each.is_running).kill()
        with BookKeeper(self.uri) as bk:
            for ledger_id in self.ledger_ids:
                with bk.open_ledger(ledger_id) as reader:
                    assert [bytes(entry.payload) for entry in reader.read(0, 299)] == PAYLOADS


@pytest.fixture
def healing() -> Iterator[Healing]:
    with LocalCluster(5) as cluster:
        found = Healing(cluster)
        found.write()
        yield found


def test_a_healer_that_is_killed_at_any_moment_is_followed_by_another(healing: Healing) -> None:
    lost, random, kills = healing.lose(), Random(7), 0
    waited, left = Deadline(300), healing.naming(healing.cluster.bookies[0].bookie_id)
    assert len(left) > LEDGERS // 3
    while left:
        assert not waited.has_passed, left
        with healing.start_daemon(2 << 20) as daemon:
            # At its start, at any step of a copy, and at the last one alike. Its locks end with its session.
            # On a busy machine it takes as much longer to get anywhere.
            time.sleep(seconds(1 + 2 * random.random()))
            daemon.kill()
        kills += 1
        left = healing.naming(lost)

    with healing.start_daemon() as daemon:
        while command(healing.uri, "underreplicated", "list")["underreplicated"]:
            assert not waited.has_passed
            time.sleep(0.2)
        daemon.terminate()
    assert kills >= 3
    healing.assert_whole()


def take_zookeeper_away(cluster: LocalCluster, times: int) -> None:
    for _ in range(times):
        time.sleep(0.7)
        cluster.zookeeper.kill()
        time.sleep(1.5)
        cluster.zookeeper.start()


def test_zookeeper_is_away_while_it_heals(healing: Healing) -> None:
    lost, waited = healing.lose(), Deadline(300)
    with healing.start_daemon() as daemon:
        take_zookeeper_away(healing.cluster, 3)
        while (
            healing.naming(lost)
            or command(healing.uri, "underreplicated", "list")["underreplicated"]
        ):
            assert not waited.has_passed
            assert daemon.poll() is None
            time.sleep(0.5)
        daemon.terminate()

    healing.assert_whole()


def test_zookeeper_is_away_while_a_bookie_is_retired(healing: Healing) -> None:
    retired = healing.cluster.bookies[0]
    away = threading.Thread(target=take_zookeeper_away, args=(healing.cluster, 3))
    away.start()
    waited = Deadline(300)
    while True:
        # It may say that it could not go on; run again, it does.
        program = [sys.executable, "-m", "spark_bookkeeper.cli", "bookies", "decommission"]
        ended = subprocess.run(
            [*program, retired.bookie_id, "--metadata-service-uri", healing.uri],
            env=child_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if not ended.returncode:
            break
        assert "Traceback" not in ended.stderr
        assert not waited.has_passed, ended.stderr
    away.join()

    assert healing.naming(retired.bookie_id) == []
    retired.stop()
    command(healing.uri, "cookies", "delete", retired.bookie_id, "--yes")
    healing.assert_whole()
