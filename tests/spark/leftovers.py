"""What a write may leave behind: nothing, once the log has been collected."""

from __future__ import annotations

from collections.abc import Collection

from spark_bookkeeper import BookKeeper
from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.log.cleaning.references import referenced_chunks
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.layer import clock_ms
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.spark.checkers import check_nothing_orphaned

DAY_MS = 86_400_000


def collect(uri: str, log: str, *, days_later: int = 0) -> SweepReport:
    """Collect one log, as if so many days had gone by."""
    session = Session(session_with(uri).client, clock_ms=lambda: clock_ms() + days_later * DAY_MS)
    nodes = session.run(session.catalog.open(log))
    return session.run(session.collector.collect(nodes.log_id, log=log))


def end_tokens(uri: str, log: str) -> None:
    """End every write under way, as a newer run or a collection does before it cleans."""
    session = session_with(uri)
    nodes = session.run(session.catalog.open(log))
    for epoch in session.run(nodes.epochs()):
        session.run(nodes.kill(epoch, clock_ms()))


def assert_nothing_left(
    bk: BookKeeper, log: str, ledgers_before: Collection[int], *, days_later: int = 0
) -> None:
    """After a collection: no token, no job's index node, no garbage, and no ledger or chunk that
    the log does not name.
    """
    collect(bk.metadata_service_uri, log, days_later=days_later)
    session = session_with(bk.metadata_service_uri)
    nodes = session.run(session.catalog.open(log))
    check_nothing_orphaned(
        ledgers=set(bk.list_ledgers()) - set(ledgers_before),
        named={item.ledger_id for item in bk.open_log(log).ledgers()},
        nodes=leftover_nodes(session, nodes),
    )


def leftover_nodes(session: Session, nodes: LogNodes) -> list[str]:
    """Paths below a log that stand for something unfinished, or that nothing refers to."""
    store, tree = nodes.store, nodes.tree

    def below(path: str) -> list[str]:
        return [f"{path}/{name}" for name in session.run(store.children(path)) or ()]

    kept = {tree.chunk(name) for name in session.run(referenced_chunks(nodes))}
    known = {tree.head, *tree.folders, *kept}
    found = [*below(tree.tokens), *below(tree.jobs), *below(tree.garbage)]
    return found + [path for path in below(tree.chunks) + below(tree.root) if path not in known]
