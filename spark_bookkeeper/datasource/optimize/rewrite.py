"""Rewrites one group of ranges: its rows, all of them and in order, into as few ledgers as can be.

Rows are copied without filters, in the schema they were written in; what each of them says of itself -
who wrote it, and when - goes into the new ledger's custom metadata. Nothing is skipped: without one of
its ledgers, or one of its rows, the group has failed and the log keeps it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from bookkeeper_metadata.errors import MetadataUnavailableError, NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.blocking.read_handle import ReadHandle
from spark_bookkeeper.datasource.optimize.pace import Pace
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.origins import origins_of
from spark_bookkeeper.datasource.payload.codec import decoder_of
from spark_bookkeeper.datasource.read.partitions import Slice
from spark_bookkeeper.datasource.read.pruning import ALL_ROWS
from spark_bookkeeper.datasource.read.slice_opener import open_ahead
from spark_bookkeeper.datasource.read.slice_reader import Fetching, read_log
from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.datasource.write.ledger_rows import (
    Pipeline,
    RowForm,
    write_batches,
    write_values,
)
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError, UnauthorizedError
from spark_bookkeeper.log.cleaning.optimize import Group, Instalment, Rewritten
from spark_bookkeeper.log.format.epoch import LedgerWritten
from spark_bookkeeper.log.format.model import LedgerRange, LogSettings
from spark_bookkeeper.log.format.raw import RAW
from spark_bookkeeper.log.format.runs import RUNS_BYTES_MAX, RUNS_KEY, Runs, encode_runs, merged
from spark_bookkeeper.log.ledgers import replication_of
from spark_bookkeeper.log.rules.rewriting import rewritten

PIECES_SHARE = 2
"""A rewrite leaves at most a half of the ledgers."""
_UNPACKED_AT_ONCE_BYTES = 8 * RUNS_BYTES_MAX
"""Of stored origins: a quarter of a million of them, for which a process needs about 130 MiB."""
METADATA_READS_MAX = 16
"""Ledgers of a group whose metadata is read at a time."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbouring ranges that go into one ledger."""

    sources: tuple[LedgerRange, ...]
    origins: bytes
    """What the ledger's metadata says of its rows."""


class SourcesFailedError(Exception):
    """Ledgers that should have been copied cannot be read; why, by where their rows lie."""

    def __init__(self, causes: Sequence[tuple[LedgerRange, Exception]]) -> None:
        super().__init__(f"{len(causes)} ledgers cannot be read")
        self.causes = tuple(causes)


_OF_ALL_LEDGERS = (
    UnauthorizedError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    ClientClosedError,
)
"""Errors that the next ledger would meet as well: no group is made around those."""


@contextmanager
def _reading(source: LedgerRange) -> Iterator[None]:
    """What goes wrong meanwhile is this ledger's fault, unless it would be any other's."""
    try:
        yield
    except _OF_ALL_LEDGERS:
        raise
    except Exception as cause:
        raise SourcesFailedError([(source, cause)]) from cause


