"""BookieExposition: what a scrape of a bookie shows. It runs beside the event loop and looks at single values only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bookie_server.bookie import Bookie
from bookie_server.core.space import Mode
from bookie_server.settings import BookieSettings
from bookie_server.storage.journal.journal import SUFFIX as JOURNAL_SUFFIX
from bookie_server.storage.logs.entry_log import SUFFIX as LOG_SUFFIX
from bookie_server.wire.messages import BookieInfo
from bookkeeper_metadata.foundation.families import (
    apache_counter,
    apache_counters,
    counter,
    durations,
    gauge,
    gauges,
    operation,
)


class BookieExposition(Collector):
    """Of one bookie."""

    def __init__(
        self,
        bookie: Bookie,
        identity: BookieInfo,
        settings: BookieSettings,
        is_registered: Callable[[], bool],
    ) -> None:
        self._bookie = bookie
        self._identity = identity
        self._settings = settings
        self._is_registered = is_registered

    def collect(self) -> Iterator[Metric]:
        """All families. Disks are asked: one that does not answer keeps this, and nobody else, waiting."""
        identity = self._identity
        labels = {
            "bookie_id": identity.bookie_id,
            "instance_id": identity.instance_id,
            "version": identity.version,
        }
        yield gauges("bookie_info", "Which bookie this is", [(labels, 1)])
        yield gauge(
            "bookkeeper_server_SERVER_STATUS",
            "1 takes entries, 0 is read-only, -1 is not registered",
            self._status(),
        )
        yield from self._requests()
        yield from self._journals()
        yield from self._storage()
        yield from self._files()

    def _status(self) -> int:
        if not self._is_registered():
            return -1
        return int(self._bookie.space.mode is Mode.WRITABLE)

    def _requests(self) -> Iterator[Metric]:
        bookie, measures = self._bookie, self._bookie.measures
        yield from operation("bookkeeper_server_ADD_ENTRY", "Sections of adds", measures.adds)
        yield from operation("bookkeeper_server_READ_ENTRY", "Reads of ranges", measures.reads)
        yield from operation("bookkeeper_server_READ_LAC", "Reads of the LAC", measures.lac_reads)
        yield apache_counter(
            "bookie_WRITE_BYTES", "Payload bytes acknowledged", measures.added_bytes
        )
        yield counter("bookie_write_entries", "Entries acknowledged", measures.added_entries)
        yield apache_counter("bookie_READ_BYTES", "Record bytes sent", measures.read_bytes)
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
            "Adds and fences that are not durable yet",
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
        yield counter("bookie_deleted_entry_logs", "Entry logs deleted", measures.deleted_logs)
        yield counter("bookie_compacted_bytes", "Copied to new logs", measures.compacted_bytes)

    def _files(self) -> Iterator[Metric]:
        settings = self._settings
        for name, suffix, directories in (
            ("journal", JOURNAL_SUFFIX, settings.journal_directories),
            ("entry_log", LOG_SUFFIX, settings.ledger_directories),
        ):
            sizes = [_sizes(directory, suffix) for directory in directories]
            held = list(zip(directories, sizes, strict=True))
            yield gauges(
                f"bookie_{name}_files",
                "Files",
                [({"directory": directory}, len(found)) for directory, found in held],
            )
            yield gauges(
                f"bookie_{name}_bytes",
                "Bytes of these files",
                [({"directory": directory}, sum(found)) for directory, found in held],
            )
        disks = []
        for directory in (*settings.journal_directories, *settings.ledger_directories):
            disk = os.statvfs(directory)
            unit = disk.f_frsize
            disks.append((directory, disk.f_blocks * unit, disk.f_bavail * unit))
        yield gauges(
            "bookie_disk_total_bytes",
            "Size of the file system",
            [({"directory": directory}, total) for directory, total, _ in disks],
        )
        yield gauges(
            "bookie_disk_free_bytes",
            "Free bytes there",
            [({"directory": directory}, free) for directory, _, free in disks],
        )


def _sizes(directory: str, suffix: str) -> list[int]:
    found = []
    with os.scandir(directory) as files:
        for file in files:
            if file.name.endswith(suffix):
                try:
                    found.append(file.stat().st_size)
                except FileNotFoundError:  # deleted since
                    continue
    return found
