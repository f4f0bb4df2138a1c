"""Damage that opening the storage found on a disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """One place on a disk where acknowledged records may have been lost."""

    path: str
    offset: int
    detail: str

    def __str__(self) -> str:
        return f"{self.detail}. path={self.path} offset={self.offset}"
