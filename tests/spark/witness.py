"""A log seen from outside Spark: its ranges, whose batches they are, its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.datasource.session import BATCH_ID_KEY, QUERY_ID_KEY
from spark_bookkeeper.datasource.source import BookKeeperSource
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.format.epoch import TokenState
from spark_bookkeeper.log.format.model import LedgerRange
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.spark.checkers import (
    Block,
    Row,
    check_batches_ascend,
    check_batches_once,
    check_no_hole,
    check_only_grows,
    check_order,
)


class Witness:
    """Looks at one log again and again; what it saw once must stay."""

    def __init__(self, uri: str, log: str) -> None:
        self._uri = uri
        self._log = log
        self._session = session_with(uri)
        self._batches: dict[int, tuple[str, int]] = {}
        self._seen: list[Block] = []

    def look(self, *, is_ordered: bool = True) -> list[int]:
        """The values of the column ``id`` in the log's order, after judging everything else.

        Raises:
            ViolationError: a batch is visible twice, or something visible before has changed.
        """
        blocks, rows = self.blocks(), list(self.rows())
        check_batches_once(blocks)
        check_batches_ascend(blocks)
        check_only_grows(self._seen, blocks)
        check_no_hole(rows)
        if is_ordered:
            check_order(rows)
        self._seen = blocks
        return [row.value for row in rows]

    def blocks(self) -> list[Block]:
        """The log's ranges; none when there is no such log yet."""
        nodes = self._nodes()
        if nodes is None:
            return []
        view = self._session.view(nodes.log_id, self._log)
        return [self._block(each) for each in self._session.run(view.ranges()).ranges]

    def rows(self) -> Iterator[Row]:
        """Every visible row, in order."""
        if self._nodes() is None:
            return
        options = {"metadataserviceuri": self._uri, "log": self._log, "includemetadata": "true"}
        source = BookKeeperSource(options)
        reader = source.reader(source.schema())
        for partition in reader.partitions():
            for batch in reader.read(partition):
                yield from _rows(batch)

    def txns(self) -> dict[str, int]:
        """The version stored last of each application."""
        nodes = self._nodes()
        found = {} if nodes is None else self._session.run(nodes.txns())
        return {app: stored.version for app, stored in found.items()}

    def tokens(self) -> dict[int, TokenState]:
        """Every token's state, by epoch."""
        nodes = self._nodes()
        if nodes is None:
            return {}
        found = {
            epoch: self._session.run(nodes.token(epoch))
            for epoch in self._session.run(nodes.epochs())
        }
        return {epoch: at.token.state for epoch, at in found.items() if at is not None}

    def token_ledgers(self, epoch: int) -> list[int]:
        """The ledgers created under one epoch."""
        nodes = self._nodes()
        children = [] if nodes is None else self._session.run(nodes.token_children(epoch))
        return [child.ledger_id for child in children]

    def _nodes(self) -> LogNodes | None:
        try:
            return self._session.run(self._session.catalog.open(self._log))
        except NoSuchLogError:
            return None

    def _block(self, found: LedgerRange) -> Block:
        ledger_id = found.ledger_id
        if ledger_id not in self._batches:
            marks = self._session.client.ledger_metadata(ledger_id).custom_metadata
            query_id = marks.get(QUERY_ID_KEY, b"").decode()
            self._batches[ledger_id] = (query_id, int(marks.get(BATCH_ID_KEY, b"-1")))
        query_id, batch_id = self._batches[ledger_id]
        return Block(query_id, batch_id, ledger_id, found.commit_ms, found.first_row, found.rows)


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    columns = [batch.column(name).to_pylist() for name in ("_position", "_ledger", "id")]
    for position, ledger_id, value in zip(*columns, strict=True):
        yield Row(position, ledger_id, value)
