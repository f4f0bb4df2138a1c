"""``bookkeeper doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.cli.options import debug_option, json_option, optional_uri_option
from spark_bookkeeper.cli.output import print_json

if TYPE_CHECKING:
    from spark_bookkeeper.admin.doctor.findings import Finding

_OF_THE_SERVICE = ("BK_METADATA_UNAVAILABLE", "BK_NOT_INITIALIZED")
"""What the cluster's own state is the reason for; all else is what its documentation says."""
_SIGNS = {"good": "ok", "warning": "warning", "problem": "PROBLEM"}


@click.command()
@click.option("--ensemble-size", default=3, show_default=True, help="What your ledgers want.")
@click.option("--write-quorum", default=3, show_default=True)
@click.option("--ack-quorum", default=2, show_default=True)
@optional_uri_option
@json_option
@debug_option
@click.pass_context
def doctor(
    context: click.Context,
    /,
    *,
    uri: str | None,
    as_json: bool,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
) -> None:
    """Examine this machine, and the cluster if one is given: what is wrong, and what to do.

    Exit code 1: there is a problem. Warnings alone are no failure.
    """
    from spark_bookkeeper.admin.doctor.machine import examine_machine

    if not 1 <= ack_quorum <= write_quorum <= ensemble_size:
        raise click.UsageError(
            "quorums must satisfy 1 <= ack quorum <= write quorum <= ensemble size, not "
            f"{ack_quorum}, {write_quorum}, {ensemble_size}"
        )
    findings = examine_machine()
    if uri is not None:
        findings += asyncio.run(_examine_cluster(uri, ensemble_size, write_quorum, ack_quorum))
    has_problem = any(each.level.value == "problem" for each in findings)
    if as_json:
        documents = [
            {
                "subject": each.subject,
                "level": each.level.value,
                "found": each.found,
                "advice": each.advice or None,
            }
            for each in findings
        ]
        print_json({"passed": not has_problem, "findings": documents})
    else:
        for each in findings:
            _print(each)
        if uri is None:
            click.echo("no cluster was examined: name one with --metadata-service-uri", err=True)
    if has_problem:
        context.exit(1)


async def _examine_cluster(uri: str, *quorums: int) -> list[Finding]:
    from spark_bookkeeper import aio
    from spark_bookkeeper.admin.doctor.cluster import judge_cluster, read_facts
    from spark_bookkeeper.admin.doctor.findings import problem
    from spark_bookkeeper.datasource.explanations import EXPLANATIONS
    from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

    try:
        async with aio.BookKeeper(uri) as client:
            return judge_cluster(await read_facts(await client.connect(), QuorumConfig(*quorums)))
    except BookKeeperError as error:
        # That is what the others depend on, and a finding like any.
        if error.name in _OF_THE_SERVICE:
            advice = (
                "start ZooKeeper, or correct the address; `bookkeeper cluster init` makes a cluster"
            )
            return [problem("metadata service", f"{error.name}: {error}", advice)]
        return [problem("cluster", f"{error.name}: {error}", EXPLANATIONS[error.name].action)]


def _print(finding: Finding) -> None:
    click.echo(f"{_SIGNS[finding.level.value]:<8} {finding.subject}: {finding.found}")
    if finding.advice:
        click.echo(f"{'':<8} -> {finding.advice}")
