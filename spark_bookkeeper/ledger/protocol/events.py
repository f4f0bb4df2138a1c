"""What the writer's state machine asks of its driver: effects, carried out in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bookie_server.wire.messages import EncodedSection
from bookkeeper_metadata.foundation.errors import BookKeeperError


@dataclass(frozen=True, slots=True)
class SendSection:
    """Send these bytes to one bookie, and report its answer as ``on_section_answer``."""

    position: int
    """Position of the bookie in the ensemble."""
    bookie_id: str
    ensemble_number: int
    """Ensemble changes made before; an answer is returned with it, so that late ones are recognized."""
    run_first_entry: int
    """Names the run; a striped section may begin later."""
    section: EncodedSection


@dataclass(frozen=True, slots=True)
class ChangeEnsemble:
    """Replace these bookies from ``first_entry`` on; report as ``on_ensemble_changed`` or ``end``.

    Nothing is acknowledged until then.
    """

    first_entry: int
    ensemble: tuple[str, ...]
    """The ensemble in force now."""
    failed: Mapping[int, str]
    """By position: the bookie that failed there and is not replaced yet."""
    excluded: frozenset[str]
    """Bookies that must not replace any of them."""
    suspects: tuple[str, ...]
    """Those that failed since the last change was asked for."""
    full: tuple[str, ...]
    """Those that have taken no adds since then, for they are read-only: they say so themselves."""
    is_needed: bool
    """Whether some entry cannot reach its ack quorum without a replacement."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Every entry up to this one is stored by an ack quorum: complete its appends, in order."""

    last_entry: int


@dataclass(frozen=True, slots=True)
class FailPending:
    """No entry that is not acknowledged yet will be: fail its append with this error."""

    error: BookKeeperError


@dataclass(frozen=True, slots=True)
class Release:
    """The bytes of these payloads are no longer needed for any bookie."""

    size_bytes: int


Effect = SendSection | ChangeEnsemble | Acknowledge | FailPending | Release
