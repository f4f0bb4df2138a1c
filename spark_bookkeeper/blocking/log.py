"""Log for callers without an event loop."""

from __future__ import annotations

from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.log import handle as aio
from spark_bookkeeper.log.model import LedgerRange, LogSettings


class Log:
    """An open log; every attribute reads what is committed now."""

    def __init__(self, thread: LoopThread, log: aio.Log) -> None:
        self.name = log.name
        self.log_id = log.log_id
        self._thread = thread
        self._log = log

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
        """Rows that can be read."""
        return self._thread.run(self._log.row_count())

    def transactions(self) -> dict[str, int]:
        """Last version of each transaction application id."""
        return self._thread.run(self._log.transactions())
