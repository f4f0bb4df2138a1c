"""What a start found broken on a disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """Why acknowledged records may be missing."""

    path: str
    offset: int
    detail: str

    def __str__(self) -> str:
        return f"{self.detail}. path={self.path} offset={self.offset}"
