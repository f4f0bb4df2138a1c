"""Recovery adds: entries that were read, sent again byte for byte to bookies that refuse a writer's.

Recoveries write back with them, and whoever copies entries to another bookie. The bookies may be fenced, and
refuse every add that is not marked as a recovery's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from bookie_server.wire.add_frames import encode_section, encode_section_header
from bookie_server.wire.digest import master_key
from bookie_server.wire.limits import RUN_ENTRIES_MAX
from bookie_server.wire.messages import EncodedSection
from bookie_server.wire.record import Run
from bookkeeper_metadata.model import LedgerMetadata


class RecoveryAdds:
    """Makes those of one ledger."""

    def __init__(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._ledger_id = ledger_id
        self._header = encode_section_header(
            ledger_id, master_key(metadata.password), metadata.digest_type, is_recovery=True
        )

    def section(self, runs: Sequence[Run]) -> EncodedSection:
        """The add of these records, which are in order."""
        data = encode_section(self._header, [run.data for run in runs])
        first, last = runs[0].first_entry, runs[-1].last_entry
        return EncodedSection(self._ledger_id, first, last, True, data)


def cut_to_size(runs: Sequence[Run], size_bytes_max: int) -> Iterator[list[Run]]:
    """The records of the runs, in order, in parts that fit a section: of so many bytes, a larger record alone, and no
    more of them than a bookie takes at once."""
    part: list[Run] = []
    left, places = size_bytes_max, RUN_ENTRIES_MAX
    for run in runs:
        start = 0
        while start < len(run):
            begin = run.offsets[start]
            is_rest = run.size_bytes - begin <= left
            stop = len(run) if is_rest else bisect_right(run.offsets, begin + left) - 1
            stop = min(stop, start + places)
            if stop > start or not part:
                stop = max(stop, start + 1)
                part.append(run.slice(start, stop))
                left -= run.end_of(stop - 1) - begin
                places -= stop - start
                start = stop
            if start < len(run):
                yield part
                part, left, places = [], size_bytes_max, RUN_ENTRIES_MAX
    if part:
        yield part
