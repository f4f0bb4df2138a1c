"""Every side gets a turn in each round, who begins goes round, and only figures of one round are compared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.artifacts import PeerUnavailableError
from benchmarks.peers.commands import CommandFailedError
from benchmarks.spark_peers import comparing
from benchmarks.spark_peers.comparing import PEERS, TASKS, Turns, main, run_task, turns_of
from benchmarks.spark_peers.side import KINDS

NAMES = ["ours", "delta", "kafka-json"]


class Client:
    """Takes so many seconds for each turn, or fails."""

    def __init__(self, name: str, log: list[str], *seconds: float | None) -> None:
        self._name = name
        self._log = log
        self._seconds = list(seconds)

    def ask(self, *words: object) -> dict[str, float]:
        self._log.append(self._name)
        taken = self._seconds.pop(0) if self._seconds else 1.0
        if taken is None:
            raise CommandFailedError(self._name, "no room", "")
        return {"seconds": taken, "count": 100.0, "bytes": 0.0}


@pytest.fixture(autouse=True)
def _without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "REST_S", 0)


def run(rounds: int, warm_up: int, **seconds: tuple[float | None, ...]) -> tuple[Turns, list[str]]:
    log: list[str] = []
    clients: dict[str, Any] = {
        name.replace("_", "-"): Client(name, log, *taken) for name, taken in seconds.items()
    }
    return run_task(clients, TASKS[0], rounds, warm_up), log


def test_who_begins_goes_round() -> None:
    turns = [turns_of(NAMES, index) for index in range(-2, 4)]

    assert all(sorted(each) == sorted(NAMES) for each in turns)
    assert Counter(each[0] for each in turns) == dict.fromkeys(NAMES, 2)


def test_a_ratio_is_of_one_round_and_warm_up_rounds_do_not_count() -> None:
    turns, log = run(2, 1, ours=(9.0, 1.0, 2.0), delta=(1.0, 2.0, 4.0))

    (compared,) = turns.row("delta").speeds
    assert (compared.ratio, compared.ratio_worst) == (2.0, 2.0)
    assert Counter(log) == {"ours": 3, "delta": 3}


def test_a_side_that_fails_costs_its_own_comparison_that_round() -> None:
    turns, _ = run(2, 0, ours=(1.0, 1.0), delta=(None, 4.0), kafka_json=(2.0, 2.0))

    (beside_delta,), (beside_kafka,) = turns.row("delta").speeds, turns.row("kafka-json").speeds
    assert (beside_delta.ratio, turns.row("delta").failures) == (4.0, ("no room",))
    assert (beside_kafka.ratio, turns.row("kafka-json").failures) == (2.0, ())


def test_every_peer_is_a_kind_that_the_side_knows() -> None:
    assert KINDS.keys() == {"ours", *PEERS}


def test_a_machine_without_the_peers_skips_the_comparison_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def prepare(cache: Path) -> None:
        raise PeerUnavailableError("mvn is missing")

    monkeypatch.setattr(comparing, "prepare", prepare)

    assert main(["--cache", str(tmp_path)]) == 0
    assert "skipped, no peer to compare with: mvn is missing" in capsys.readouterr().out


def test_a_peer_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--peer", "parquet"])
    assert "kafka-avro" in capsys.readouterr().err
