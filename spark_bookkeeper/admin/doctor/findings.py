"""What an examination comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique


@unique
class Level(Enum):
    """How bad it is."""

    GOOD = "good"
    WARNING = "warning"
    """It works, and may not for long."""
    PROBLEM = "problem"
    """Something does not work, or is about to be lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    level: Level
    found: str
    advice: str = ""
    """What to do; empty where there is nothing to do."""


def good(subject: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(subject, Level.GOOD, found)


def warning(subject: str, found: str, advice: str) -> Finding:
    """To be looked after soon."""
    return Finding(subject, Level.WARNING, found, advice)


def problem(subject: str, found: str, advice: str) -> Finding:
    """To be looked after now."""
    return Finding(subject, Level.PROBLEM, found, advice)
