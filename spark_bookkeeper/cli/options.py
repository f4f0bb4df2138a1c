"""Options that mean the same in every command, and the client that they open."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bookkeeper_metadata.environment import METADATA_URI_VARIABLE, read_metadata_uri

if TYPE_CHECKING:
    from spark_bookkeeper import BookKeeper

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class State:
    """What ``main`` learns from the options of the command it runs."""

    is_debug: bool = False


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(State).is_debug = True


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_set_debug,
    help="Show the traceback of an error.",
)
"""``--debug``: errors come with their traceback."""

optional_uri_option, uri_option = (
    click.option(
        "--metadata-service-uri",
        "uri",
        envvar=METADATA_URI_VARIABLE,
        default=lambda: read_metadata_uri(os.environ),  # the old variable, with its warning
        required=is_required,
        show_envvar=True,
        metavar="URI",
        help="The cluster, e.g. zk+hierarchical://127.0.0.1:2181/ledgers.",
    )
    for is_required in (False, True)
)
"""``--metadata-service-uri``, also from the environment, as parameter ``uri``; a command that has commands
of its own does without it."""

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
)
"""``--json``: one document for machines, as parameter ``as_json``."""


def cluster_options(command: Function) -> Function:
    """What a command on a cluster takes: the cluster's address, ``--json`` and ``--debug``."""
    return uri_option(json_option(debug_option(command)))


yes_option = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
"""``--yes``: a destructive command does not ask, as parameter ``is_sure``."""


def confirm(question: str, is_sure: bool) -> None:
    """Ask unless ``--yes`` was given; any answer but yes ends the command."""
    if not is_sure:
        click.confirm(question, abort=True)


def row_option(
    *names: str, default: str, help: str = "Row number, or earliest or latest."
) -> Callable[[Function], Function]:
    """An option that says where in a log to begin or end: a row number or a word."""
    return click.option(*names, type=row_place, default=default, show_default=True, help=help)


def row_place(value: str) -> int | str:
    """A row number or a word; click shows this function's name as the kind of value."""
    if value in ("earliest", "latest"):
        return value
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise click.BadParameter(f"{value!r} is no row number, earliest or latest.")
    return int(value)


def _read_password(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    from bookkeeper_metadata.foundation.secret_file import read_secret

    try:
        context.meta[_PASSWORD] = read_secret(path)
    except OSError as error:
        raise click.UsageError(f"--password-file: {error.strerror}; {path=}") from error


def _password(context: click.Context, _: click.Parameter, value: str) -> bytes:
    if _PASSWORD not in context.meta:
        return value.encode(errors="surrogateescape")
    if value:
        raise click.UsageError("a password and a file with one exclude each other")
    read: bytes = context.meta[_PASSWORD]
    return read


_PASSWORD = "spark_bookkeeper.password"


def password_option(command: Function) -> Function:
    """``--password`` and ``--password-file``, as parameter ``password`` of bytes."""
    command = click.option(
        "--password-file",
        envvar="BOOKKEEPER_PASSWORD_FILE",
        metavar="PATH",
        expose_value=False,
        is_eager=True,  # before the next asks for what it read
        callback=_read_password,
        help="File with it, in its first line, which other users of this machine cannot see.  "
        "[env: BOOKKEEPER_PASSWORD_FILE]",
    )(command)
    return click.option(
        "--password",
        envvar="BOOKKEEPER_PASSWORD",
        default="",
        callback=_password,
        help="The ledger's password.  [env: BOOKKEEPER_PASSWORD; default: empty]",
    )(command)


def open_client(uri: str) -> BookKeeper:
    """A client of the cluster at ``uri``; the caller closes it."""
    from spark_bookkeeper import BookKeeper

    return BookKeeper(uri)
