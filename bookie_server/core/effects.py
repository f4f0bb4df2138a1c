"""What the admission core decided, for the shell to carry out in order.

What must be durable first is nested: a reply that needs an fsync rides in ``Persist.then``, so an
acknowledgement before the sync cannot be written by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bookie_server.core.records import JournalRecord
from bookie_server.wire.messages import Status
from bookie_server.wire.record import Run

ReplyTo = Callable[[Status], None]
"""Sends an answer. The core passes it on; the shell calls it exactly once."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer now."""

    to: ReplyTo
    status: Status


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare ``run`` with the stored entries: OK if ids, lengths and payloads are equal, CONFLICT if
    not. ``digest_size`` says where payloads begin; ``None``: the client did not say.

    A stored entry that cannot be read is replaced by recovery's (``Admission.replace``); to a writer's
    add the answer is UNKNOWN.
    """

    run: Run
    digest_size: int | None
    to: ReplyTo
    recovery_key: bytes | None = None
    """The master key that came with a recovery add; ``None`` with a writer's."""
    client: str = ""
    """Whose add it is: comparisons of one client wait for each other, not everybody's for them."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Make ``records`` durable in the journal of ``ledger_id``; then, and only then, do ``then``."""

    ticket: int
    ledger_id: int
    records: tuple[JournalRecord, ...]
    then: tuple[Reply | Compare, ...]
    size_bytes: int = 0
    """Journal bytes of its entries; its other records are too few and small to count."""


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep an explicit LAC packet in memory and in the next checkpoint; a hint needs no sync."""

    ledger_id: int
    packet: bytes


Effect = Reply | Compare | Persist | Remember
