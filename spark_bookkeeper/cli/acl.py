"""``bookkeeper metadata acl``: who may do what with a cluster's nodes in ZooKeeper."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from bookkeeper_metadata.store.acl import OPEN, READ, WORLD, Acl
from spark_bookkeeper.cli.metadata import run_on_metadata
from spark_bookkeeper.cli.options import cluster_options, confirm, yes_option
from spark_bookkeeper.cli.output import print_json

if TYPE_CHECKING:
    from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
    from spark_bookkeeper.admin.acls import AclReport, Mending

EXIT_OPEN = 1
_SPEAK_S = 2.0


@click.group()
def metadata() -> None:
    """A cluster's nodes in ZooKeeper as such."""


@metadata.group()
def acl() -> None:
    """Who may do what with the nodes: compared with what the user of this shell would create.

    The user is named by BOOKKEEPER_ZOOKEEPER_AUTH_PATH, others by BOOKKEEPER_ZOOKEEPER_ACL.
    """


@acl.command()
@cluster_options
@click.pass_context
def check(context: click.Context, /, uri: str, as_json: bool) -> None:
    """Look at every node of the cluster, and change none.

    Exit code 1: somebody may do more with one than should be, it cannot be looked at, or by what this shell's user would
    create anybody may do more than read.
    """
    context.exit(_go_through(uri, None, as_json=as_json))


@acl.command()
@click.option(
    "--exact",
    "is_exact",
    is_flag=True,
    help="Give the ACL also to nodes with which somebody may do less now, such as another user's.",
)
@yes_option
@cluster_options
@click.pass_context
def mend(
    context: click.Context, /, uri: str, *, is_exact: bool, is_sure: bool, as_json: bool
) -> None:
    """Give the ACL to every node with which somebody may do more.

    Nobody may do more afterwards, unless --exact is given. Safe to interrupt and to repeat. Processes that were
    not told the user yet are shut out, and go on to create nodes that are open: change them first. Exit code 1:
    something is still open, or could not be changed.
    """
    from spark_bookkeeper.admin.acls import Mending

    acl, is_said = run_on_metadata(uri, _read_wanted)
    if not is_said:
        raise click.UsageError(
            "nobody is the user of this shell: set BOOKKEEPER_ZOOKEEPER_AUTH_PATH, or BOOKKEEPER_ZOOKEEPER_ACL to what nodes are to have"
        )
    effect = (
        "What was made stricter by hand, or is another user's, gets it too, and all others lose access."
        if is_exact
        else "All others lose access."
    )
    confirm(f"Give nodes of {uri} the ACL {','.join(map(str, acl))}? {effect}", is_sure)
    context.exit(_go_through(uri, Mending(is_exact), as_json=as_json))


async def _read_wanted(store: ZooKeeperStore, _root: str) -> tuple[Acl, bool]:
    """What nodes are to have, and whether anybody said so."""
    access = store.access
    return access.acl, access.acl != OPEN or access.identity is not None


def _go_through(uri: str, mending: Mending | None, *, as_json: bool) -> int:
    from spark_bookkeeper.admin.acls import go_through_acls

    async def run(store: ZooKeeperStore, root: str) -> AclReport:
        access = store.access
        return await go_through_acls(
            store, root, access.acl, own=access.identity, mending=mending, on_progress=_Progress()
        )

    report = run_on_metadata(uri, run)
    if as_json:
        print_json(report.as_document())
    else:
        _print(report)
    lets_anybody = mending is None and any(
        (grant.scheme, grant.id) == WORLD and grant.permissions & ~READ for grant in report.wanted
    )
    return EXIT_OPEN if report.open or report.refused or lets_anybody else 0


def _print(report: AclReport) -> None:
    for judged in report.examples:
        click.echo(f"{judged.path}  {judged.finding.value}  {judged.detail}")
    named = len(report.examples)
    others = report.astray - named
    if others:
        click.echo(f"and {others:,} more")
    counts = [f"{count:,} {finding.value}" for finding, count in report.left.items()]
    mended = f"; {report.mended:,} of them mended" if report.mended else ""
    click.echo(f"{report.nodes:,} nodes: {', '.join(counts) or 'none'}{mended}")
    click.echo(f"wanted: {','.join(map(str, report.wanted))}")
    if report.by_name:
        click.echo(
            f"{report.by_name:,} of them hide their users' digests from this user, who may not administer them: users are "
            "told by name"
        )


class _Progress:
    """Says now and then, on a terminal, how many nodes were looked at."""

    def __init__(self) -> None:
        self._spoke_s = time.monotonic()
        self._is_watched = sys.stderr.isatty()

    def __call__(self, report: AclReport) -> None:
        now_s = time.monotonic()
        if self._is_watched and now_s - self._spoke_s >= _SPEAK_S:
            self._spoke_s = now_s
            click.echo(
                f"{report.nodes:,} nodes, {report.open:,} open, {report.mended:,} mended", err=True
            )
