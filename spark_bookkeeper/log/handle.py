"""Log: one named log, open to be inspected, written, read and truncated."""

from __future__ import annotations

from spark_bookkeeper.log.format.model import LedgerRange, LogHead, LogSettings, Retention
from spark_bookkeeper.log.format.position import Position, Start
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.ledgers import Ledgers
from spark_bookkeeper.log.reading.reader import LogReader
from spark_bookkeeper.log.settings import LogWriterSettings
from spark_bookkeeper.log.writing.leader import Leader
from spark_bookkeeper.log.writing.writer import LogWriter


class Log:
    """An open log; every call reads what is committed now. Use within one event loop."""

    def __init__(self, layer: LogLayer, ledgers: Ledgers, name: str, log_id: int) -> None:
        self.name = name
        self.log_id = log_id
        """Drawn at creation: a log created again under its name is another log."""
        self._layer = layer
        self._view = layer.view(log_id, name)
        self._ledgers = ledgers

    async def ledgers(self) -> list[LedgerRange]:
        """The ranges of ledgers that make up the log, in order; the open ledger is not listed yet.

        Raises:
            NoSuchLogError: it was deleted.
        """
        await self._view.nodes.sync()
        return list((await self._view.ranges()).ranges)

    async def schema(self) -> bytes:
        """The newest schema as it was stored; empty when there is none."""
        head = await self._head()
        return await self._view.nodes.schema(head.schema_id) or b""

    async def settings(self) -> LogSettings:
        """How the log's ledgers are written."""
        return (await self._head()).settings

    async def retention(self) -> Retention:
        """What of the log goes by itself."""
        return (await self._head()).retention

    async def set_retention(self, retention: Retention) -> None:
        """Choose what of the log goes by itself, behind Spark's commits and by ``logs gc``.

        Raises:
            NoSuchLogError, MetadataConflictError, MetadataUnavailableError: try again.
        """
        await self._layer.change_retention(self.log_id, self.name, lambda _: retention)

    async def row_count(self) -> int:
        """Rows of closed ledgers; those of an open ledger are counted when it is closed."""
        head = await self._head()
        return head.next_row - head.base_row

    async def transactions(self) -> dict[str, int]:
        """Last version of each transaction application id."""
        await self._view.nodes.sync()
        stored = await self._view.nodes.txns()
        return {app_id: txn.version for app_id, txn in stored.items()}

    async def writer(
        self, *, settings: LogWriterSettings | None = None, password: bytes = b""
    ) -> LogWriter:
        """Take the log over from its present writer, if it has one, and become its writer.

        The present writer is fenced: what it acknowledged stays, and it gets
        ``LogFencedError``. While this writer is open, Spark's appends are refused with
        ``BK_LOG_HAS_WRITER``. Settings are kept per writer; ``password`` is that of new ledgers.

        Raises:
            LogPayloadError: the log's payload format is not raw.
            LedgerRecoveryError: where the other writer's ledger ends cannot be decided now;
                nothing was changed.
            NotEnoughBookiesError: too few for a ledger of the log's settings.
            NoSuchLogError, MetadataConflictError, MetadataUnavailableError: not taken over, or not
                known whether; another try repairs that.
        """
        leader = Leader(self._layer.tail(self.log_id, self.name), self._ledgers, password=password)
        return LogWriter(leader, await leader.take_over(), settings or LogWriterSettings())

    async def recover(self) -> None:
        """Take the log over from its present writer, if it has one, and leave it without a writer.

        Raises: as :meth:`writer`.
        """
        await self._layer.tail(self.log_id, self.name).close()

    def reader(self, start: Start = "earliest", *, password: bytes = b"") -> LogReader:
        """The rows from ``start`` to what is confirmed when the reader gets there.

        Errors come with the iteration: see :meth:`LogReader.batches`.
        """
        return LogReader(self._view, self._ledgers, start=start, password=password)

    def tail(
        self, start: Start = "latest", *, timeout: float | None = None, password: bytes = b""
    ) -> LogReader:
        """The rows from ``start`` on as they are confirmed, across rolls and take-overs.

        Ends when no row came for ``timeout`` seconds; never with ``None``.
        """
        return LogReader(
            self._view,
            self._ledgers,
            start=start,
            is_following=True,
            timeout_s=timeout,
            password=password,
        )

    async def truncate(self, before: int | Position) -> int:
        """Truncate the ranges that end at or before the row ``before``; returns the first row left.

        Only whole ranges go, and never the open ledger; the rows left keep their numbers. Collection
        deletes the ledgers of the truncated ranges once the retention has passed.

        Raises:
            ValueError: the log has no such row.
            NoSuchLogError, MetadataConflictError, MetadataUnavailableError: try again.
        """
        row = before.row if isinstance(before, Position) else before
        return (await self._layer.truncate(self.log_id, self.name, row)).first_row

    async def _head(self) -> LogHead:
        """The head with everything in it that was committed before this call, in any session."""
        await self._view.nodes.sync()
        return (await self._view.head()).head
