"""Log for callers without an event loop."""

from __future__ import annotations

from collections.abc import Callable

from spark_bookkeeper.blocking.log_reader import LogReader
from spark_bookkeeper.blocking.log_writer import LogWriter
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.log import handle as aio
from spark_bookkeeper.log.format.model import LedgerRange, LogSettings
from spark_bookkeeper.log.format.position import Position, Start
from spark_bookkeeper.log.settings import LogWriterSettings


class Log:
    """An open log; every attribute reads what is committed now."""

    def __init__(
        self, thread: LoopThread, log: aio.Log, opened: Callable[[LogWriter], None]
    ) -> None:
        """``opened`` is told of every writer, to abandon it when the client closes."""
        self.name = log.name
        self.log_id = log.log_id
        self._thread = thread
        self._log = log
        self._opened = opened

    def ledgers(self) -> list[LedgerRange]:
        """The ranges of ledgers that make up the log, in order. Raises NoSuchLogError."""
        return self._thread.run(self._log.ledgers())

    @property
    def schema(self) -> bytes:
        """The newest schema as stored; empty when there is none."""
        return self._thread.run(self._log.schema())

    @property
    def settings(self) -> LogSettings:
        """How the log's ledgers are written."""
        return self._thread.run(self._log.settings())

    @property
    def row_count(self) -> int:
        """Rows of closed ledgers: those of an open one are counted when it ends."""
        return self._thread.run(self._log.row_count())

    def transactions(self) -> dict[str, int]:
        """Last version of each transaction application id."""
        return self._thread.run(self._log.transactions())

    def writer(
        self, *, settings: LogWriterSettings | None = None, password: bytes = b""
    ) -> LogWriter:
        """Take the log over from whoever writes it, and become its writer.

        The other writer, if there is one, is fenced: what it acknowledged stays, and it gets
        ``LogFencedError``. While this one is open, Spark's appends to the log are refused.

        Raises:
            LogPayloadError: the log's payload format is not raw.
            LedgerRecoveryError: where the other writer's ledger ends cannot be decided now;
                nothing was changed.
            NotEnoughBookiesError: too few for a ledger of the log's settings.
            NoSuchLogError, MetadataConflictError, MetadataUnavailableError: not taken over, or it
                cannot be told; another try repairs that.
        """
        made = self._thread.run(self._log.writer(settings=settings, password=password))
        writer = LogWriter(self._thread, made)
        self._opened(writer)
        return writer

    def recover(self) -> None:
        """Take the log over from whoever writes it, and leave it without a writer.

        Raises: as :meth:`writer`.
        """
        self._thread.run(self._log.recover())

    def reader(self, start: Start = "earliest", *, password: bytes = b"") -> LogReader:
        """The rows from ``start`` (``"earliest"``, ``"latest"``, a row, a position) to what is
        confirmed when the reader gets there. Errors come with the iteration.
        """
        return LogReader(self._thread, self._log.reader(start, password=password))

    def tail(
        self, start: Start = "latest", *, timeout: float | None = None, password: bytes = b""
    ) -> LogReader:
        """The rows from ``start`` on as they are confirmed, across rolls and take-overs.

        Ends when none came for ``timeout`` seconds; ``None``: never.
        """
        return LogReader(self._thread, self._log.tail(start, timeout=timeout, password=password))

    def truncate(self, before: int | Position) -> int:
        """Drop the ranges that end at or before the row ``before``; returns the first row left.

        Raises:
            ValueError: the log has no such row.
            NoSuchLogError, MetadataConflictError, MetadataUnavailableError: try again.
        """
        return self._thread.run(self._log.truncate(before))
