"""``bookkeeper logs txns``: what each application committed last to a log."""

from __future__ import annotations

from dataclasses import asdict

import click

from spark_bookkeeper.cli.options import cluster_options, confirm, yes_option
from spark_bookkeeper.cli.output import print_list, print_result


@click.group()
def txns() -> None:
    """Transactions by application: a streaming query's id, or a txnAppId."""


@txns.command("list")
@click.argument("log")
@cluster_options
def list_transactions(log: str, uri: str, as_json: bool) -> None:
    """List what every application committed last."""
    from spark_bookkeeper.admin.log_documents import session_with

    session = session_with(uri)
    stored = session.run(session.run(session.catalog.open(log)).txns())
    found = [{"app_id": app_id, **asdict(stored[app_id])} for app_id in sorted(stored)]
    columns = {"application": "app_id", "last version": "version", "query": "query_id"}
    columns |= {"epoch": "epoch", "committed": "commit_ms"}
    print_list({"log": log, "transactions": found}, "transactions", columns, as_json=as_json)


@txns.command()
@click.argument("log")
@click.argument("app_id")
@yes_option
@cluster_options
def forget(log: str, app_id: str, *, is_sure: bool, uri: str, as_json: bool) -> None:
    """Forget what an application committed: its next write may have any version.

    If the application repeats a batch, its rows are then written a second time.
    """
    from spark_bookkeeper.admin.log_documents import session_with

    confirm(
        f"Forget what {app_id} committed to {log}? What it repeats is then written twice.", is_sure
    )
    session = session_with(uri)
    forgotten = session.run(session.catalog.forget_transaction(log, app_id))
    version, line = None, f"{log} has no transaction of {app_id}"
    if forgotten is not None:
        version = forgotten.version
        line = f"forgot version {version} of {app_id} in {log}"
    document = {"log": log, "app_id": app_id, "forgotten_version": version}
    print_result(document, line, as_json=as_json)
