"""What one process of auto-recovery counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from bookkeeper_metadata.foundation.measures import Durations
from bookkeeper_metadata.foundation.pace import LoopPace


@dataclass(slots=True)
class ReplicationMeasures:
    """Since its start; its event loop counts, any thread may look."""

    is_auditor: bool = False
    audits: Durations = field(default_factory=Durations)
    """Looks for the ledgers of lost bookies."""
    checks: Durations = field(default_factory=Durations)
    """Walks that ask all bookies what they hold."""
    marked_ledgers: int = 0
    """By these two."""
    underreplicated_ledgers: int = 0
    """Marked ones at the last look."""
    mended: Durations = field(default_factory=Durations)
    """Ledgers that are whole since."""
    failed_tries: int = 0
    pace: LoopPace = field(default_factory=partial(LoopPace, 0))
    """Of the copies: it knows how many bytes those are."""
    replaced_members: int = 0
    recovered_ledgers: int = 0
    """Taken from their writers."""
