"""What the writer's state machine asks of its driver: effects, carried out in order."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.wire.messages import EncodedSection
from metadata.errors import BookKeeperError


@dataclass(frozen=True, slots=True)
class SendSection:
    """Send these bytes to one bookie, and report its answer as ``section_answered``."""

    position: int
    """Of the bookie in the ensemble."""
    bookie_id: str
    run_first_entry: int
    """Names the run; a striped section may begin later."""
    section: EncodedSection


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Every entry up to this one is stored by an ack quorum: tell their writers, in order."""

    last_entry: int


@dataclass(frozen=True, slots=True)
class FailPending:
    """No entry that is not acknowledged yet will be: tell their writers why."""

    error: BookKeeperError


@dataclass(frozen=True, slots=True)
class Release:
    """The bytes of these payloads are no longer held for anybody."""

    size_bytes: int


Effect = SendSection | Acknowledge | FailPending | Release
