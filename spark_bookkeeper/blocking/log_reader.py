"""LogReader for callers without an event loop: one crossing to the loop per batch of rows.

While the caller works on a batch, the loop fetches the next. A reader that is dropped needs no
closing: the loop ends what runs there. Nothing here waits when it is collected, for that may happen
on the loop itself.
"""

from __future__ import annotations

from collections import deque
from typing import Self

from bookkeeper_metadata.foundation.closing import Closing
from spark_bookkeeper.blocking.face import Face
from spark_bookkeeper.blocking.iteration import Iteration
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.ledger.entry import Entry
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.reading import reader as aio


class LogReader(Face[aio.LogReader], Closing):
    """An iterator over ``(Position, Entry)`` of one log; use from one thread at a time."""

    def __init__(self, thread: LoopThread, reader: aio.LogReader) -> None:
        super().__init__(thread, reader)
        self.log = reader.log
        self.next_row: int | None = None
        """The row behind the last one returned, where another reader may go on."""
        self._iteration = Iteration(thread, reader.batches())
        self._rows: deque[tuple[Position, Entry]] = deque()
        self._is_closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Position, Entry]:
        """The next row; waits for it.

        Raises: as :meth:`spark_bookkeeper.log.reading.reader.LogReader.batches`.
        """
        if not self._rows:
            rows = None if self._is_closed else self._thread.run(self._iteration.next())
            if rows is None:
                raise StopIteration
            self._rows.extend(rows)
        position, entry = self._rows.popleft()
        self.next_row = position.row + 1
        return position, entry

    def close(self) -> None:
        self._is_closed = True
        self._rows.clear()
        self._thread.finish(self._iteration.end())
