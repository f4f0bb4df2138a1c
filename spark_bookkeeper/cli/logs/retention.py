"""``bookkeeper logs set`` and ``truncate``: what of a log goes by itself, and what goes now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from spark_bookkeeper.cli.options import cluster_options, confirm, yes_option
from spark_bookkeeper.cli.output import print_result, printable_duration
from spark_bookkeeper.cli.values import (
    any_duration,
    duration,
    duration_or_none,
    size,
    size_or_none,
)

if TYPE_CHECKING:
    from spark_bookkeeper.log.cleaning.truncation import Dropped

deleted_ledger_retention_option = click.option(
    "--deleted-ledger-retention",
    "deleted_ledger_retention_ms",
    type=any_duration,
    metavar="DURATION",
    help="How long ledgers stay for readers that planned before, 1h if not given; 0s on a full disk.",
)


@click.command("set")
@click.argument("log")
@click.option(
    "--retention-time",
    "time_ms",
    type=duration_or_none,
    help="Ranges go whose last commit is older, 7d say; none: age lets nothing go.",
)
@click.option(
    "--retention-size",
    "size_bytes",
    type=size_or_none,
    help="Payload bytes of one copy that stay at least, 100g say; what is older goes. none: all stay.",
)
@click.option(
    "--retain-consumed/--no-retain-consumed",
    "is_consumed_kept",
    default=None,
    help="Whether rows that a live consumer has not passed stay, whatever their age.",
)
@cluster_options
def set_retention(log: str, *, uri: str, as_json: bool, **wanted: Any) -> None:
    """Choose what of a log goes by itself; what is not named stays as it was.

    Whole ranges go, the oldest first, the newest never: behind Spark's commits now and then, and by
    gc. The ledgers are deleted once readers that planned before have had time to finish.
    """
    from spark_bookkeeper.admin.log_documents import session_with

    # A bound that is taken away is None, as one that is not named.
    given = {
        name: value
        for name, value in wanted.items()
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if not given:
        raise click.UsageError(
            "give one of --retention-time, --retention-size and --retain-consumed"
        )
    session = session_with(uri)
    log_id = session.run(session.catalog.open(log)).log_id
    change = session.change_retention(log_id, log, lambda kept: replace(kept, **given))
    retention = asdict(session.run(change))
    line = f"of {log} {retention_line(retention)}"
    print_result({"log": log, **retention}, line, as_json=as_json)


def retention_line(retention: Mapping[str, Any]) -> str:
    """What goes by itself, for people; the keys are those of the document."""
    time_ms, size_bytes = retention["time_ms"], retention["size_bytes"]
    bounds = [] if time_ms is None else [f"rows older than {printable_duration(time_ms)}"]
    bounds += [] if size_bytes is None else [f"rows before the newest {size_bytes} bytes"]
    if not bounds:
        return "no row goes by itself"
    kept = ", but for those that a live consumer needs" if retention["is_consumed_kept"] else ""
    return f"{' and '.join(bounds)} go{kept}"


@click.command()
@click.argument("log")
@click.option("--before", type=click.IntRange(min=0), help="The first row to keep.")
@click.option("--older-than", type=duration, help="Drop what was committed longer ago, 7d say.")
@click.option("--keep-bytes", type=size, help="Keep at least the newest so many payload bytes.")
@click.option("--consumed", is_flag=True, help="Keep what a live consumer has not read yet.")
@click.option("--dry-run", is_flag=True, help="Change nothing, print what would be dropped.")
@deleted_ledger_retention_option
@yes_option
@cluster_options
def truncate(
    log: str,
    *,
    before: int | None,
    deleted_ledger_retention_ms: int | None,
    is_sure: bool,
    uri: str,
    as_json: bool,
    **how: Any,
) -> None:
    """Drop the oldest rows, whole ranges of them. `gc` deletes them later.

    Before a row; or by age or size, whichever lets more go, and with --consumed no row that a live
    consumer needs (a query with the option consumer); with --consumed alone all others but
    the newest range.
    """
    from spark_bookkeeper.admin.log_documents import session_with
    from spark_bookkeeper.log.format.model import Retention

    limits = Retention(
        time_ms=how["older_than"],
        size_bytes=how["keep_bytes"],
        is_consumed_kept=how["consumed"],
    )
    if (before is None) == (not limits.is_bounded and not limits.is_consumed_kept):
        raise click.UsageError("give --before, or some of --older-than, --keep-bytes, --consumed")
    session = session_with(uri, deleted_ledger_retention_ms)
    log_id = session.run(session.catalog.open(log)).log_id
    if before is not None:
        row, planned = before, session.run(session.would_drop(log_id, log, before))
    else:
        if limits.is_consumed_kept:
            # Refused without a live one: what nobody needs is not what somebody was promised.
            session.run(session.consumers(log_id, log).consumed_row())
            # With nothing else all that no live consumer needs goes, but for the newest range.
            limits = limits if limits.is_bounded else replace(limits, size_bytes=0)
        planned = session.run(session.drop_expired(log_id, log, limits, is_dry_run=True))
        row = planned.first_row
    if how["dry_run"]:
        line = f"{_what(planned)} of {log} would be dropped; its first row would be {planned.first_row}"
        _print_dropped(log, row, planned, line, as_json=as_json)
        return
    confirm(
        f"Drop {_what(planned)} of {log}, those before row {planned.first_row}, for ever?", is_sure
    )
    if before is not None:
        done = session.run(session.truncate(log_id, log, before))
    else:
        # Not beyond what was asked about: more may have expired since.
        drop = session.drop_expired(log_id, log, limits, before_row=row)
        done = session.run(drop)
    _print_dropped(log, row, done, f"first row of {log} is {done.first_row}", as_json=as_json)


def _what(dropped: Dropped) -> str:
    return f"{dropped.rows} rows, {dropped.size_bytes} bytes"


def _print_dropped(log: str, row: int, dropped: Dropped, line: str, *, as_json: bool) -> None:
    print_result({"log": log, "before": row, **asdict(dropped)}, line, as_json=as_json)
