"""``bookkeeper logs gc``: collects one log, or all of them and what deleted ones left."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from spark_bookkeeper.cli.logs.retention import deleted_ledger_retention_option
from spark_bookkeeper.cli.options import cluster_options
from spark_bookkeeper.cli.output import print_fields, print_json, print_table, printable_fields

if TYPE_CHECKING:
    from spark_bookkeeper.datasource.session import Session


@click.command()
@click.argument("log", required=False)
@click.option("--dry-run", is_flag=True, help="Change nothing, print what would be deleted.")
@deleted_ledger_retention_option
@cluster_options
def gc(
    log: str | None,
    *,
    dry_run: bool,
    deleted_ledger_retention_ms: int | None,
    uri: str,
    as_json: bool,
) -> int:
    """Collect what dead writers and overwrites left, and drop what retention lets go; always safe.

    Collects one log; without LOG every log, and what is left of logs whose deletion was
    interrupted. If one log fails, the others are still collected, and the exit code is 1.
    --deleted-ledger-retention is for ledgers that were dropped without a time of their own, as by
    truncate without that option; those dropped by Spark's writes have one.
    """
    from spark_bookkeeper.admin.log_documents import session_with

    session = session_with(uri, deleted_ledger_retention_ms)
    if deleted_ledger_retention_ms is not None:
        session.sweeper.settings = replace(
            session.sweeper.settings, deleted_ledger_retention_ms=deleted_ledger_retention_ms
        )
    if log is not None:
        report = _collect(session, log, is_dry_run=dry_run)
        if as_json:
            print_json({"log": log, "dry_run": dry_run, **report})
        else:
            counts = {key: _count(value) for key, value in report.items()}
            print_fields(printable_fields(counts))
        return 0
    document = _collect_all(session, is_dry_run=dry_run)
    if as_json:
        print_json(document)
    else:
        _print(document)
    return 1 if document["failed"] else 0


def _collect_all(session: Session, *, is_dry_run: bool) -> dict[str, Any]:
    from spark_bookkeeper.log.housekeeping import collect_all, described

    found = session.run(collect_all(session, is_dry_run=is_dry_run))
    return {
        "dry_run": is_dry_run,
        "logs": [{"log": name, **asdict(report)} for name, report in found.logs.items()],
        "deletions": [
            {"log_id": log_id, **({} if report is None else asdict(report))}
            for log_id, report in found.deletions.items()
        ],
        "failed": [
            {"what": what, "cause": described(cause)} for what, cause in found.failed.items()
        ],
    }


def _collect(session: Session, log: str, *, is_dry_run: bool) -> dict[str, Any]:
    log_id = session.run(session.catalog.find(log)).log_id
    collect = session.collector.collect(log_id, log=log, is_dry_run=is_dry_run)
    return asdict(session.run(collect))


def _print(document: dict[str, Any]) -> None:
    keys = (
        "ledgers_deleted",
        "ledgers_left",
        "tokens_removed",
        "garbage_removed",
        "rows_dropped",
        "waiting_bytes",
    )
    named = [(each["log"], each) for each in document["logs"]]
    gone = [(f"deleted log {each['log_id']}", each) for each in document["deletions"]]
    print_table(
        ("log", "ledgers", "ledgers left", "tokens", "garbage", "rows", "waiting bytes"),
        ([what, *(_count(each.get(key, ())) for key in keys)] for what, each in (*named, *gone)),
    )
    for each in document["failed"]:
        click.echo(f"{each['what']}: {each['cause']}", err=True)


def _count(of: int | list[Any] | tuple[Any, ...] | None) -> int | None:
    return of if isinstance(of, int) or of is None else len(of)
