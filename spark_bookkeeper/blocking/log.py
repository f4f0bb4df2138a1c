"""Log for callers without an event loop."""

from __future__ import annotations

from collections.abc import Callable

from spark_bookkeeper.blocking.face import Face, blocking
from spark_bookkeeper.blocking.log_reader import LogReader
from spark_bookkeeper.blocking.log_writer import LogWriter
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.log import handle as aio
from spark_bookkeeper.log.format.model import LogSettings, Retention
from spark_bookkeeper.log.format.position import Start
from spark_bookkeeper.log.writing.writer import LogWriter as AsyncLogWriter


class Log(Face[aio.Log]):
    """An open log; every attribute reads what is committed now."""

    def __init__(
        self, thread: LoopThread, log: aio.Log, on_writer: Callable[[LogWriter], None]
    ) -> None:
        """``on_writer`` gets every writer that is made, to abandon it when the client closes."""
        super().__init__(thread, log)
        self.name = log.name
        self.log_id = log.log_id
        self._on_writer = on_writer

    def _open_writer(self, made: AsyncLogWriter) -> LogWriter:
        writer = LogWriter(self._thread, made)
        self._on_writer(writer)
        return writer

    ledgers = blocking(aio.Log.ledgers)
    transactions = blocking(aio.Log.transactions)
    writer = blocking(aio.Log.writer, _open_writer)
    recover = blocking(aio.Log.recover)
    truncate = blocking(aio.Log.truncate)
    set_retention = blocking(aio.Log.set_retention)

    @property
    def schema(self) -> bytes:
        return self._run(aio.Log.schema)

    @property
    def settings(self) -> LogSettings:
        return self._run(aio.Log.settings)

    @property
    def retention(self) -> Retention:
        return self._run(aio.Log.retention)

    @property
    def row_count(self) -> int:
        return self._run(aio.Log.row_count)

    def reader(self, start: Start = "earliest", *, password: bytes = b"") -> LogReader:
        return LogReader(self._thread, self._aio.reader(start, password=password))

    def tail(
        self, start: Start = "latest", *, timeout: float | None = None, password: bytes = b""
    ) -> LogReader:
        return LogReader(self._thread, self._aio.tail(start, timeout=timeout, password=password))
