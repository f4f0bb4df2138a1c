"""Ledgers as the commit protocol knows them: created in a multi, written, fenced, closed, deleted.

What the real ones guarantee is taken for granted here (the other simulations see to it): an
acknowledged row stays, a fence ends the writer, a closed ledger never changes. What they do not
guarantee happens: fencing and deleting are slow and fail, before or after they took effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bookkeeper_metadata.errors import MetadataUnavailableError, NoSuchLedgerError
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.store.operations import Create
from spark_bookkeeper.ledger.errors import LedgerFencedError, NotEnoughBookiesError
from tests.simulation.commits.history import Actor, Fenced, History, LedgerClosed
from tests.simulation.commits.sessions import Session
from tests.simulation.commits.tree import PREFIX, PastTree
from tests.simulation.kit.choices import Stream

CREATE_ATTEMPTS_MAX = 8


@dataclass(slots=True)
class SimLedger:
    """One ledger: acknowledged rows, and whether more may come."""

    ledger_id: int
    by: Actor
    rows: list[str] = field(default_factory=list)
    is_fenced: bool = False
    is_closed: bool = False


@dataclass(slots=True)
class Ledgers:
    """All ledgers there ever were; whether one exists, its node in the tree says."""

    tree: PastTree
    stream: Stream
    history: History
    token_of: Callable[[int], str]
    """State of the token a ledger is under, as it is."""
    made: dict[int, SimLedger] = field(default_factory=dict)
    failing: int = 0
    """Odds, one in, that fencing or deleting a ledger fails."""

    def exists(self, ledger_id: int) -> bool:
        """Whether it was created and not deleted."""
        return self.tree.node(f"{PREFIX}{ledger_id}") is not None

    async def create(self, session: Session, extra_operations: ExtraOperations) -> SimLedger:
        """Create one together with the operations; a new id after every lost reply."""
        lost: MetadataUnavailableError | None = None
        for _ in range(CREATE_ATTEMPTS_MAX):
            ledger = SimLedger(len(self.made), session.actor)
            self.made[ledger.ledger_id] = ledger
            node = Create(f"{PREFIX}{ledger.ledger_id}", b"")
            try:
                await session.multi([node, *extra_operations(ledger.ledger_id)])
                return ledger
            except MetadataUnavailableError as cause:
                lost = cause
        assert lost is not None
        raise lost

    async def append(self, ledger: SimLedger, rows: Sequence[str]) -> None:
        """Write rows, one entry each.

        Raises:
            LedgerFencedError: somebody ended the ledger before the last of them was acknowledged.
        """
        for row in rows:
            await asyncio.sleep(0.002)
            if ledger.is_fenced:
                raise LedgerFencedError(ledger.ledger_id)
            ledger.rows.append(row)

    async def close(self, ledger: SimLedger) -> None:
        """Close it behind its last entry, which also succeeds if a fence closed it there."""
        await asyncio.sleep(0.002)
        ledger.is_closed = True
        self.history.record(LedgerClosed(ledger.by, ledger.ledger_id, tuple(ledger.rows)))

    async def fence(self, ledger_id: int, by: Actor) -> None:
        """End whoever writes it and close it."""
        await self._work(ledger_id)
        ledger = self.made[ledger_id]
        if not ledger.is_closed:
            ledger.is_fenced = ledger.is_closed = True
            token = self.token_of(ledger_id)
            self.history.record(Fenced(by, ledger_id, token, tuple(ledger.rows)))
        self._may_fail()

    async def delete(self, ledger_id: int, by: Actor) -> None:
        """Delete it for good."""
        await self._work(ledger_id)
        self.tree.actor = by
        self.tree.delete(f"{PREFIX}{ledger_id}", None)
        self._may_fail()

    async def _work(self, ledger_id: int) -> None:
        await asyncio.sleep(0.001 * (1 + self.stream.below(4)))
        self._may_fail()
        if not self.exists(ledger_id):
            raise NoSuchLedgerError(ledger_id)

    def _may_fail(self) -> None:
        if self.failing and self.stream.one_in(2 * self.failing):
            raise NotEnoughBookiesError(2, ())
