"""Opens the ledgers of a task's slices a few ahead, and finds rows anew that moved to other ledgers.

A plan names ledgers, and those it names stay for the log's retention of deleted ledgers. Optimize moves
rows to other ledgers under the same numbers; a task that comes later than that asks the log where they
are now. It gives the very same rows, or an error - never rows of another place where the plan relied on
the place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from bookkeeper_metadata.errors import NoSuchLedgerError
from spark_bookkeeper.blocking.read_handle import ReadHandle
from spark_bookkeeper.datasource.errors import SnapshotExpiredError
from spark_bookkeeper.datasource.read.partitions import PlanLimits, Slice, plan
from spark_bookkeeper.datasource.read.readable import Readable
from spark_bookkeeper.datasource.session import Session

LEDGERS_OPENED_AHEAD = 4
"""Ledgers a task opens before it needs them: hides a metadata read per small ledger."""
MOVES_MAX = 8
"""How often the rows of one slice may have moved again since they were found."""
_NO_LIMITS = PlanLimits(partition_bytes_max=1 << 62)


Opened = ReadHandle | NoSuchLedgerError


def open_ahead(
    session: Session, password: bytes, slices: tuple[Slice, ...]
) -> Generator[tuple[Slice, Opened], None, None]:
    """The slices with their ledgers, or that these are gone, in order.

    Raises:
        BookKeeperError: a ledger that is there cannot be opened.
    """
    if len(slices) <= 1:
        for item in slices:
            yield item, _open(session, password, item)
        return
    with ThreadPoolExecutor(LEDGERS_OPENED_AHEAD, "bookkeeper-open") as pool:
        ahead: deque[tuple[Slice, Future[Opened]]] = deque()
        waiting = iter(slices)
        try:
            for item in waiting:
                ahead.append((item, pool.submit(_open, session, password, item)))
                if len(ahead) > LEDGERS_OPENED_AHEAD:
                    opened, future = ahead.popleft()
                    yield opened, future.result()
            while ahead:
                opened, future = ahead.popleft()
                yield opened, future.result()
        finally:
            # Spark may stop taking rows, for a LIMIT say. Leaving the pool would wait for ledgers
            # that nobody reads any more.
            for _, future in ahead:
                future.cancel()


def _open(session: Session, password: bytes, item: Slice) -> Opened:
    try:
        return session.client.open_ledger(item.ledger_id, password=password)
    except NoSuchLedgerError as gone:
        return gone


class SliceOpener:
    """Opens slices of one task; ``is_place_shown``: a wanted column says in which ledger rows lie."""

    def __init__(
        self, session: Session, readable: Readable, password: bytes, *, is_place_shown: bool
    ) -> None:
        self._session = session
        self._readable = readable
        self._password = password
        self._is_place_shown = is_place_shown

    def open(self, slices: tuple[Slice, ...]) -> Iterator[tuple[Slice, ReadHandle]]:
        """The slices with their ledgers, in order; several in the place of one whose rows moved.

        Raises:
            SnapshotExpiredError: rows moved, and the plan does not say which they are, or relied on
                where they lay.
            DataLossError, LogOverwrittenError: they are not in the log any more.
            BookKeeperError: a ledger cannot be opened.
        """
        for item, opened in open_ahead(self._session, self._password, slices):
            yield from self._found(item, opened, MOVES_MAX)

    def _found(
        self, item: Slice, opened: Opened, moves_left: int
    ) -> Iterator[tuple[Slice, ReadHandle]]:
        if not isinstance(opened, NoSuchLedgerError):
            yield item, opened
            return
        for moved in self._moved(item, opened):
            if not moves_left:
                raise opened
            again = _open(self._session, self._password, moved)
            yield from self._found(moved, again, moves_left - 1)

    def _moved(self, item: Slice, gone: NoSuchLedgerError) -> list[Slice]:
        """Where the rows of a slice lie now whose ledger is gone."""
        readable = self._readable
        if readable.log_id is None:
            raise gone
        # A slice of some entries of a range knows its rows only by what is in them.
        is_by_entry = item.is_whole and item.is_part and not item.row_is_entry
        if is_by_entry or self._is_place_shown:
            raise SnapshotExpiredError(readable.log, item.ledger_id)
        view = self._session.view(readable.log_id, readable.log)
        self._session.run(view.nodes.sync())
        found = self._session.run(view.ranges(item.first_row, item.end_row, was_handed_out=True))
        packs = plan(
            found.ranges, item.first_row, item.end_row, _NO_LIMITS, row_is_entry=readable.is_raw
        )
        slices = [piece for pack in packs for piece in pack]
        # The log still names it, so its rows did not move: it is lost.
        if any(piece.ledger_id == item.ledger_id for piece in slices):
            raise gone
        return slices
