"""What a write may leave behind: nothing, once the log has been collected."""

from __future__ import annotations

from collections.abc import Collection

from spark_bookkeeper import BookKeeper
from spark_bookkeeper.cli.log_documents import session_with
from spark_bookkeeper.log.sweep import referenced_chunks


def assert_nothing_left(bk: BookKeeper, log: str, ledgers_before: Collection[int]) -> None:
    """After a collection: no token, no job's index node, no garbage, and no ledger or chunk that
    the log does not name.
    """
    session = session_with(bk.metadata_service_uri)
    nodes = session.run(session.catalog.open(log))

    session.run(session.collector.collect(nodes.log_id, log=log))

    store, tree = nodes.store, nodes.tree
    assert session.run(nodes.epochs()) == []
    assert not session.run(store.children(tree.jobs))
    assert session.run(nodes.garbage_epochs()) == []
    chunks = session.run(store.children(tree.chunks))
    assert set(chunks or []) == session.run(referenced_chunks(nodes))
    named = {item.ledger_id for item in bk.open_log(log).ledgers()}
    assert set(bk.list_ledgers()) - set(ledgers_before) == named
