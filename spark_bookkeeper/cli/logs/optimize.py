"""``bookkeeper logs optimize``: rewrites ranges of many small ledgers into few large ones."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from spark_bookkeeper.cli.logs.retention import deleted_ledger_retention_option
from spark_bookkeeper.cli.options import cluster_options, password_option
from spark_bookkeeper.cli.output import print_result
from spark_bookkeeper.cli.values import as_option, size

if TYPE_CHECKING:
    from spark_bookkeeper.datasource.optimize.run import OptimizeReport


@click.command()
@click.argument("log")
@click.option(
    "--target-size",
    "target_bytes",
    type=size,
    default="128m",
    show_default=True,
    help="Payload bytes of a rewritten ledger at most; ranges of this size are left alone.",
)
@click.option(
    "--min-ranges",
    type=click.IntRange(min=2),
    default=4,
    show_default=True,
    help="Fewer neighbouring ranges are not worth a rewrite.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    help="Seconds to wait for another optimize of the log; one that was killed counts for 4 h.",
)
@click.option(
    "--bytes-per-second",
    type=size,
    help="Copy no faster, to leave writers and readers their share: 16m, say. As fast as can be by default.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, print what would be rewritten.")
@deleted_ledger_retention_option
@password_option
@cluster_options
def optimize(
    log: str,
    *,
    target_bytes: int,
    min_ranges: int,
    wait_s: float,
    bytes_per_second: int | None,
    dry_run: bool,
    deleted_ledger_retention_ms: int | None,
    password: bytes,
    uri: str,
    as_json: bool,
) -> int:
    """Rewrite ranges of small ledgers into few large ones; reads and writes go on meanwhile.

    Rows keep their numbers and what they say of themselves. The old ledgers are deleted by gc, an hour
    later. A group spans a tenth of the log's retention at most, in time and in bytes. Interrupted, it
    leaves nothing half done, and a next run goes on. For much data run it as a Spark job:
    spark_bookkeeper.optimize(spark, LOG).
    """
    from spark_bookkeeper.datasource.optimize.run import optimize_log, rewrite_here
    from spark_bookkeeper.datasource.options.parse import parse_write_options
    from spark_bookkeeper.datasource.session import open_session
    from spark_bookkeeper.log.rules.grouping import GroupLimits

    given = {"log": log, "metadataServiceUri": uri, "password": as_option(password)}
    options = parse_write_options(given, os.environ)
    if deleted_ledger_retention_ms is not None:
        options = replace(options, deleted_ledger_retention_ms=deleted_ledger_retention_ms)
    session = open_session(options)
    limits = GroupLimits(target_bytes=target_bytes, ranges_min=min_ranges)
    if dry_run:
        nodes = session.run(session.catalog.open(log))
        end_row = session.run(nodes.head()).head.next_row
        count = ranges = row = 0
        while True:
            planned = session.optimizer.groups(nodes.log_id, log, limits, row, end_row)
            groups, row = session.run(planned)
            if not groups:
                break
            count += len(groups)
            ranges += sum(len(group) for group in groups)
        document = {"log": log, "groups": count, "ranges_before": ranges}
        line = f"{count} groups of {ranges} ranges of {log} would be rewritten"
        print_result(document, line, as_json=as_json)
        return 0
    rewrite = rewrite_here(session, options, bytes_per_second or 0)
    report = optimize_log(session, log, limits, rewrite, _show_progress, wait_s=wait_s)
    line = (
        f"rewrote {report.ranges_before} ranges of {log} into {report.ranges_after}, "
        f"{report.rows} rows, {report.size_bytes} bytes"
    )
    print_result(asdict(report), line, as_json=as_json)
    for failure in report.failures:
        click.echo(f"not rewritten: {failure}", err=True)
    return 1 if report.failures else 0


def _show_progress(report: OptimizeReport) -> None:
    if sys.stderr.isatty():
        click.echo(f"{report.ranges_before} ranges, {report.size_bytes} bytes rewritten", err=True)
