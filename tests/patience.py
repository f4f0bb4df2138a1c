"""How long tests wait before they give something up, on this machine and under the load of now.

A limit is a safety net and says nothing about speed: it is what a failure costs, so it may be long.
Limits are written down as they would be on two quiet cores; :func:`seconds` stretches them. How fast
this machine counts is measured once a process; how many others want its cores is asked each time,
because load comes and goes while the tests run. Not for virtual clocks: those are never slow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache

REFERENCE_S = 0.02
"""What :func:`count_s` finds on the machine on which the limits were chosen."""
REFERENCE_CORES = 2
FACTOR_MAX = 30.0
"""On a machine slower than that nothing can be said; a test that hangs should still end."""
_NUMBERS = 200_000


def seconds(quiet_s: float) -> float:
    """A limit of ``quiet_s`` on two quiet cores, here and now."""
    ours = len(os.sched_getaffinity(0))
    return quiet_s * factor(count_s(), os.getloadavg()[0], os.cpu_count() or 1, ours)


class Deadline:
    """The end of a loop that waits; load that comes meanwhile moves it on."""

    def __init__(
        self,
        quiet_s: float,
        clock_s: Callable[[], float] = time.monotonic,
        stretched: Callable[[float], float] = seconds,
    ) -> None:
        self._quiet_s = quiet_s
        self._clock_s = clock_s
        self._stretched = stretched
        self._begun_s = clock_s()

    @property
    def has_passed(self) -> bool:
        """Whether it was long enough, as the machine is now."""
        waited_s = self._clock_s() - self._begun_s
        return waited_s > self._quiet_s and waited_s > self._stretched(self._quiet_s)


def factor(count_took_s: float, load: float, cores_of_machine: int, cores_of_ours: int) -> float:
    """How many times slower than the reference; never below 1.

    Args:
        count_took_s: what :func:`count_s` found, so also what a quota or a neighbour took from it.
        load: how many want to run on the whole machine.
        cores_of_machine: what they have to share.
        cores_of_ours: on how many of them this process may run.
    """
    slowness = max(1.0, count_took_s / REFERENCE_S, load / cores_of_machine)
    return min(FACTOR_MAX, slowness * max(1.0, REFERENCE_CORES / cores_of_ours))


@cache
def count_s() -> float:
    """How long a fixed piece of work takes, by the clock on the wall."""
    begun_s = time.perf_counter()
    sum(number * number % 7 for number in range(_NUMBERS))
    return time.perf_counter() - begun_s
