"""Rows of a log as lines of JSON, read by the very classes Spark calls: the same rows and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.admin.text import printable
from spark_bookkeeper.cli.values import as_option
from spark_bookkeeper.datasource.source import BookKeeperSource

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1_000
"""Rows turned into Python values at once: bounds the memory that printing a log takes."""


class LogTable:
    """One log's committed rows."""

    def __init__(self, uri: str, log: str, password: bytes) -> None:
        """Raises NoSuchLogError."""
        self._uri = uri
        self._log = log
        self._password = password
        self._session = session_with(uri)
        self._nodes = self._session.run(self._session.catalog.open(log))

    def rows(self, first_row: int | str, end_row: int | str) -> Iterator[str]:
        """The rows from ``first_row`` to, not including, ``end_row``: numbers or words."""
        options = {"metadataServiceUri": self._uri, "log": self._log}
        options["startingOffsets"] = self._offset(first_row)
        options["endingOffsets"] = self._offset(end_row)
        if self._password:
            options["password"] = as_option(self._password)
        source = BookKeeperSource({key.lower(): value for key, value in options.items()})
        reader = source.reader(source.schema())
        for partition in reader.partitions():
            for batch in cast("Iterator[pa.RecordBatch]", reader.read(partition)):
                for first in range(0, batch.num_rows, ROWS_AT_ONCE):
                    for row in batch.slice(first, ROWS_AT_ONCE).to_pylist():
                        yield json.dumps(row, default=_as_text)

    def tail(self, start: int | str, timeout_s: float | None) -> Iterator[str]:
        """Rows from ``start`` on as they are committed; ends when none came for ``timeout_s``."""
        view = self._session.view(self._nodes.log_id, self._log)
        row = self._session.run(view.pin(start))
        while (end_row := self._session.run(self._wait_for_rows(row, timeout_s))) is not None:
            yield from self.rows(row, end_row)
            row = end_row

    async def _wait_for_rows(self, row: int, timeout_s: float | None) -> int | None:
        """Wait until the log has rows behind ``row``; its end then, ``None`` after ``timeout_s``."""
        changed = asyncio.Event()
        stop = await self._nodes.store.watch(self._nodes.tree.head, lambda _: changed.set())
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    changed.clear()
                    head = (await self._nodes.head()).head
                    if head.next_row > row:
                        return head.next_row
                    await changed.wait()
        except TimeoutError:
            return None
        finally:
            stop()

    def _offset(self, position: int | str) -> str:
        """A row number as the data source writes it; words stay words."""
        if isinstance(position, str):
            return position
        return json.dumps({"log": self._nodes.log_id, "row": position})


def _as_text(value: Any) -> str:
    """A value that JSON has no form for: bytes as everywhere, decimals and times as ``str`` has them."""
    return printable(value) if isinstance(value, bytes) else str(value)
