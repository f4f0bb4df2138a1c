"""``python -m tests.simulation.commits --seed N [--trace] [--count K] [--minutes M] [--mutant NAME]``.

Runs schedules of the commit world. A failing one is shrunk and its trace printed; ``--save`` keeps its
decisions in a file, which ``--replay FILE`` runs. ``--directed NAME`` plays a directed schedule.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from tests.simulation.commits.campaign import Report, run_seeds, seed_base
from tests.simulation.commits.model import Outcome, run_schedule
from tests.simulation.commits.mutants import MUTANTS, SHRINK_RUNS, violations_of_record
from tests.simulation.commits.playing import run_directed
from tests.simulation.commits.registry import DIRECTED
from tests.simulation.kit.shrink import explain, load

say = sys.stdout.write


def main() -> int:
    """Returns 1 when something was violated."""
    arguments = _parse()
    logging.disable(logging.CRITICAL)
    planted = MUTANTS[arguments.mutant].planted() if arguments.mutant else nullcontext()
    with planted:
        if arguments.directed is not None:
            return _show(run_directed(arguments.directed, is_traced=True))
        if arguments.replay is not None:
            return _show(run_schedule(0, record=load(arguments.replay), is_traced=True))
        seed = seed_base() if arguments.seed is None else arguments.seed
        if arguments.count == 1 and not arguments.minutes:
            outcome = run_schedule(seed, is_traced=arguments.trace)
            if outcome.violations and not arguments.trace:
                return _explain(outcome, arguments.save)
            return _show(outcome)
        return _many(seed, arguments.count, arguments.minutes, arguments.save)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.commits")
    parser.add_argument("--seed", type=int, help="first seed; default: from the source tree")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="instead: for how long")
    parser.add_argument("--trace", action="store_true", help="print every operation and event")
    parser.add_argument("--mutant", choices=sorted(MUTANTS))
    parser.add_argument("--directed", choices=sorted(DIRECTED))
    parser.add_argument("--save", type=Path, help="keep the shrunk failure here")
    parser.add_argument("--replay", type=Path)
    return parser.parse_args()


def _many(seed: int, count: int, minutes: float, save_to: Path | None) -> int:
    report = Report()
    began_s = time.monotonic()
    while (time.monotonic() < began_s + 60 * minutes) if minutes else (report.schedules < count):
        report.add(run_seeds(seed + report.schedules, 1))
    for mark, seen in sorted(report.marks.items()):
        say(f"{seen:>10} {mark}\n")
    a_second = report.schedules / (time.monotonic() - began_s)
    say(f"{report.schedules} schedules from {seed}, {a_second:.1f} a second, ")
    say(f"{report.steps} steps, {report.events} events\n")
    for failed, violations in report.failures:
        say(f"seed {failed}: {'; '.join(violations)}\n")
    if not report.failures:
        say("nothing violated\n")
        return 0
    return _explain(run_schedule(report.failures[0][0]), save_to)


def _explain(outcome: Outcome, save_to: Path | None) -> int:
    """Shrink a failure and print it."""
    record = explain(
        outcome.seed, outcome.record, violations_of_record, runs_max=SHRINK_RUNS, save_to=save_to
    )
    _show(run_schedule(0, record=record, is_traced=True))
    say(f"again: python -m tests.simulation.commits --seed {outcome.seed}\n")
    return 1


def _show(outcome: Outcome) -> int:
    say("".join(f"{line}\n" for line in outcome.history.trace))
    found = (f"VIOLATED {violation}\n" for violation in outcome.violations)
    say("".join(found) or "nothing violated\n")
    return int(bool(outcome.violations))


if __name__ == "__main__":
    raise SystemExit(main())
