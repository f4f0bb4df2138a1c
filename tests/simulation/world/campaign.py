"""Many seeds of the world, added up: how many, what they came into, what broke."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.kit import campaigns
from tests.simulation.kit.campaigns import run_everywhere
from tests.simulation.world.lines import Carrier
from tests.simulation.world.run import Outcome, run_seed

LAST_EVENTS = 20
_CHUNK = 40


@dataclass(slots=True)
class Report(campaigns.Report):
    """What many seeds came to; a mark counts once a seed."""

    steps: int = 0
    virtual_us: int = 0
    faults: Counter[str] = field(default_factory=Counter)


def report_of(outcome: Outcome) -> Report:
    """One seed; a violated one with what to read then."""
    failures = []
    if outcome.violations:
        last = outcome.history.trace()[-LAST_EVENTS:]
        swarm, again = f"swarm: {outcome.swarm}", f"replay: {outcome.replay}"
        about = (*outcome.violations, swarm, "last events:", *last, again)
        failures.append((outcome.seed, about))
    events, marks = len(outcome.history.events), Counter(outcome.marks)
    took = outcome.steps, outcome.virtual_us
    return Report(1, events, marks, failures, *took, outcome.injected)


def run_seeds(first: int, count: int, *, carrier: Carrier = Carrier.MESSAGES) -> Report:
    """Seeds ``first .. first + count - 1``, here and now."""
    logging.disable(logging.CRITICAL)
    report = Report()
    for seed in range(first, first + count):
        report.add(report_of(run_seed(seed, carrier=carrier)))
    return report


def run_campaign(first: int, count: int, *, carrier: Carrier = Carrier.MESSAGES) -> Report:
    """The same on all processors."""
    run = partial(run_seeds, carrier=carrier)
    return run_everywhere(Report(), run, first, count, chunk=_CHUNK)
