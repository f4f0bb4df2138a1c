"""BookieExposition: what a scrape of a bookie shows. It runs beside the event loop and looks at single values only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bookie_server.bookie import Bookie
from bookie_server.settings import BookieSettings
from bookie_server.storage.journal.journal_file import SUFFIX as JOURNAL_SUFFIX
from bookie_server.storage.logs.entry_log import SUFFIX as LOG_SUFFIX
from bookie_server.wire.messages import BookieInfo, Status
from bookkeeper_metadata.foundation.families import (
    apache_counter,
    apache_counters,
    counter,
    durations,
    gauge,
    gauges,
    operation,
)

ADDS_REFUSED = [
    status.name
    for status in (
        Status.READ_ONLY,
        Status.FENCED,
        Status.UNAUTHORIZED,
        Status.DELETED,
        Status.LIMBO,
        Status.UNKNOWN,
    )
]
READS_REFUSED = [Status.NO_ENTRY.name, Status.UNKNOWN.name, Status.BAD_REQUEST.name]


class BookieExposition(Collector):
    """Of one bookie."""

    def __init__(
        self,
        bookie: Bookie,
        identity: BookieInfo,
        settings: BookieSettings,
    ) -> None:
        self._bookie = bookie
        self._identity = identity
        self._settings = settings

    def collect(self) -> Iterator[Metric]:
        """All families. Disks are asked: one that does not answer keeps this, and nobody else, waiting."""
        identity = self._identity
        labels = {
            "bookie_id": identity.bookie_id,
            "instance_id": identity.instance_id,
            "version": identity.version,
        }
        yield gauges("bookie_info", "Which bookie this is", [(labels, 1)])
        yield from self._requests()
        yield from self._journals()
        yield from self._storage()
        yield from self._files()

    def _requests(self) -> Iterator[Metric]:
        bookie, measures = self._bookie, self._bookie.measures
        yield from operation(
            "bookkeeper_server_ADD_ENTRY", "Sections of adds", measures.adds, ADDS_REFUSED
        )
        yield from operation(
            "bookkeeper_server_READ_ENTRY",
            "Reads of ranges; refused, if they get none of the entries",
            measures.reads,
            READS_REFUSED,
        )
        yield from operation("bookkeeper_server_READ_LAC", "Reads of the LAC", measures.lac_reads)
        yield apache_counter(
            "bookie_WRITE_BYTES", "Bytes of records acknowledged", measures.added_bytes
        )
        yield counter("bookie_write_entries", "Entries acknowledged", measures.added_entries)
        yield apache_counter("bookie_READ_BYTES", "Bytes of records sent", measures.read_bytes)
        yield counter("bookie_malformed_requests", "What did not parse", measures.malformed_count)
        for name, budget in (
            ("adds", bookie.adds_in_progress),
            ("reads", bookie.reads_in_progress),
        ):
            yield gauge(f"bookie_{name}_in_progress_bytes", "Memory held", budget.used_bytes)

    def _journals(self) -> Iterator[Metric]:
        journals = [({"journal": str(each.index)}, each) for each in self._bookie.storage.journals]
        yield durations(
            "bookie_journal_JOURNAL_SYNC_latency",
            "A write and its sync",
            [(labels, journal.syncs) for labels, journal in journals],
        )
        yield apache_counters(
            "bookie_journal_JOURNAL_WRITE_BYTES",
            "Bytes written",
            [(labels, journal.written_bytes) for labels, journal in journals],
        )
        yield gauge(
            "bookie_journal_JOURNAL_QUEUE_SIZE",
            "Adds, fences and deletions that are not durable yet",
            self._bookie.pending_count,
        )

    def _storage(self) -> Iterator[Metric]:
        measures, contents = self._bookie.measures, self._bookie.storage.contents
        yield gauge(
            "bookie_ledgers_count", "Ledgers of which something is held", len(contents.ledgers)
        )
        yield gauge("bookie_ledgers_in_limbo", "Ledgers in limbo", measures.limbo_count)
        yield gauge(
            "bookie_damaged_entries",
            "Entries that could not be read",
            self._bookie.verifier.damaged_count,
        )
        yield counter("bookie_scrubbed_bytes", "Read to find damage", measures.scrubbed_bytes)
        yield gauge("bookie_write_cache_bytes", "In no entry log yet", contents.cached_bytes)
        yield durations("bookie_checkpoint_latency", "Checkpoints", [({}, measures.checkpoints)])
        yield counter(
            "bookie_checkpoints_without_room",
            "Checkpoints that found no room",
            measures.checkpoints_without_room,
        )
        yield apache_counter(
            "bookie_DELETED_LEDGER_TOTAL", "Ledgers deleted", measures.deleted_ledgers
        )
        yield counter("bookie_dropped_ledgers", "Copies too many", measures.dropped_ledgers)
        yield counter("bookie_deleted_entry_logs", "Entry logs deleted", measures.deleted_logs)
        yield gauge("bookie_waiting_entry_logs", "To be deleted", measures.waiting_logs)
        yield counter("bookie_compacted_bytes", "Copied to new logs", measures.compacted_bytes)

    def _files(self) -> Iterator[Metric]:
        """What the disks say. Where one does not, its samples are missing, and that is shown."""
        settings, failed = self._settings, dict[str, int]()
        disks: dict[str, tuple[int, int]] = {}
        for name, suffix, directories in (
            ("journal", JOURNAL_SUFFIX, settings.journal_directories),
            ("entry_log", LOG_SUFFIX, settings.ledger_directories),
        ):
            held: dict[str, list[int]] = {}
            for directory in directories:
                shown = os.fsencode(directory).decode("utf-8", "backslashreplace")
                try:
                    held[shown] = _sizes(directory, suffix)
                    disks[shown] = _total_and_free(directory)
                    failed[shown] = 0
                except OSError:
                    failed[shown] = 1
            for unit, count_of in (("files", len), ("bytes", sum)):
                values = [({"directory": each}, count_of(sizes)) for each, sizes in held.items()]
                yield gauges(f"bookie_{name}_{unit}", f"{name}: {unit}", values)
        for unit, number in (("total", 0), ("free", 1)):
            values = [({"directory": each}, found[number]) for each, found in disks.items()]
            yield gauges(f"bookie_disk_{unit}_bytes", f"File system, {unit}", values)
        yield gauges(
            "bookie_directory_failed",
            "1 where a directory cannot be looked at",
            [({"directory": each}, has_failed) for each, has_failed in failed.items()],
        )


def _total_and_free(directory: str) -> tuple[int, int]:
    disk = os.statvfs(directory)
    return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


def _sizes(directory: str, suffix: str) -> list[int]:
    found = []
    with os.scandir(directory) as files:
        for file in files:
            if file.name.endswith(suffix):
                # It may be deleted since.
                with suppress(FileNotFoundError):
                    found.append(file.stat().st_size)
    return found
