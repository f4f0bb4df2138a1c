"""What a log is: settings, and numbered rows in ranges of ledgers.

Values only, checked on construction; no I/O, no clock. A log's rows are numbered from its creation
on and a number is never reused: ``base_row`` and ``next_row`` only grow. The newest ranges stand
inline in the head; older ones are in immutable *chunks*, and when the head would list too many
chunks the oldest of them move below an index chunk one level up, so that the head stays small
however long the log becomes (the changes are in :mod:`spark_bookkeeper.log.rules.transitions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, unique

from bookkeeper_metadata.foundation.defects import raise_all
from bookkeeper_metadata.model import DigestType
from spark_bookkeeper.log.format.columns import ColumnRange

PAYLOAD_FORMATS = ("arrow", "avro", "raw")
COMPRESSIONS = ("zstd", "lz4", "none")
ENTRY_BYTES_MAX = 5 * 1024 * 1024 - 500
"""Apache's default frame limit less its headers."""


@unique
class LogState(Enum):
    """A log is LIVE until its deletion begins; a DELETING one is no log for readers or writers."""

    LIVE = 1
    DELETING = 2


@unique
class GarbageReason(Enum):
    """Why ranges left the log."""

    OVERWRITE = 1
    TRUNCATE = 2
    EMPTY_TAIL = 3
    REWRITE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How the ledgers of a log are made; fixed at the log's creation."""

    ensemble_size: int = 3
    """Bookies a ledger is spread over; more spread load, and need that many bookies up."""
    write_quorum: int = 3
    """Copies of each entry; each costs disk and network."""
    ack_quorum: int = 2
    """Copies that must be on disk before an entry counts as written; 1 loses data with one disk."""
    digest_type: DigestType = DigestType.CRC32C
    """Checksum of each entry; CRC32C is the fastest, HMAC needs a password."""
    payload_format: str = "arrow"
    """What an entry's payload is: arrow, avro, or raw (one row, one entry)."""
    compression: str = "zstd"
    """Of arrow buffers: zstd is smallest, lz4 cheaper on the processor, none for local tests."""
    entry_bytes: int = 1024 * 1024
    """Target size of an entry, bytes: larger ones cost less per row, and more memory per reader."""

    def __post_init__(self) -> None:
        found = []
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            found.append("quorums must satisfy 1 <= ack_quorum <= write_quorum <= ensemble_size")
        if self.payload_format not in PAYLOAD_FORMATS:
            found.append(f"payload_format must be one of {', '.join(PAYLOAD_FORMATS)}")
        if self.compression not in COMPRESSIONS:
            found.append(f"compression must be one of {', '.join(COMPRESSIONS)}")
        if not 1 <= self.entry_bytes <= ENTRY_BYTES_MAX:
            found.append(f"entry_bytes must be in 1..{ENTRY_BYTES_MAX}")
        raise_all(found, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What of a log goes by itself: whole ranges, the oldest first, the newest range never.

    A range goes by its age or by its place, whichever says so first.
    """

    time_ms: int | None = None
    """Ranges go whose last commit is older than this; ``None``: none goes by its age."""
    size_bytes: int | None = None
    """Payload bytes of one copy that stay at least; what is older than these goes. ``None``: all
    stay."""
    is_consumed_kept: bool = False
    """Rows that a live consumer has not passed stay, whatever their age and place."""

    def __post_init__(self) -> None:
        found = []
        if self.time_ms is not None and self.time_ms < 1:
            found.append("time_ms must be at least 1")
        if self.size_bytes is not None and self.size_bytes < 0:
            found.append("size_bytes must not be negative")
        raise_all(found, self)

    @property
    def is_bounded(self) -> bool:
        """Whether any range ever goes."""
        return self.time_ms is not None or self.size_bytes is not None


KEEP_ALL = Retention()
"""The retention of a log for which nobody chose one."""


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """Consecutive entries of one ledger that hold consecutive rows of the log."""

    ledger_id: int
    first_entry: int
    last_entry: int
    """Inclusive."""
    first_row: int
    """Row number in the log."""
    rows: int
    size_bytes: int
    """Payload bytes."""
    schema_id: int
    commit_ms: int
    """Commit time, ms since the epoch; never less than that of the range before. Of a range that
    was rewritten from several: the last one's."""
    columns: tuple[ColumnRange, ...] = ()
    first_commit_ms: int | None = None
    """Of a range that was rewritten from several: commit time of the first. ``None``: there is one."""

    @property
    def committed_since_ms(self) -> int:
        """Commit time of its first row."""
        return self.commit_ms if self.first_commit_ms is None else self.first_commit_ms

    @property
    def next_row(self) -> int:
        return self.first_row + self.rows

    def column(self, name: str) -> ColumnRange | None:
        """The bounds of the column of that name, if they were recorded."""
        return next((found for found in self.columns if found.column == name), None)


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """Where older ranges stand, and which rows they hold: enough to skip a chunk unread."""

    epoch: int
    serial: int
    level: int
    """0: the chunk holds ranges. n: it holds references to chunks of level n - 1."""
    first_row: int
    rows: int
    ranges: int
    """Ranges in it and below it."""
    size_bytes: int
    """Payload bytes of those ranges."""
    last_commit_ms: int

    @property
    def name(self) -> str:
        """The chunk's node name; it carries the epoch, and is never used twice."""
        return f"{self.epoch:010d}-{self.serial}"

    @property
    def next_row(self) -> int:
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class Chunk:
    """An immutable piece of the list of ranges: ranges at level 0, references above."""

    level: int
    ranges: tuple[LedgerRange, ...] = ()
    chunks: tuple[ChunkRef, ...] = ()

    def defects(self, ref: ChunkRef) -> list[str]:
        """How it is another chunk than the one that ``ref`` describes."""
        found = _gaps(ref.first_row, (*self.chunks, *self.ranges), ref.next_row)
        # Levels that fall by one from reference to reference cannot lead in a circle.
        if self.level != ref.level or any(below.level != ref.level - 1 for below in self.chunks):
            found.append(f"its levels are not those of a chunk of level {ref.level}")
        return found


def _gaps(first_row: int, parts: Sequence[ChunkRef | LedgerRange], next_row: int) -> list[str]:
    """Where the parts fail to hold the rows from ``first_row`` to ``next_row`` once each, in order."""
    found = []
    row = first_row
    for part in parts:
        if part.first_row != row:
            found.append(f"ranges must follow each other; row {part.first_row} follows {row}")
        row = part.next_row
    if row != next_row:
        found.append(f"ranges end at row {row}, next_row={next_row}")
    return found


@dataclass(frozen=True, slots=True)
class OpenLedger:
    """The ledger a writer outside Spark appends to; always the log's last."""

    ledger_id: int
    first_row: int
    opened_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHead:
    """One version of a log's head: the root of everything a reader may see."""

    name: str
    settings: LogSettings
    state: LogState = LogState.LIVE
    base_row: int = 0
    """The first row of the log; those before it were truncated or overwritten."""
    next_row: int = 0
    """The number the next row gets."""
    overwritten_row: int = 0
    """``base_row`` as the newest overwrite set it; 0 when there was none."""
    schema_id: int = 0
    """The newest schema."""
    last_commit_ms: int = 0
    chunks: tuple[ChunkRef, ...] = ()
    """In row order; levels never rise from one to the next."""
    ranges: tuple[LedgerRange, ...] = ()
    """The newest ranges."""
    open_ledger: OpenLedger | None = None
    retention: Retention = KEEP_ALL
    format_version: int = 1
    """2 from the first use of retention or of rewritten ranges on, for good: programs that know
    neither must refuse the log, not write these away."""

    def __post_init__(self) -> None:
        found = []
        if not 0 <= self.base_row <= self.next_row:
            found.append("rows must satisfy 0 <= base_row <= next_row")
        found += _gaps(self.base_row, (*self.chunks, *self.ranges), self.next_row)
        if self.format_version == 1 and self.retention != KEEP_ALL:
            found.append("a head with a retention has format version 2")
        raise_all(found, None)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Ranges that left the log; after a retention, collection deletes those of their ledgers that
    nothing else names."""

    reason: GarbageReason
    dropped_ms: int
    chunks: tuple[ChunkRef, ...] = ()
    ranges: tuple[LedgerRange, ...] = ()
    retention_ms: int | None = None
    """How long the writer that dropped it wants it kept; ``None``: as long as the collector does."""

    @property
    def size_bytes(self) -> int:
        """Payload bytes of one copy."""
        return sum(ref.size_bytes for ref in self.chunks) + sum(
            item.size_bytes for item in self.ranges
        )


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one consumer has read."""

    row: int
    """The rows before it are not needed any more."""
    touched_ms: int
    """When its consumer last wrote it, ms since the epoch, by the consumer's clock: for people."""
    timeout_ms: int
    """A cursor not written for longer than this is ignored by retention."""

    def __post_init__(self) -> None:
        found = []
        if self.row < 0 or self.touched_ms < 0:
            found.append("a cursor's row and time must not be negative")
        if self.timeout_ms < 0:
            found.append("timeout_ms must not be negative")
        raise_all(found, self)

    def advanced(self, row: int, now_ms: int, timeout_ms: int) -> Cursor:
        """The cursor once its consumer has read up to ``row``: never back, neither row nor time."""
        return Cursor(max(self.row, row), max(self.touched_ms, now_ms), timeout_ms)
