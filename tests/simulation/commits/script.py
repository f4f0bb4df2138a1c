"""What a directed schedule may order: who waits before which operation, and what becomes of it.

A schedule names operations by who does them, which and on what path. An empty script orders nothing;
then chance decides alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, unique

from tests.simulation.commits.history import Actor
from tests.simulation.kit.loop import SimLoop


@unique
class Fate(Enum):
    """What becomes of one operation; its caller hears of it only if it is OK."""

    OK = "fine"
    LOST_REQUEST = "request lost"
    LOST_REPLY = "applied, reply lost"
    LATE = "given up, applied later"

    @property
    def shown(self) -> str:
        """For the trace."""
        return "" if self is Fate.OK else f" ({self.value})"


@dataclass(frozen=True, slots=True)
class Match:
    """An operation: ``who`` begins its process's name, ``where`` is in its path."""

    who: str
    operation: str
    where: str = ""

    def __call__(self, actor: Actor, operation: str, path: str) -> bool:
        is_theirs = f"{actor.name} ".startswith(f"{self.who} ")
        return is_theirs and operation == self.operation and self.where in path


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """The first operation that matches waits here, its process with it."""

    match: Match
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody waits here."""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Let it go on."""
        self.released.set()


@dataclass(slots=True)
class Script:
    """The orders that are still to be carried out; each is once."""

    holds: list[Hold] = field(default_factory=list)
    fates: list[tuple[Match, Fate]] = field(default_factory=list)
    is_late_kept: bool = False
    """Late mutations arrive when :meth:`deliver` is called, not by chance."""
    kept: list[Callable[[], None]] = field(default_factory=list)

    def hold(self, who: str, operation: str, where: str = "") -> Hold:
        """Make the next such operation wait before it leaves its process."""
        hold = Hold(Match(who, operation, where))
        self.holds.append(hold)
        return hold

    def doom(self, fate: Fate, who: str, operation: str, where: str = "") -> None:
        """Decide what becomes of the next such operation."""
        self.fates.append((Match(who, operation, where), fate))

    def deliver(self) -> None:
        """Now the late mutations arrive, in the order they were sent."""
        kept, self.kept = self.kept, []
        for arrive in kept:
            arrive()

    async def before(self, actor: Actor, operation: str, path: str) -> None:
        """Wait if a hold says so."""
        for hold in self.holds:
            if hold.match(actor, operation, path):
                self.holds.remove(hold)
                hold.reached.set()
                await hold.released.wait()
                return

    def fate(self, actor: Actor, operation: str, path: str) -> Fate | None:
        """What was ordered for this operation."""
        for order in self.fates:
            if order[0](actor, operation, path):
                self.fates.remove(order)
                return order[1]
        return None

    def late(self, arrive: Callable[[], None], delay_us: int) -> None:
        """A mutation that was given up is still under way."""
        if self.is_late_kept:
            self.kept.append(arrive)
        else:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimLoop)
            loop.after(delay_us, arrive)
