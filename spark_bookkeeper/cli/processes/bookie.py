"""``bookkeeper bookie``: one bookie in the foreground, with auto-recovery beside it if it is told to."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import click

from bookie_server.settings import (
    REPLACE_FLAG,
    REPLACE_HELP,
    bookie_settings_table,
    load_bookie_settings,
)
from spark_bookkeeper.cli.options import debug_option
from spark_bookkeeper.cli.processes.companion import Companion, auto_recovery_beside
from spark_bookkeeper.cli.processes.settings import config_option, setting_options


@click.command()
@config_option
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
@setting_options(bookie_settings_table())
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
    from bookie_server.server import Start, run
    from spark_bookkeeper.cli.processes.check import check_directories

    if directories and not is_check:
        raise click.UsageError("directories without a flag go with --check only")
    if directories:
        context.exit(0 if check_directories(directories, None) else 1)
    settings = load_bookie_settings(config_path=config, environment=os.environ, flags=flags)
    if is_check:
        context.exit(0 if check_directories((), settings.storage) else 1)
    settings.storage  # noqa: B018  its own defects are reported here, before anything is started
    set_up_logging(settings.log_level, settings.log_format)
    beside = auto_recovery_beside(settings)
    start = Start(may_replace)
    with ExitStack() as stack:
        if beside is not None:
            companion = stack.enter_context(Companion(beside))
            start = Start(may_replace, on_registered=companion.begin)
        exit_code = run(settings, start)
    context.exit(exit_code)
