"""What clients ask bookies, and what they are told."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.wire.messages import IdRange, ReadRequest, Section, Status
from bookie_server.wire.record import Run


class FencingLacRequest:
    """A fencing read of the last add confirmed."""


Request = Section | ReadRequest | FencingLacRequest | bytes
"""Bytes are an explicit LAC packet."""


@dataclass(frozen=True, slots=True)
class LacAnswer:
    """What a bookie's highest entry says, or why it says nothing."""

    status: Status
    last_add_confirmed: int = -1

    def __str__(self) -> str:
        return f"{self.status.name} lac={self.last_add_confirmed}"


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """Copies by entry, and a status for what was asked and is not among them."""

    copies: dict[int, Run]
    missing: tuple[IdRange, ...]
    is_fenced: bool = False
    """On disk, when it was made; for the checkers only."""

    def __str__(self) -> str:
        said = [f"{part.first_entry}:{part.status.name}" for part in self.missing]
        return " ".join([f"{entry_id}:OK" for entry_id in self.copies] + said)


Answer = Status | LacAnswer | ReadAnswer


def describe(request: Request) -> str:
    """A line of the trace."""
    match request:
        case Section():
            kind = "recovery add" if request.is_recovery else "add"
            return f"{kind} {','.join(map(str, request.run.entry_ids))}"
        case ReadRequest():
            return f"read {request.first_entry}..{request.last_entry}"
        case bytes():
            return f"explicit LAC {lac_of(request)}"
        case FencingLacRequest():
            return "fence and read LAC"


def lac_of(packet: bytes) -> int:
    """What an explicit LAC packet says."""
    return int.from_bytes(packet[8:16], signed=True)
