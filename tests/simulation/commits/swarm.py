"""What one schedule has to suffer, and who takes part: drawn first, then left alone.

Every number is odds, "one in"; 0 is never. Most faults are absent from most schedules, so that each
also meets the protocol without the noise of the others (swarm testing).
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.commits.sessions import Weather
from tests.simulation.kit.choices import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """The faults of one schedule; the defaults are none at all."""

    slow: int = 0
    lost: int = 0
    late: int = 0
    stale: int = 0
    driver_dies: int = 0
    commit_dies: int = 0
    """The process that commits, alone: the driver aborts what may be committed."""
    task_dies: int = 0
    task_late: int = 0
    speculation: int = 0
    stage_retry: int = 0
    two_drivers: int = 0
    rolled_back: int = 0
    continuous: int = 0
    """Commits that are called though messages are missing."""
    sweep_forgotten: int = 0
    abort_forgotten: int = 0
    takes_over: int = 0
    """Drivers that end a writer outside Spark instead of waiting for it."""
    bookies_away: int = 0
    clock_jumps: int = 0
    collections: int = 1
    batch_writes: int = 0
    overwrites: int = 0
    """Batch writes and batches that overwrite."""
    truncations: int = 0
    writers: int = 0
    readers: int = 1
    queries: int = 1
    batches: int = 2
    is_foreach: bool = False
    """The query commits through foreachBatch and a txnAppId."""
    evolutions: int = 0
    """Writes that add a column to the log's schema."""
    optimizations: int = 0
    """Optimizers at work beside the writers."""
    retentions: int = 0
    consumers: int = 0
    inline_bytes: int = 150
    """Ranges a head holds before they spill into chunks: two or three."""

    @property
    def is_sound(self) -> bool:
        """Whether every request gets its answer and every ledger can be deleted."""
        return not (self.lost or self.late or self.bookies_away)

    @property
    def weather(self) -> Weather:
        """For the sessions."""
        return Weather(slow=self.slow, lost=self.lost, late=self.late, stale=self.stale)


def draw_swarm(stream: Stream) -> Swarm:
    """The swarm of one schedule."""

    def rate(*rates: int) -> int:
        """One of them; none in half of the schedules."""
        drawn = stream.below(2 * len(rates))
        return rates[drawn - len(rates)] if drawn >= len(rates) else 0

    return Swarm(
        slow=rate(20, 5),
        lost=rate(60, 20),
        late=rate(30, 8),
        stale=rate(10, 3),
        driver_dies=rate(6, 3),
        commit_dies=rate(6, 3),
        task_dies=rate(8, 3),
        task_late=rate(8, 3),
        speculation=rate(4, 2),
        stage_retry=rate(6, 3),
        two_drivers=rate(4, 2),
        rolled_back=rate(4, 2),
        continuous=rate(3),
        sweep_forgotten=rate(4, 2),
        abort_forgotten=rate(3),
        takes_over=rate(3, 2),
        bookies_away=rate(20, 6),
        clock_jumps=rate(3, 6),
        collections=1 + stream.below(3),
        batch_writes=rate(2, 3),
        overwrites=rate(4, 2),
        truncations=rate(1, 3),
        writers=rate(1, 2),
        readers=stream.below(3),
        queries=1 + stream.below(3) // 2,
        batches=2 + stream.below(3),
        is_foreach=stream.below(4) == 3,
        inline_bytes=(64 * 1024, 150, 90, 300)[stream.below(4)],
        evolutions=rate(2, 1),
        optimizations=rate(1, 2),
        retentions=rate(1),
        consumers=stream.below(3),
    )
