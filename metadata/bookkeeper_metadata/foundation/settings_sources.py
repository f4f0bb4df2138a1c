"""The settings of a process, as a table, and from where it takes them: defaults, file, environment, flags.

Precedence rises in that order. A setting's help is the docstring below its field, so that flags, file and
documentation agree about what there is.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bookkeeper_metadata.foundation.defects import raise_all
from bookkeeper_metadata.foundation.settings import Settings

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as flags and documentation show it."""

    name: str
    type: type
    """``str``, ``int``, ``bool`` or ``tuple`` (of strings, given comma-separated)."""
    default: Any
    help: str
    variable: str
    """Of the environment."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


class SettingsTable(Generic[S]):
    """All settings of one kind of process, in the order of their declaration."""

    def __init__(
        self, kind: type[S], prefix: str, variables: Mapping[str, str] | None = None
    ) -> None:
        """``prefix`` and a name in capitals are its environment variable, but for those in ``variables``."""
        self._kind = kind
        named = variables or {}
        helps: dict[str, str] = {}
        for owner in kind.__mro__[:-1]:
            helps |= _field_helps(owner)
        self.settings = tuple(
            Setting(
                field.name,
                type(field.default),
                field.default,
                helps[field.name],
                named.get(field.name, prefix + field.name.upper()),
            )
            for field in dataclasses.fields(kind)
        )

    def load(
        self,
        *,
        config_path: str | None = None,
        environment: Mapping[str, str],
        flags: Mapping[str, Any],
    ) -> S:
        """Combine file (TOML), environment and flags; a flag that is ``None`` was not given.

        Environment variables with the prefix that name no setting are ignored.

        Raises:
            ValueError: unknown keys (naming the nearest), wrong types and impossible values, all at once.
            OSError: the file cannot be read.
        """
        values, defects = self._given(config_path, environment, flags)
        try:
            settings = self._kind(**values)
        except ValueError as cause:
            raise ValueError("; ".join([*defects, str(cause)])) from cause
        raise_all(defects, None)
        return settings

    def given(self, *, config_path: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
        """What file and environment say, by name, without defaults; raises as :meth:`load` does."""
        values, defects = self._given(config_path, environment, {})
        raise_all(defects, None)
        return values

    def _given(
        self, config_path: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        """The values that all sources give together, and what is wrong with what they give."""
        table = {setting.name: setting for setting in self.settings}
        values: dict[str, Any] = {}
        defects: list[str] = []
        # In rising precedence: a later source replaces what an earlier one gave.
        for source, given in (
            ("file", _read_toml(config_path) if config_path else {}),
            (
                "environment",
                {
                    setting.name: environment[setting.variable]
                    for setting in self.settings
                    if setting.variable in environment
                },
            ),
            ("flag", {name: value for name, value in flags.items() if value is not None}),
        ):
            for name, value in given.items():
                if name not in table:
                    defects.append(_unknown(name, source, list(table)))
                    continue
                try:
                    values[name] = _converted(table[name], value)
                except ValueError as cause:
                    defects.append(f"{source}: {cause}")
        return values, defects


def read_boolean(name: str, value: str) -> bool:
    """What a text says of a setting that is true or false; raises ``ValueError``."""
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if value.lower() not in words:
        raise ValueError(f"{name} must be true or false; {name}={value!r}")
    return words[value.lower()]


def _field_helps(owner: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, read from its source."""
    # Python keeps no docstrings of fields: they are in the source only.
    body = ast.parse(inspect.getsource(owner)).body[0]
    assert isinstance(body, ast.ClassDef)
    helps: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            helps[statement.target.id] = inspect.cleandoc(str(following.value.value))
    return helps


def _read_toml(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        try:
            return tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
            raise ValueError(f"not a TOML file: {cause}; path={path}") from cause


def _unknown(name: str, source: str, known: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
    return f"{source}: unknown setting {name}; did you mean {nearest[0]}?"


def _converted(setting: Setting, value: Any) -> Any:
    if setting.type is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"{setting.name} must be a list of strings; {setting.name}={value!r}")
        return tuple(part.strip() for part in parts if part.strip())
    if setting.type is bool and isinstance(value, str):
        return read_boolean(setting.name, value)
    if setting.type is int and isinstance(value, str):
        try:
            return int(value.replace("_", ""))
        except ValueError:
            raise ValueError(
                f"{setting.name} must be a whole number; {setting.name}={value!r}"
            ) from None
    # Not ``isinstance``, to which ``true`` is a number.
    if type(value) is not setting.type:
        raise ValueError(
            f"{setting.name} must be {setting.type.__name__}; {setting.name}={value!r}"
        )
    return value
