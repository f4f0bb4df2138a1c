"""Doubt: what the bookies of a ledger hold that may have lost entries of it, and what can be decided then.

A bookie in limbo denies nothing. Where so many of an unclosed ledger's bookies are in limbo that none of the others'
denials covers an ack quorum, no recovery can tell an entry that was lost from one that never was, and
so it never ends. Only a person can decide that what nobody has is lost. For that every bookie of the last ensemble
must answer: one that is silent may have what the others lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bookie_server.wire.messages import SAYS_WHAT_IS_WANTED, IdRange, Status
from bookkeeper_metadata.model import NO_ENTRY_ID
from spark_bookkeeper.ledger.protocol.recovery_rules import GivenUp


@dataclass(frozen=True, slots=True)
class Holding:
    """What one bookie has of a ledger."""

    bookie_id: str
    status: Status
    """LIMBO: it may have lost entries. Other than OK and NO_LEDGER: what it has is not known, or cannot all be read."""
    held: tuple[IdRange, ...] = ()
    """What it lists, ascending."""
    last_add_confirmed: int = NO_ENTRY_ID
    """That the highest of these proves."""

    @property
    def last_entry(self) -> int:
        """The highest that it has."""
        return self.held[-1].last_entry if self.held else NO_ENTRY_ID


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the bookies of a ledger's last ensemble have of it, in its order."""

    holdings: tuple[Holding, ...] = ()
    others: tuple[Holding, ...] = ()
    """Of registered bookies that are no members of it; any that the metadata names for earlier entries are among them."""

    @property
    def last_add_confirmed(self) -> int:
        """The highest that is proved; the entries up to it were acknowledged, whoever has lost them."""
        return max((each.last_add_confirmed for each in self.holdings), default=NO_ENTRY_ID)

    @property
    def last_entry(self) -> int:
        """The highest that any member has."""
        return max((each.last_entry for each in self.holdings), default=NO_ENTRY_ID)

    @property
    def knowing_more(self) -> tuple[Holding, ...]:
        """Others that have later entries than any member: the metadata may be an old copy, restored from a backup."""
        return tuple(each for each in self.others if each.last_entry > self.last_entry)

    @property
    def silent(self) -> tuple[Holding, ...]:
        """Those of which is not known what they have."""
        return tuple(each for each in self.holdings if each.status not in SAYS_WHAT_IS_WANTED)

    @property
    def objection(self) -> str:
        """Why nothing may be given up now; empty if it may."""
        if self.silent:
            silent = ", ".join(f"{each.bookie_id}: {each.status.name}" for each in self.silent)
            return f"nothing is given up before all answer, and can read what they have: {silent}"
        more = ", ".join(f"{each.bookie_id}: {each.last_entry}" for each in self.knowing_more)
        return (
            f"bookies that are no members have later entries than the members; is the metadata a restored copy? {more}"
            if more
            else ""
        )

    def given_up_in(self, ensemble: Sequence[str]) -> GivenUp:
        """What those in limbo list, by their positions."""
        in_limbo = {
            each.bookie_id: each.held for each in self.holdings if each.status is Status.LIMBO
        }
        return {at: in_limbo[id] for at, id in enumerate(ensemble) if id in in_limbo}


NO_DOUBT = Doubt()
