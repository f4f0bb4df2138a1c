"""``bookkeeper demo``: the promises, tried out on this machine."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from spark_bookkeeper.cli.options import debug_option, json_option
from spark_bookkeeper.cli.output import print_json


@click.command()
@click.option("--scale", default=0.1, show_default=True, help="TPC-H scale; 1 is 6 M rows.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Leave data and logs in this new directory.",
)
@json_option
@debug_option
@click.pass_context
def demo(context: click.Context, scale: float, keep: Path | None, as_json: bool) -> None:
    """Write TPC-H data through Spark to bookies, kill one and a driver under a stream, then all.

    Every row is compared.
    """
    from spark_bookkeeper.demo.report import Report
    from spark_bookkeeper.demo.run import DemoSettings, run_demo
    from spark_bookkeeper.environment import CLIENT_VARIABLES

    # Its cluster is its own: how to get into another's ZooKeeper must not reach its clients.
    for variable in CLIENT_VARIABLES.values():
        os.environ.pop(variable, None)
    # The demonstration kills ZooKeeper on purpose: its client's warnings would only distract.
    logging.getLogger("bookkeeper_metadata").setLevel(logging.ERROR)
    report = Report(is_quiet=as_json)
    run_demo(DemoSettings(scale=scale, keep=keep), report)
    if as_json:
        print_json(report.as_document())
    elif report.has_passed:
        click.echo(f"\nall {len(report.comparisons)} comparisons equal")
    else:
        click.echo("\nFAILED: not everything was equal")
    if not report.has_passed:
        context.exit(1)
