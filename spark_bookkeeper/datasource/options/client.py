"""``bookkeeper.client.<setting>`` options: the client's own settings, by their names. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from spark_bookkeeper.datasource.errors import OptionsError
from spark_bookkeeper.datasource.options.table import CLIENT_PREFIX
from spark_bookkeeper.settings import ClientSettings


def client_settings(given: Iterable[tuple[str, str]]) -> ClientSettings:
    """The settings of these names, without the prefix, and values; compares without case and ``_``.

    Raises:
        OptionsError: a name is no setting, or a value none that one takes.
    """
    found, defects = ClientSettings(), []
    inner = {spec.name for spec in fields(found.connection)}
    names = sorted({spec.name for spec in fields(found)} - {"connection"} | inner)
    known = {name.replace("_", ""): name for name in names}
    # In the order of their declaration: a setting that needs another is declared behind it.
    places = {name: at for at, name in enumerate(spec.name for spec in fields(found))}
    for key, value in sorted(given, key=lambda each: places.get(known.get(_plain(each[0]), ""), 0)):
        name = known.get(_plain(key))
        if name is None:
            defects.append(f"unknown option {CLIENT_PREFIX}{key}; settings are {', '.join(names)}")
            continue
        try:
            is_word = isinstance(getattr(found, name, 0), str)
            changed: dict[str, Any] = {name: value if is_word else _whole(value)}
            if name in inner:
                changed = {"connection": replace(found.connection, **changed)}
            found = replace(found, **changed)
        except ValueError as error:
            defects.append(f"option {CLIENT_PREFIX}{key}: {error}")
    if defects:
        raise OptionsError(tuple(defects))
    return found


def _plain(key: str) -> str:
    return key.replace("_", "").lower()


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"must be a whole number; {value=}") from None
