"""What one bookie counts while it works; its event loop counts, any thread may look."""

from __future__ import annotations

from dataclasses import dataclass, field

from bookkeeper_metadata.foundation.measures import Durations, Operation


@dataclass(slots=True)
class BookieMeasures:
    """Since its start. Sections are counted, not entries, for what takes time is a section of a frame."""

    adds: Operation = field(default_factory=Operation)
    reads: Operation = field(default_factory=Operation)
    lac_reads: Operation = field(default_factory=Operation)
    added_entries: int = 0
    added_bytes: int = 0
    """Payloads that were acknowledged."""
    read_bytes: int = 0
    """Records that were sent to readers."""
    malformed_count: int = 0
    """Streams and requests that did not parse."""
    checkpoints: Durations = field(default_factory=Durations)
    checkpoints_without_room: int = 0
    deleted_ledgers: int = 0
    dropped_ledgers: int = 0
    """Copies too many: others hold what the metadata promises."""
    deleted_logs: int = 0
    waiting_logs: int = 0
    """That no row names: what the last burial left to the next, and what it could not look at."""
    compacted_bytes: int = 0
    """Copied to new entry logs."""
    scrubbed_bytes: int = 0
    limbo_count: int = 0
    """Ledgers in limbo at the last look."""
