"""A setting is stated once: a field with its default, the values it may have, and its help below it.

Every number is at least 1 unless its field says otherwise; a default says where it comes from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from bookkeeper_metadata.foundation.defects import raise_all

T = TypeVar("T")


def setting(
    default: T, *, minimum: int = 1, maximum: int | None = None, one_of: tuple[T, ...] = ()
) -> T:
    """The default of a field of :class:`Settings`, and what else the field may be."""
    limits = {"minimum": minimum, "maximum": maximum, "one_of": one_of}
    return dataclasses.field(default=default, metadata=limits)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Parent of all settings: frozen dataclasses of values, checked on construction, all at once."""

    def __post_init__(self) -> None:
        found = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if rule := _broken_rule(value, **field.metadata):
                found.append(f"{field.name} must be {rule}; {field.name}={value}")
        raise_all([*found, *self.defects()], None)

    def defects(self) -> list[str]:
        """What is wrong beyond the limits of single fields."""
        return []

    def unmet(self, needs: Mapping[str, str]) -> list[str]:
        """Which settings are given, of those that are no use without another one, and lack it."""
        return [
            f"{name} needs {other}, which is not set"
            for name, other in needs.items()
            if getattr(self, name) and not getattr(self, other)
        ]


def variables_of(settings: type[Settings]) -> dict[str, str]:
    """By setting: the variable of the environment that says it to every kind of process."""
    return {
        field.name: f"BOOKKEEPER_{field.name.upper()}" for field in dataclasses.fields(settings)
    }


def _broken_rule(
    value: object, minimum: int = 1, maximum: int | None = None, one_of: tuple[object, ...] = ()
) -> str | None:
    """What ``value`` must be; ``None`` if it is that."""
    if one_of and value not in one_of:
        return f"one of {', '.join(map(str, one_of))}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if maximum is not None and not minimum <= value <= maximum:
        return f"{minimum}..{maximum}"
    return f"at least {minimum}" if value < minimum else None
