"""Runs workloads on two sides that are up: warm-up rounds, then those that count.

The JVM compiles what it runs often only after a while, so its first rounds after a start are half as
fast; warm-up rounds are for both sides, and nobody sees their figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.peers.commands import CommandFailedError
from benchmarks.peers.rounds import OURS, PEER, Comparison, Measure, Round, compare
from benchmarks.peers.sides import Side, run_round
from benchmarks.peers.table import Row
from benchmarks.peers.workloads import PREPARED_BYTES, Workload

SETTLE_S = 12.0
"""After ledgers to be read were written: both kinds of bookies empty their write caches every 10 s."""


@dataclass(frozen=True)
class Outcome:
    """A workload's measured rounds."""

    workload: Workload
    rounds: tuple[Round, ...]
    failures: tuple[str, ...] = ()
    """Why others were left out: a round counts only if both sides did what it asks."""

    def row(self) -> Row:
        """Its comparisons, those without figures left out."""
        return Row(
            self.workload.title,
            self._compared(self.workload.speeds),
            self._compared(self.workload.costs),
            self.failures,
        )

    def _compared(self, measures: Sequence[Measure]) -> tuple[Comparison, ...]:
        found = (compare(measure, self.rounds) for measure in measures)
        return tuple(each for each in found if each is not None)


def say(text: str) -> None:
    """A line at once, also into a pipe."""
    print(text, flush=True)


@dataclass(frozen=True)
class Plan:
    """How long and how often."""

    seconds: float
    rounds: int
    warm_up_rounds: int


def run_workload(
    sides: dict[str, Side], workload: Workload, plan: Plan, ledgers: dict[str, int]
) -> Outcome:
    """Warm-up rounds, which nobody sees, and the measured ones."""
    commands = {
        name: text.format(seconds=plan.seconds, ledger=ledgers.get(name))
        for name, text in ((OURS, workload.ours), (PEER, workload.peer))
    }
    measured: list[Round] = []
    failures: list[str] = []
    for index in range(-plan.warm_up_rounds, plan.rounds):
        try:
            done = run_round(sides, commands, index)
            said = _brief(workload, done)
        except CommandFailedError as failed:
            done, said = None, f"left out, {failed.name} failed: {failed.detail}"
        if index < 0:
            continue
        if done is None:
            failures.append(said)
        else:
            measured.append(done)
        say(f"  {workload.name} round {index + 1} of {plan.rounds}: {said}")
    return Outcome(workload, tuple(measured), tuple(failures))


def _brief(workload: Workload, measured: Round) -> str:
    parts = [f"load {measured.load:.1f}"]
    for measure in workload.speeds:
        ours, peer = (measured.figures[side].get(measure.key, 0.0) for side in (OURS, PEER))
        parts.append(f"{measure.label or 'rate'} {ours:,.1f} / {peer:,.1f} {measure.unit}")
    return ", ".join(parts)


def run_all(sides: dict[str, Side], chosen: Sequence[Workload], plan: Plan) -> Iterator[Outcome]:
    """Every workload in turn; what it wrote is deleted before the next, for the disk is not endless."""
    ledgers: dict[int, dict[str, int]] = {}
    for workload in chosen:
        size = workload.prepared_size
        if size is not None and not ledgers:
            ledgers = _prepare_ledgers(sides, chosen)
        outcome = run_workload(sides, workload, plan, ledgers[size] if size is not None else {})
        yield outcome
        if size is None:  # the next may read the same ledgers
            for side in sides.values():
                side.client.ask("forget")


def _prepare_ledgers(
    sides: dict[str, Side], chosen: Sequence[Workload]
) -> dict[int, dict[str, int]]:
    """Closed ledgers of each size that is read, by size and side."""
    sizes = dict.fromkeys(each.prepared_size for each in chosen if each.prepared_size is not None)
    say(f"writing ledgers of {PREPARED_BYTES >> 20} MiB to read")
    found = {
        size: {
            name: int(side.client.ask("prepare", size, PREPARED_BYTES // size)["ledger"])
            for name, side in sides.items()
        }
        for size in sizes
    }
    time.sleep(SETTLE_S)
    return found
