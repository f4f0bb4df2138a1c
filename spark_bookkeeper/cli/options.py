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


password_option = click.option(
    "--password",
    envvar="BOOKKEEPER_PASSWORD",
    default="",
    callback=lambda _context, _parameter, value: value.encode(),
    help="The ledger's password.  [env: BOOKKEEPER_PASSWORD; default: empty]",
)
"""``--password``, as parameter ``password`` of bytes."""


def open_client(uri: str) -> BookKeeper:
    """A client of the cluster at ``uri``; the caller closes it."""
    from spark_bookkeeper import BookKeeper

    return BookKeeper(uri)
