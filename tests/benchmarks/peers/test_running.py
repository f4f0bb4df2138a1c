"""A side that cannot do what a round asks costs that round, and nothing else."""

from __future__ import annotations

import os
from typing import Any

import pytest

from benchmarks.peers import sides as sides_module
from benchmarks.peers.commands import ClientFailedError, CommandFailedError
from benchmarks.peers.rounds import OURS, PEER
from benchmarks.peers.running import Plan, run_all, run_workload
from benchmarks.peers.sides import Side
from benchmarks.peers.table import lines, markdown
from benchmarks.peers.workloads import workloads

PLAN = Plan(seconds=1, rounds=3, warm_up_rounds=2)


class Client:
    """Answers as asked to, command by command."""

    pid = os.getpid()

    def __init__(self, *errors: Exception | None) -> None:
        self.asked: list[str] = []
        self._errors = list(errors)

    def ask(self, *words: object) -> dict[str, float]:
        self.asked.append(str(words[0]))
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        return {"seconds": 1.0, "count": 1_000.0, "bytes": 1_024_000.0, "p99_ms": 2.0}


@pytest.fixture(autouse=True)
def _without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides_module, "REST_S", 0)


def sides_of(ours: Client, peer: Client) -> dict[str, Side]:
    def side(client: Any) -> Side:
        return Side(client, ())

    return {OURS: side(ours), PEER: side(peer)}


REFUSED = CommandFailedError("Apache BookKeeper", "NotEnoughBookies", "")


def test_a_round_in_which_a_side_fails_does_not_count_and_is_told() -> None:
    peer = Client(None, None, None, REFUSED)
    workload = workloads()[0]

    outcome = run_workload(sides_of(Client(), peer), workload, PLAN, {})

    assert (len(outcome.rounds), len(outcome.failures)) == (2, 1)
    assert "NotEnoughBookies" in outcome.failures[0]
    assert lines(outcome.row())[0] == f"{workload.title} (1 failed)"


def test_a_workload_that_a_side_never_does_has_no_figures_and_ends_nothing() -> None:
    peer = Client(*[REFUSED] * 5)

    first, second = run_all(sides_of(Client(), peer), workloads()[:2], PLAN)

    assert (first.rounds, len(first.failures)) == ((), 3)
    assert first.row().speeds == ()
    assert "(3 failed)" in markdown([first.row(), second.row()], {}, 3)
    assert (len(second.rounds), second.failures) == (3, ())


def test_a_client_that_ends_ends_the_comparison() -> None:
    peer = Client(None, None, ClientFailedError("Apache BookKeeper", "its process ended", ""))

    with pytest.raises(ClientFailedError, match="its process ended"):
        run_workload(sides_of(Client(), peer), workloads()[0], PLAN, {})
