"""Log: one named log, as its owner looks at it."""

from __future__ import annotations

from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.model import LedgerRange, LogSettings


class Log:
    """An open log; every call reads what is committed now. Use within one event loop."""

    def __init__(self, layer: LogLayer, name: str, log_id: int) -> None:
        self.name = name
        self.log_id = log_id
        """Drawn at creation: a log created again under its name is another log."""
        self._layer = layer

    async def ledgers(self) -> list[LedgerRange]:
        """The ranges of ledgers that make up the log, in order.

        Raises:
            NoSuchLogError: it was deleted.
        """
        return list((await self._layer.view(self.log_id, self.name).ranges()).ranges)

    async def schema(self) -> bytes:
        """The newest schema, as whoever created the log stored it; empty when there is none."""
        nodes = self._layer.nodes(self.log_id, self.name)
        head = (await nodes.head()).head
        return await nodes.schema(head.schema_id) or b""

    async def settings(self) -> LogSettings:
        """How the log's ledgers are written."""
        return (await self._layer.nodes(self.log_id, self.name).head()).head.settings

    async def row_count(self) -> int:
        """Rows that can be read."""
        head = (await self._layer.nodes(self.log_id, self.name).head()).head
        return head.next_row - head.base_row

    async def transactions(self) -> dict[str, int]:
        """Last version of each transaction application id."""
        stored = await self._layer.nodes(self.log_id, self.name).txns()
        return {app_id: txn.version for app_id, txn in stored.items()}