class GroupRewriter:
    """Rewrites groups of one instalment, as one task of it."""

    def __init__(
        self,
        session: Session,
        options: WriteOptions,
        settings: LogSettings,
        instalment: Instalment,
        pace: Pace | None = None,
    ) -> None:
        self._session = session
        self._options = options
        self._settings = settings
        self._instalment = instalment
        self._pace = pace or Pace()
        self._password = options.read_password()

    def rewrite(self, number: int, attempt: int) -> Rewritten | None:
        """Rewrite the instalment's group ``number``; every attempt writes ledgers of its own.

        ``None``: its rows have so many origins that as good as as many ledgers would come of it.

        Raises:
            SourcesFailedError: some of its ledgers cannot be read. The group stays as it is.
            EpochFencedError: the instalment was given up; nothing of it becomes visible.
            BookKeeperError: the group cannot be rewritten, and stays as it is.
        """
        group = self._instalment.groups[number]
        form = self._form(group[0].schema_id)
        pieces = self._pieces(group)
        # Else the same ranges would be copied by every optimize, for ever.
        if pieces is None or PIECES_SHARE * len(pieces) > len(group):
            return None
        made = [
            rewritten(piece.sources, self._write(piece, form, number, attempt)) for piece in pieces
        ]
        return Rewritten(number, tuple(made))

    def _form(self, schema_id: int) -> RowForm:
        epoch = self._instalment.epoch
        nodes = self._session.nodes(epoch.log_id, epoch.log)
        schema = self._session.run(self._session.schema(nodes, schema_id))
        return RowForm(
            self._settings,
            schema.arrow,
            schema_id,
            self._options.stats_columns,
            self._session.clock_ms,
        )

    def _pieces(self, group: Group) -> list[_Piece] | None:
        """The group, cut where more origins come together than one ledger's metadata may hold.

        ``None``: into too many pieces, as the sizes of what is stored say already.
        """
        with ThreadPoolExecutor(METADATA_READS_MAX, "bookkeeper-origins") as pool:
            answers = list(pool.map(self._metadata, group))
        gone = [
            (item, each)
            for item, each in zip(group, answers, strict=True)
            if isinstance(each, Exception)
        ]
        if gone:
            # All of them at once: each try reads the metadata of the whole group again.
            raise SourcesFailedError(gone)
        found = [each for each in answers if not isinstance(each, Exception)]
        stored = [len(metadata.custom_metadata.get(RUNS_KEY, b"")) for metadata in found]
        if are_origins_too_many(stored):
            return None
        pieces: list[_Piece] = []
        # In parts: unpacked, the origins of thousands of ledgers would take gigabytes.
        for part in parts_of(stored):
            origins = []
            for item, metadata in zip(group[part], found[part], strict=True):
                with _reading(item):
                    origins.append(origins_of(item, item.ledger_id, metadata, item.rows))
            pieces += _cut(group[part], origins)
        return pieces

    def _metadata(self, source: LedgerRange) -> LedgerMetadata | NoSuchLedgerError:
        try:
            return self._session.client.ledger_metadata(source.ledger_id)
        except NoSuchLedgerError as gone:
            return gone

    def _write(self, piece: _Piece, form: RowForm, number: int, attempt: int) -> LedgerWritten:
        claim = self._session.optimizer.claim(self._instalment, number, attempt)
        # The multi that makes the ledger notes it under the token too, and is refused if that has
        # ended: so there is never a ledger that a sweep could not find.
        with claim.explain_refusals():
            ledger = self._session.client.create_ledger(
                **replication_of(form.settings),
                password=self._password,
                custom_metadata={**form.marks(self._instalment.epoch), RUNS_KEY: piece.origins},
                extra_operations=claim.extra_operations,
            )
        pipeline = Pipeline(ledger, self._options.in_flight_bytes_max)
        if form.is_raw:
            written = write_values(self._values(piece), pipeline, form.schema_id)
        else:
            written = write_batches(self._batches(piece, form), pipeline, form)
        # Closed before it is named: readers then find its end in its metadata and need no recovery.
        ledger.close()
        return written

    def _batches(self, piece: _Piece, form: RowForm) -> Iterator[pa.RecordBatch]:
        decoder = decoder_of(form.settings.payload_format, form.schema)
        fetching = Fetching(ALL_ROWS, form.schema)
        for source, item, ledger in self._opened(piece):
            with _reading(source):
                # Checks that the ledger holds the range's rows, each of them once.
                for rows in read_log(ledger, item, decoder, fetching):
                    yield rows.batch

    def _values(self, piece: _Piece) -> Iterator[memoryview]:
        fetching = Fetching(ALL_ROWS, pa.schema([]))
        for source, item, ledger in self._opened(piece):
            with _reading(source):
                for entry in fetching.read(ledger, item.first_entry, item.last_entry):
                    yield entry.payload

    def _opened(self, piece: _Piece) -> Iterator[tuple[LedgerRange, Slice, ReadHandle]]:
        is_raw = self._settings.payload_format == RAW
        slices = tuple(_whole(item, is_raw=is_raw) for item in piece.sources)
        with closing(open_ahead(self._session, self._password, slices)) as ahead:
            for source in piece.sources:
                with _reading(source):
                    item, opened = next(ahead)
                    # Its rows may lie elsewhere by now. Then the log says so, and the group is given up.
                    if isinstance(opened, NoSuchLedgerError):
                        raise opened
                self._pace.take(item.size_bytes)
                yield source, item, opened


def are_origins_too_many(stored: Sequence[int]) -> bool:
    """Whether ranges whose stored origins have these bytes would become more than a half as many ledgers.

    Origins are cut in halves until they fit, which leaves ledgers three quarters full.
    """
    return PIECES_SHARE * 4 * sum(stored) > 3 * RUNS_BYTES_MAX * len(stored)


def parts_of(stored: Sequence[int]) -> Iterator[slice]:
    """Neighbouring ranges whose stored origins are unpacked at once; the bytes of each are given."""
    first = size_bytes = 0
    for at, each in enumerate(stored):
        if size_bytes and size_bytes + each > _UNPACKED_AT_ONCE_BYTES:
            yield slice(first, at)
            first, size_bytes = at, 0
        size_bytes += each
    yield slice(first, len(stored))


def _cut(group: Sequence[LedgerRange], origins: Sequence[Runs]) -> Iterator[_Piece]:
    runs = merged(
        list(
            chain.from_iterable(
                of.between(0, item.rows) for item, of in zip(group, origins, strict=True)
            )
        )
    )
    # Of one ledger alone they are what was stored before, whatever size another zlib packs them to.
    bytes_max = RUNS_BYTES_MAX if len(group) > 1 else 1 << 20
    if (value := encode_runs(runs, bytes_max)) is not None:
        yield _Piece(tuple(group), value)
        return
    invariant(len(group) > 1, "what was stored of one ledger can be stored again")
    half = len(group) // 2
    yield from _cut(group[:half], origins[:half])
    yield from _cut(group[half:], origins[half:])


def _whole(item: LedgerRange, *, is_raw: bool) -> Slice:
    return Slice(
        item.ledger_id,
        item.first_entry,
        item.last_entry,
        item.first_row,
        item.next_row,
        item,
        item.size_bytes,
        is_raw,
    )
