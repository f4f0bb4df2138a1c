"""What clients ask bookies, and what they are told."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.wire.messages import IdRange, ReadRequest, Section, Status
from bookie_server.wire.record import Run


@dataclass(frozen=True, slots=True)
class LacRequest:
    """A fencing read of the last add confirmed."""

    is_fencing: bool = True

    def __str__(self) -> str:
        return "fence and read LAC"


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


@dataclass(frozen=True, slots=True)
class Request:
    """One message to a bookie; exactly one field is set."""

    add: Section | None = None
    lac: LacRequest | None = None
    read: ReadRequest | None = None
    hint: bytes | None = None
    """An explicit LAC packet."""

    @property
    def is_add(self) -> bool:
        return self.add is not None

    def __str__(self) -> str:
        if self.add is not None:
            kind = "recovery add" if self.add.is_recovery else "add"
            return f"{kind} {','.join(map(str, self.add.run.entry_ids))}"
        if self.read is not None:
            return f"read {self.read.first_entry}..{self.read.last_entry}"
        if self.hint is not None:
            return f"explicit LAC {lac_of(self.hint)}"
        return str(self.lac)


def lac_of(packet: bytes) -> int:
    """What an explicit LAC packet says."""
    return int.from_bytes(packet[8:16], signed=True)
