"""FrameLimits: when what waits to be sent is worth a message of its own. Pure.

A message costs about the same CPU whatever its size, so under load entries collect until one is answered; a lone one never
waits for company. No timer is involved (docs/performance.md).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """Of frames to one bookie, and of a writer's runs, which are what a frame carries."""

    size_bytes_target: int = 64 * 1024
    """Waiting bytes that are worth a message of their own while others are unanswered."""
    size_bytes_max: int = 1024 * 1024
    """A message ends before it exceeds this, unless one entry alone does."""
    in_flight_max: int = 3
    """With so many unanswered none is sent that could grow still."""
    full_in_flight_max: int = 8
    """With so many of the largest size unanswered none is sent, although another one waits, which cannot grow."""

    def in_flight_at_most(self, waiting_bytes: int, first_bytes: int, *, is_prompt: bool) -> int:
        """How many may be unanswered once another is sent, of what waits.

        ``first_bytes`` has the first entry or section of it. To those who are not prompt, for they have more to do than they get
        done, more would only grow older on the way.
        """
        if waiting_bytes < self.size_bytes_target:
            return 1
        if waiting_bytes < self.size_bytes_max or not is_prompt:
            return self.in_flight_max
        full_bytes = self.full_in_flight_max * self.size_bytes_max
        return max(self.in_flight_max, full_bytes // max(self.size_bytes_max, first_bytes))
