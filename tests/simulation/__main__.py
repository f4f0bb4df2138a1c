"""``python -m tests.simulation --seed N [--trace]``: run seeds, say what broke and how to see it again.

Without ``--seed`` seeds begin at a number drawn from the clock, so that every session tries new ones.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import fields

from tests.simulation.world.campaign import LAST_EVENTS, Report, report_of
from tests.simulation.world.lines import Carrier
from tests.simulation.world.marks import REACHABLE
from tests.simulation.world.run import Outcome, run_seed


def main() -> int:
    """Run what was asked for; 1 when a seed was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=0, help="instead: for how long")
    for carrier in (Carrier.SOCKETS, Carrier.RPC):
        parser.add_argument(
            f"--{carrier.value}",
            dest="carrier",
            action="store_const",
            const=carrier,
            default=Carrier.MESSAGES,
            help=f"requests go over {carrier.value}",
        )
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--tier", type=int, choices=(2,), default=2, help="2: the whole world")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first = asked.seed if asked.seed is not None else time.time_ns() // 1_000_000 % 10**9
    end_s = time.monotonic() + 60 * asked.minutes
    started_s = time.monotonic()
    total = Report()
    seed = first
    while (time.monotonic() < end_s) if asked.minutes else (seed < first + asked.count):
        outcome = run_seed(seed, carrier=asked.carrier)
        total.add(report_of(outcome))
        if outcome.violations or asked.trace or (asked.count == 1 and not asked.minutes):
            _print(outcome, whole=asked.trace)
        seed += 1
    _sum_up(total, time.monotonic() - started_s)
    return 1 if total.failures else 0


def _sum_up(total: Report, seconds: float) -> None:
    if total.schedules > 1:
        _say("", "faults injected:")
        for fault, count in sorted(total.faults.items()):
            _say(f"  {count:>8} {fault}")
        _say("seeds that reached:")
        for mark in sorted(REACHABLE):
            _say(f"  {total.marks[mark]:>8} {mark}")
    _say(
        f"{total.schedules} seeds, {total.schedules / seconds:.1f} a second; {total.steps} steps, "
        f"{total.events} events, {total.virtual_us / 3.6e9:.2f} simulated hours; "
        f"violated: {[seed for seed, _ in total.failures] or 'none'}"
    )


def _print(outcome: Outcome, *, whole: bool) -> None:
    trace = outcome.history.trace()
    _say("", f"seed {outcome.seed}", "swarm:")
    for spec in fields(outcome.swarm):
        _say(f"  {spec.name} = {getattr(outcome.swarm, spec.name)}")
    _say("faults: " + ", ".join(f"{n} {fault}" for fault, n in sorted(outcome.injected.items())))
    _say("marks: " + ", ".join(outcome.marks))
    _say("events:", *(trace if whole else trace[-LAST_EVENTS:]))
    _say(f"trace hash: {outcome.history.hash()}")
    for violation in outcome.violations:
        _say(f"VIOLATED {violation}")
    _say(f"replay: {outcome.replay}")


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
