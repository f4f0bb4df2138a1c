"""``bookkeeper.client.<setting>`` options: the client's own settings, by their names. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from spark_bookkeeper.datasource.errors import OptionsError
from spark_bookkeeper.datasource.options.table import CLIENT_PREFIX
from spark_bookkeeper.datasource.options.values import boolean
from spark_bookkeeper.settings import ClientSettings


def client_settings(given: Iterable[tuple[str, str]]) -> ClientSettings:
    """The settings of these names, without the prefix, and values; compares without case and ``_``.

    Raises:
        OptionsError: a name is no setting, or a value none that one takes.
    """
    default, defects = ClientSettings(), []
    of_connection = {spec.name for spec in fields(default.connection)}
    names = sorted({spec.name for spec in fields(default)} - {"connection"} | of_connection)
    known = {name.replace("_", ""): name for name in names}
    own: dict[str, Any] = {}
    inner: dict[str, Any] = {}
    for key, value in given:
        name = known.get(key.replace("_", "").lower())
        if name is None:
            defects.append(f"unknown option {CLIENT_PREFIX}{key}; settings are {', '.join(names)}")
            continue
        is_inner = name in of_connection
        try:
            read = _read(value, getattr(default.connection if is_inner else default, name))
        except ValueError as error:
            defects.append(f"option {CLIENT_PREFIX}{key}: {error}")
        else:
            (inner if is_inner else own)[name] = read
    # All at once: some make sense only beside others.
    try:
        connection = replace(default.connection, **inner)
        found = replace(default, connection=connection, **own)
    except ValueError as error:
        raise OptionsError((*defects, f"options {CLIENT_PREFIX}*: {error}")) from error
    if defects:
        raise OptionsError(tuple(defects))
    return found


def _read(value: str, default: object) -> str | bool | int:
    """The value, as its setting's default is."""
    if isinstance(default, str):
        return value
    if isinstance(default, bool):
        return boolean(value)
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"must be a whole number; {value=}") from None
