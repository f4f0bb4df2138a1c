"""Where directed schedules are registered under the names of their functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.simulation.commits.stage import Directed, Stage

DIRECTED: dict[str, Directed] = {}
"""By name."""
RETENTION_HOURS = 2
JOB_TIMEOUT_HOURS = 8 * 24
ROWS = ("r0", "r1")

Play = Callable[[Stage], Awaitable[None]]


def directed(clause: str, *, inline_bytes: int = 64 * 1024) -> Callable[[Play], Play]:
    """Register a schedule under its function's name."""

    def register(play: Play) -> Play:
        DIRECTED[play.__name__] = Directed(clause, play, inline_bytes)
        return play

    return register
