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
        OptionsError: a name is no setting, or a value no number that one takes.
    """
    found, defects = ClientSettings(), []
    own = {spec.name.replace("_", ""): spec.name for spec in fields(found)}
    inner = {spec.name.replace("_", ""): spec.name for spec in fields(found.connection)}
    for key, value in given:
        plain = key.replace("_", "").lower()
        try:
            if plain in inner:
                changed: dict[str, Any] = {inner[plain]: int(value)}
                connection = replace(found.connection, **changed)
                found = replace(found, connection=connection)
            elif plain in own and plain != "connection":
                changed = {own[plain]: int(value)}
                found = replace(found, **changed)
            else:
                known = ", ".join(sorted({*own.values(), *inner.values()} - {"connection"}))
                defects.append(f"unknown option {CLIENT_PREFIX}{key}; settings are {known}")
        except ValueError as error:
            defects.append(f"option {CLIENT_PREFIX}{key}: {error}")
    if defects:
        raise OptionsError(tuple(defects))
    return found
