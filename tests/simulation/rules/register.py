"""The metadata register: compare-and-set at a version, delays, and replies that get lost.

:meth:`Register.update` is the twin of ``bookkeeper_metadata.update.update_metadata``: read, transform, compare
and set; after a lost reply read back and recognize one's own token at exactly the next version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from bookkeeper_metadata.model import LedgerMetadata, Stop, Transform, Versioned
from tests.simulation.rules.history import Committed

if TYPE_CHECKING:
    from tests.simulation.rules.model import Model

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Register:
    """The metadata of the one ledger."""

    def __init__(self, model: Model, created: LedgerMetadata) -> None:
        self._model = model
        self._draw = model.choices.stream("register")
        self._next_token = 1
        self.committed = Versioned(replace(created, writer_token=0), 0)
        """As it stands; for those who may know it."""
        model.history.committed.append(Committed(0, self.committed.metadata, "creator"))

    def read(self, then: Callable[[Versioned], None]) -> None:
        """``then`` gets the metadata as it stood at some moment between now and its call."""
        self._after(lambda: self._after(then, self.committed))

    def update(
        self,
        by: str,
        known: Versioned,
        transform: Transform[T],
        then: Callable[[Versioned | Stop[T]], None],
    ) -> None:
        """Bring a transform about; ``then`` gets what stands, or the transform's Stop."""
        wanted = transform(known.metadata)
        if isinstance(wanted, Stop):
            then(wanted)
            return
        if replace(wanted, writer_token=known.metadata.writer_token) == known.metadata:
            then(known)
            return
        self._next_token += 1
        stamped = replace(wanted, writer_token=self._next_token)

        def again(current: Versioned) -> None:
            is_ours = current.metadata.writer_token == stamped.writer_token
            if is_ours and current.version == known.version + 1:
                then(current)
            else:
                self.update(by, current, transform, then)

        def put() -> None:
            marks = self._model.marks
            drawn = 0 if self._model.network.is_healed else self._is_lost()
            if drawn == 1:
                marks["change of metadata lost"] += 1
                self.read(again)
                return
            is_current = known.version == self.committed.version
            if is_current:
                self._commit(by, stamped)
            else:
                marks["compare-and-set lost the race"] += 1
            if drawn == 2:
                marks["change of metadata applied, reply lost"] += is_current
            if is_current and drawn != 2:
                self._after(then, self.committed)
            else:
                self.read(again)

        self._after(put)

    # -- inside -------------------------------------------------------------------------------

    def _commit(self, by: str, metadata: LedgerMetadata) -> None:
        self.committed = Versioned(metadata, self.committed.version + 1)
        self._model.committed(Committed(self.committed.version, metadata, by))

    def _is_lost(self) -> int:
        """0: no; 1: the request is lost; 2: the reply is."""
        odds = self._model.swarm.register_lost
        return 1 + self._draw.below(2) if self._draw.one_in(odds) else 0

    def _after(self, action: Callable[[*Ts], None], *arguments: *Ts) -> None:
        base_us = self._model.swarm.register_us
        drawn = 0 if self._model.network.is_healed else self._draw.below(16)
        delay_us = base_us * (1 if drawn < 14 else 8) + 13 * drawn
        self._model.heap.after(delay_us, action, *arguments)
