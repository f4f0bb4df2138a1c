"""Which bookies are lost, and when their ledgers are marked. Pure.

A bookie that is registered, read-only or not, is not lost. One that is lost alone may be one that is being
restarted, as in a rolling upgrade: it is waited for. Two at once are never waited for. Source: Apache
``AuditorBookieCheckTask``, ``AuditorTask``, ``Auditor.submitAuditTask``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _AuditAt:
    """When the ledgers of lost bookies are to be marked."""

    due_s: float
    lost: frozenset[str]


_NEVER = _AuditAt(0, frozenset())


class Patience:
    """Waits with a single bookie that is lost, for whoever would give its places to others."""

    def __init__(self, delay_s: float = 0) -> None:
        self.delay_s = delay_s
        """How long; from when it was found lost here."""
        self._since_s: dict[str, float] = {}

    def waited_for(self, lost: Collection[str], now_s: float) -> frozenset[str]:
        """Those of the lost bookies whose places are theirs still."""
        self._since_s = {each: self._since_s.get(each, now_s) for each in lost}
        # One that is gone for longer is no reason to have no patience with another one.
        recent = {each for each, since_s in self._since_s.items() if now_s - since_s < self.delay_s}
        return frozenset(recent) if len(recent) == 1 else frozenset()


class LostBookies:
    """Follows the registrations, and says when to audit."""

    def __init__(self, delay_s: float = 0) -> None:
        """``delay_s``: how long a single one that is lost is waited for."""
        self._delay_s = delay_s
        self._known: frozenset[str] = frozenset()
        self._registered: frozenset[str] | None = None
        self._audited: frozenset[str] = frozenset()
        self._planned: _AuditAt | None = None
        self._put_off = _NEVER
        """Who was audited, but not all of it, and when they are to be audited once more."""

    @property
    def lost(self) -> frozenset[str]:
        """The bookies that belong to the cluster and are not registered."""
        return frozenset() if self._registered is None else self._known - self._registered

    def due(self, now_s: float) -> frozenset[str]:
        """The lost bookies whose ledgers are to be marked now."""
        planned = self._planned
        return frozenset() if planned is None or planned.due_s > now_s else planned.lost

    def left_s(self, now_s: float, most_s: float) -> float:
        """How long until some are, at most so long; that long if they are and nobody may mark them."""
        planned = self._planned
        if planned is None or planned.due_s <= now_s:
            return most_s
        return min(most_s, planned.due_s - now_s)

    def on_known(self, bookie_ids: Collection[str]) -> None:
        """These have cookies: they belong to the cluster, until their cookies are deleted."""
        self._known = frozenset(bookie_ids) | (self._registered or frozenset())

    def on_registered(self, bookie_ids: Collection[str], now_s: float) -> None:
        """These are registered now."""
        self._registered = frozenset(bookie_ids)
        self._known |= self._registered
        # One that came back and is lost again has missed entries since, or has other disks.
        self._audited &= self.lost
        self._plan(now_s)

    def on_delay(self, delay_s: float, now_s: float) -> None:
        """An operator has written the delay. 0, or the same as before: what waits is due at once."""
        is_trigger = delay_s in (0, self._delay_s)
        self._delay_s = delay_s
        self._put_off = _NEVER
        if self._planned is not None:
            due_s = now_s if is_trigger else now_s + delay_s
            self._planned = _AuditAt(due_s, self._planned.lost)

    def forget_audits(self) -> None:
        """Look at the ledgers of all lost bookies once more: there may be new ones."""
        self._audited = frozenset()

    def on_audited(self, audited: Collection[str]) -> None:
        """The ledgers of these are marked."""
        self._audited = (self._audited | frozenset(audited)) & self.lost
        if self._planned is not None and self._planned.lost <= self._audited:
            self._planned = None

    def on_passed_over(self, audited: Collection[str], pause_s: float, now_s: float) -> None:
        """Some ledgers of these are not marked: they are due so much later, and no sooner, unless another one is lost."""
        self._put_off = _AuditAt(now_s + pause_s, frozenset(audited))
        self._plan(now_s)

    def _plan(self, now_s: float) -> None:
        new = self.lost - self._audited
        if not new:
            self._planned = None
        elif new <= self._put_off.lost and now_s < self._put_off.due_s:
            self._planned = _AuditAt(self._put_off.due_s, new)
        elif len(new) > 1:
            self._planned = _AuditAt(now_s, new)
        elif self._planned is None or self._planned.lost != new:
            self._planned = _AuditAt(now_s + self._delay_s, new)
