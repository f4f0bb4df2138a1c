"""What the values of several commands' options mean; click shows a function's name as the kind of value."""

from __future__ import annotations

from collections.abc import Callable

import click

_LARGEST = (1 << 63) - 1
NONE = "none"
"""Takes a bound away."""


def duration(value: str) -> int:
    """Milliseconds, above 0."""
    from spark_bookkeeper.datasource.options.values import positive_duration_ms

    return _parsed(positive_duration_ms, value)


def any_duration(value: str) -> int:
    """Milliseconds."""
    from spark_bookkeeper.datasource.options.values import parse_duration_ms

    return _parsed(parse_duration_ms, value)


def size(value: str) -> int:
    """Bytes, above 0."""
    from spark_bookkeeper.datasource.options.values import parse_size_bytes

    return _parsed(parse_size_bytes, value)


def duration_or_none(value: str) -> int | None:
    """Milliseconds, or no bound."""
    return None if value == NONE else duration(value)


def size_or_none(value: str) -> int | None:
    """Bytes, or no bound."""
    return None if value == NONE else size(value)


def _parsed(parse: Callable[[str], int], value: str) -> int:
    try:
        found = parse(value)
        if found > _LARGEST:
            raise ValueError("is more than can be stored")
        return found
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}.") from error


def as_option(password: bytes) -> str:
    """A password as the data source's option takes it, whatever its bytes are."""
    return password.decode(errors="surrogateescape")
