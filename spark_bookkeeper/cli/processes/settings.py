"""Flags of a process's settings: made from their table, so that flags, file and environment cannot disagree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from bookkeeper_metadata.foundation.settings_sources import Setting, SettingsTable

Command = Callable[..., Any]

config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML file with any of the settings below, under their names with underscores.",
)
"""``--config``, as parameter ``config``."""


def setting_options(table: SettingsTable[Any]) -> Callable[[Command], Command]:
    """All settings of a table as options; one that is not given is ``None``."""

    def decorate(command: Command) -> Command:
        for setting in reversed(table.settings):
            command = _option(setting)(command)
        return command

    return decorate


def _option(setting: Setting) -> Callable[[Command], Command]:
    default = ", ".join(setting.default) if setting.type is tuple else setting.default
    shown = f"  [env: {setting.variable}; default: {default if default != '' else 'none'}]"
    if setting.type is bool:
        declaration = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return click.option(declaration, setting.name, default=None, help=setting.help + shown)
    metavar = {int: "NUMBER", tuple: "A,B,..."}.get(setting.type, "TEXT")
    return click.option(
        setting.flag, setting.name, default=None, metavar=metavar, help=setting.help + shown
    )
