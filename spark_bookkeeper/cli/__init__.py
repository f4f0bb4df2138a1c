"""The ``bookkeeper`` command: one file per noun, and here what all of them share at the end.

Exit codes: 0 done, 1 failed, 2 wrong use. An error is one line, ``BK_NAME: message``, and says when
trying again can help; ``--debug`` adds the traceback. Results go to standard output, everything else
to standard error. Commands import what they need when they run, so ``--help`` stays quick and works
with half an installation.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.cli.acl import metadata
from spark_bookkeeper.cli.bookies import bookies
from spark_bookkeeper.cli.cluster import cluster
from spark_bookkeeper.cli.cookies import cookies
from spark_bookkeeper.cli.demo import demo
from spark_bookkeeper.cli.doctor import doctor
from spark_bookkeeper.cli.ledgers.commands import ledgers
from spark_bookkeeper.cli.logs.commands import logs
from spark_bookkeeper.cli.options import State
from spark_bookkeeper.cli.processes.admin import admin
from spark_bookkeeper.cli.processes.autorecovery import autorecovery
from spark_bookkeeper.cli.processes.bookie import bookie
from spark_bookkeeper.cli.processes.local import local
from spark_bookkeeper.cli.replication import underreplicated
from spark_bookkeeper.datasource.errors import SourceError

EXIT_FAILED = 1
EXIT_WRONG_USE = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="spark-bookkeeper", prog_name="bookkeeper")
def commands() -> None:
    """Run and look after BookKeeper ledgers, logs and bookies."""


for command in (
    admin,
    autorecovery,
    bookie,
    bookies,
    cluster,
    cookies,
    demo,
    doctor,
    ledgers,
    local,
    logs,
    metadata,
    underreplicated,
):
    commands.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process with its code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and raises nothing."""
    state = State()
    try:
        code = commands.main(args=arguments, standalone_mode=False, obj=state)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        error.show()
        return EXIT_WRONG_USE
    except click.ClickException as error:
        _report("BK_USAGE", error.format_message(), state)
        return EXIT_WRONG_USE
    except (click.Abort, KeyboardInterrupt):
        click.echo("aborted", err=True)
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader of our output has closed it; without this Python complains again at exit.
        sys.stdout = None
        return EXIT_FAILED
    except BookKeeperError as error:
        advice = " (trying again can help)" if error.retryable else ""
        _report(error.name, f"{error}{advice}", state)
        return EXIT_FAILED
    except SourceError as error:
        # What Spark's readers add is advice in terms of Spark's options; commands have others.
        cause = error.__cause__
        message = str(cause) if isinstance(cause, BookKeeperError) else error.message
        _report(error.name, message, state)
        return EXIT_FAILED
    except ValueError as error:
        _report("BK_USAGE", str(error), state)
        return EXIT_WRONG_USE
    except Exception as error:  # noqa: BLE001 - the last place that can say what happened
        _report(BookKeeperError.name, f"{type(error).__name__}: {error}", state)
        return EXIT_FAILED


def _report(name: str, message: str, state: State) -> None:
    if state.is_debug:
        traceback.print_exc()
    click.echo(f"{name}: {message}", err=True)
