"""With whom a writer goes on: the bookies of its present ensemble, who failed, who may come back.

A member that failed is sent nothing more until it is replaced, be it by itself. What a bookie said
decides what follows for others: one that was read-only says so itself by its registration, one in
limbo works and only lacks records of this ledger, any other is a *suspect*, which writers of the
same client avoid for a while.

What a change means for entries - sent again, un-acknowledged - is the writer's matter
(:mod:`.writer_state`). Source: Apache ``LedgerHandle``, ``EnsembleUtils``.
"""

from __future__ import annotations

from collections.abc import Collection

from bookie_server.wire.messages import Status
from spark_bookkeeper.ledger.protocol.events import ChangeEnsemble
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig


class Membership:
    """One writer's."""

    def __init__(
        self, quorum: QuorumConfig, ensemble: tuple[str, ...], held: Collection[str]
    ) -> None:
        """``held`` are members that are away from the start: failed ones, of which nobody is suspected."""
        self.ensemble = ensemble
        self.failed: dict[int, Status] = {
            position: Status.UNREACHABLE
            for position, bookie_id in enumerate(ensemble)
            if bookie_id in held
        }
        """Positions whose bookie failed and is not replaced, with what it said."""
        self.excluded: set[str] = set()
        """Bookies with which the ledger is in limbo: none of them takes an add of this writer again."""
        self.number = 0
        """Ensemble changes adopted."""
        self.changing: frozenset[int] | None = None
        """Positions the change under way tries to replace; None: no change is under way."""
        self._quorum = quorum
        self._suspects: list[str] = []
        """Bookies that failed since a change was asked for."""
        self._full: list[str] = []
        """Bookies that were read-only since then."""
        self._member_since = [0] * len(ensemble)
        """By position: the ensemble number its bookie came with."""

    # -- a member failed ---------------------------------------------------------------------------

    def fail(self, position: int, status: Status) -> None:
        """The bookie there is sent nothing any more."""
        self.failed[position] = status
        # A bookie in limbo works, so it is no suspect to other ledgers; nor is one that is full.
        if status is Status.READ_ONLY:
            self._full.append(self.ensemble[position])
        elif status is not Status.LIMBO:
            self._suspects.append(self.ensemble[position])

    def exclude(self, position: int) -> None:
        """The bookie there is no candidate for this ledger any more."""
        self.excluded.add(self.ensemble[position])

    def change(self, first_entry: int) -> ChangeEnsemble:
        """Begin to replace all that have failed, from ``first_entry`` on."""
        self.changing = frozenset(self.failed)
        suspects, self._suspects = tuple(self._suspects), []
        full, self._full = tuple(self._full), []
        return ChangeEnsemble(
            first_entry,
            self.ensemble,
            self.failed_bookies,
            frozenset(self.excluded),
            suspects,
            full,
            is_needed=not self.can_go_on(),
        )

    # -- it was replaced ---------------------------------------------------------------------------

    def end_change(self) -> Collection[int]:
        """The change under way was decided; returns the positions it tried to replace."""
        tried, self.changing = self.changing, None
        return tried or ()

    def adopt(self, ensemble: tuple[str, ...], replaced: Collection[int]) -> None:
        """The ``replaced`` positions have other bookies, or the same ones anew."""
        self.ensemble = ensemble
        self.number += 1
        for position in replaced:
            self.failed.pop(position, None)
            self._member_since[position] = self.number

    def is_stale(self, position: int, ensemble_number: int) -> bool:
        """Whether an answer to a section of that ensemble is from a bookie replaced since."""
        # Compared by position, not for the ensemble as a whole: an answer from a bookie that stayed
        # through the change is as good as before.
        return ensemble_number < self._member_since[position]

    # -- who is left -------------------------------------------------------------------------------

    @property
    def failed_bookies(self) -> dict[int, str]:
        """By position: members that nothing is sent to any more."""
        return {position: self.ensemble[position] for position in self.failed}

    @property
    def usable_bookies(self) -> tuple[str, ...]:
        """The other members, by position."""
        return tuple(b for p, b in enumerate(self.ensemble) if self.is_usable(p))

    def is_usable(self, position: int) -> bool:
        """Whether the bookie there is sent what it should store."""
        return position not in self.failed

    def can_go_on(self) -> bool:
        """Whether every entry still has an ack quorum without the bookies that failed."""
        return self._quorum.can_acknowledge(set(range(len(self.ensemble))) - self.failed.keys())
