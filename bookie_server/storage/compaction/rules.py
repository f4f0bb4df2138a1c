"""Which entry logs are rewritten: those of which little lives, and those of which there are many.

Pure. A checkpoint writes one log, however little it has to write; so without merging a ledger of one
entry a second would leave a log and a row for each checkpoint of its life. Logs of about the same size
are merged when there are several: so an entry is copied once for each step in size, not for each log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MERGED_BELOW_BYTES = 32 * 1024 * 1024
"""Logs with more than that are large enough."""
_SMALLEST_BYTES = 4096
_STEP_BYTES_MAX = 64 * 1024 * 1024
_STEP_BLOCKS_MAX = 10_000
_STEP_LOGS_MAX = 64
"""Bytes, blocks and logs copied at once, unless one log has more."""
_ROWS_BYTES = 160
_MOVED_LEDGERS_MAX = 100
_MOVED_ROWS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class LogShare:
    """An entry log, and how much of it lives."""

    log_id: int
    size_bytes: int
    """Of all its blocks."""
    live_bytes: int
    """Of those that rows name."""
    live_blocks: int = 1

    @property
    def copy_bytes(self) -> int:
        """What a copy takes of the disk: blocks, and for each a row in a footer and in the index."""
        return self.live_bytes + self.live_blocks * _ROWS_BYTES


def is_wasteful(logs: Sequence[LogShare], live_percent: int) -> bool:
    """Whether less than ``live_percent`` of all logs together lives.

    A ledger that stays among others that go keeps a part of each log, and no log need be nearly empty.
    """
    size_bytes = sum(log.size_bytes for log in logs)
    return sum(log.live_bytes for log in logs) * 100 < live_percent * size_bytes


def choose_logs(
    logs: Sequence[LogShare],
    live_percent: int,
    merge_count: int,
    room_bytes: int = 1 << 62,
) -> list[int]:
    """The logs to rewrite together next, ascending; empty when all are well as they are.

    Logs of which less than ``live_percent`` lives come first, the emptiest before the others; then
    ``merge_count`` and more logs of about the same size. What has no room is left out.
    """
    sparse = [log for log in logs if log.live_bytes * 100 < live_percent * log.size_bytes]
    sparse.sort(key=lambda log: log.live_bytes / log.size_bytes)
    if chosen := _as_many_as_fit(sparse, room_bytes):
        return chosen
    by_tier: dict[int, list[LogShare]] = defaultdict(list)
    for log in logs:
        if log.live_bytes < MERGED_BELOW_BYTES:
            by_tier[_tier(log.live_bytes)].append(log)
    for _, few in sorted(by_tier.items()):
        if len(few) < merge_count:
            continue
        chosen = _as_many_as_fit(sorted(few, key=lambda log: log.log_id), room_bytes)
        # One alone would become one just like it, again and again.
        if len(chosen) > 1:
            return chosen
    return []


def steps_of(row_counts: Sequence[int]) -> Iterator[slice]:
    """The ledgers whose rows are moved in one step of the event loop, by how many rows each has."""
    first = rows = 0
    for at, count in enumerate(row_counts):
        if at > first and (rows + count > _MOVED_ROWS_MAX or at - first == _MOVED_LEDGERS_MAX):
            yield slice(first, at)
            first, rows = at, 0
        rows += count
    if first < len(row_counts):
        yield slice(first, len(row_counts))


def _tier(live_bytes: int) -> int:
    """Grows by one when the bytes grow eightfold."""
    return (live_bytes // _SMALLEST_BYTES).bit_length() // 3


def _as_many_as_fit(logs: Sequence[LogShare], room_bytes: int) -> list[int]:
    chosen: list[int] = []
    size = blocks = 0
    for log in logs:
        is_full = (
            size + log.copy_bytes > _STEP_BYTES_MAX or blocks + log.live_blocks > _STEP_BLOCKS_MAX
        )
        if size + log.copy_bytes > room_bytes:
            continue
        if chosen and (is_full or len(chosen) == _STEP_LOGS_MAX):
            break
        chosen.append(log.log_id)
        size += log.copy_bytes
        blocks += log.live_blocks
    return sorted(chosen)
