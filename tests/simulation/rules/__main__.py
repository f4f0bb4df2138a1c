"""``python -m tests.simulation.rules --seed N [--trace] [--count K] [--mutant NAME] [--save FILE]``.

Runs schedules of the rules model. A failing one is shrunk and its trace printed; ``--save`` keeps
its decisions in a file, which ``--replay FILE`` runs.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from tests.simulation.kit.choices import Choices
from tests.simulation.kit.shrink import explain, load
from tests.simulation.rules.campaign import run_campaign, seed_base
from tests.simulation.rules.model import Outcome, run_schedule
from tests.simulation.rules.mutants import MUTANTS, violations_of_record
from tests.simulation.rules.swarm import draw_swarm

say = sys.stdout.write


def main() -> int:
    """Returns 1 when something was violated."""
    arguments = _parse()
    planted = MUTANTS[arguments.mutant].planted() if arguments.mutant else nullcontext()
    with planted:
        if arguments.replay is not None:
            return _show(run_schedule(0, record=load(arguments.replay), is_traced=True), True)
        seed = seed_base() if arguments.seed is None else arguments.seed
        if arguments.count > 1 and not arguments.mutant:
            return _campaign(seed, arguments.count, arguments.save)
        for number in range(arguments.count):
            outcome = run_schedule(seed + number, is_traced=arguments.trace)
            if outcome.violations:
                return _explain(outcome, arguments.save)
            if arguments.trace:
                _show(outcome, True)
    say(f"{arguments.count} schedules, nothing violated\n")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.rules")
    parser.add_argument("--seed", type=int, help="first seed; default: from the source tree")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--mutant", choices=sorted(MUTANTS))
    parser.add_argument("--save", type=Path, help="keep the shrunk failure here")
    parser.add_argument("--replay", type=Path)
    return parser.parse_args()


def _campaign(seed: int, count: int, save_to: Path | None) -> int:
    report = run_campaign(seed, count)
    say(f"{report.schedules} schedules from {seed}, {report.events} events, ")
    say(f"{report.acked} entries acknowledged\n")
    for name, seen in sorted(report.marks.items()):
        say(f"{seen:>10} {name}\n")
    if not report.failures:
        say("nothing violated\n")
        return 0
    for failed, violations in report.failures:
        say(f"seed {failed}: {'; '.join(violations)}\n")
    return _explain(run_schedule(report.failures[0][0]), save_to)


def _explain(outcome: Outcome, save_to: Path | None) -> int:
    """Shrink a failure and print it."""
    record = explain(outcome.seed, outcome.record, violations_of_record, save_to=save_to)
    _show(run_schedule(0, record=record, is_traced=True), True)
    say(f"again: python -m tests.simulation.rules --seed {outcome.seed}\n")
    return 1


def _show(outcome: Outcome, is_traced: bool) -> int:
    choices = Choices(outcome.seed, outcome.record)
    say(f"{draw_swarm(choices.stream('swarm'))}\n")
    if is_traced:
        say("".join(f"{line}\n" for line in outcome.trace))
    say(f"{'; '.join(outcome.violations) or 'nothing violated'}\n")
    return int(bool(outcome.violations))


if __name__ == "__main__":
    raise SystemExit(main())
