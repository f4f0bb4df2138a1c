"""``bookkeeper bookie``: one bookie in the foreground.

Its flags are made from the table of the bookie's settings, so that flags, configuration file and
environment can never disagree about what there is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from bookie_server.settings import (
    REPLACE_FLAG,
    REPLACE_HELP,
    Setting,
    bookie_settings_table,
    load_bookie_settings,
)
from spark_bookkeeper.cli.options import debug_option


def _setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for setting in reversed(bookie_settings_table()):
        command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    default = ", ".join(setting.default) if setting.type is tuple else setting.default
    shown = f"  [env: {setting.variable}; default: {default if default != '' else 'none'}]"
    if setting.type is bool:
        declaration = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return click.option(declaration, setting.name, default=None, help=setting.help + shown)
    metavar = {int: "NUMBER", tuple: "A,B,..."}.get(setting.type, "TEXT")
    return click.option(
        setting.flag, setting.name, default=None, metavar=metavar, help=setting.help + shown
    )


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML file with any of the settings below, under their names with underscores.",
)
@click.option(REPLACE_FLAG, "may_replace", is_flag=True, help=REPLACE_HELP)
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Start nothing: judge the DIRs, or the settings' directories, in which no bookie may run. "
    "Nothing is written and no ZooKeeper asked. Exit code 1 when something is wrong.",
)
@click.argument(
    "directories",
    metavar="[--check DIR...]",
    nargs=-1,
    type=click.Path(exists=True, file_okay=False),
)
@_setting_options
@debug_option
@click.pass_context
def bookie(
    context: click.Context,
    /,
    config: str | None,
    may_replace: bool,
    is_check: bool,
    directories: tuple[str, ...],
    **flags: Any,
) -> None:
    """Run one bookie until SIGTERM or Ctrl-C; a flag beats the environment beats the file."""
    from bookie_server.logs import set_up_logging
    from bookie_server.server import run
    from spark_bookkeeper.cli.check import check_directories

    if directories and not is_check:
        raise click.UsageError("directories without a flag go with --check only")
    if directories:
        context.exit(0 if check_directories(directories, None) else 1)
    settings = load_bookie_settings(config_path=config, environment=os.environ, flags=flags)
    if is_check:
        context.exit(0 if check_directories((), settings.storage) else 1)
    set_up_logging(settings.log_level, settings.log_format)
    context.exit(run(settings, may_replace=may_replace))
