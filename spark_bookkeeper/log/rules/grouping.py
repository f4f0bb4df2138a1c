"""Which neighbouring ranges of small ledgers are worth one large ledger.

Pure. A group is rewritten as a whole and dropped as a whole, so it is of one schema, never spans more
time than a fraction of the log's retention, and gains more than it copies: no range is more than half
of it. Ranges that were rewritten before grow together with others of their size only, so a byte is
copied about as often as its range doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bookkeeper_metadata.foundation.defects import raise_all
from spark_bookkeeper.log.format.model import LedgerRange, Retention

SPAN_OF_RETENTION = 10
"""A group spans at most this part of the retention's time, and of its size: whole ranges go, so its first
rows stay so much longer."""
RANGES_MAX = 10_000
"""Ranges of one group: bounds what one task reads metadata of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """When neighbouring ranges make a group."""

    target_bytes: int = 128 * 1024 * 1024
    """Payload bytes of a group at most; a range of this size is left alone. 128 MiB, what one task
    of a read gets."""
    ranges_min: int = 4
    """Fewer are not worth a ledger."""
    retention_ms: int | None = None
    """The log's retention by age, if it has one."""
    unreadable: frozenset[int] = frozenset()
    """Ledgers that could not be read: their ranges are left alone, and part their neighbours."""

    def __post_init__(self) -> None:
        found = []
        if self.target_bytes < 1:
            found.append("target_bytes must be at least 1")
        if self.ranges_min < 2:
            found.append("ranges_min must be at least 2")
        raise_all(found, self)

    def within(self, retention: Retention) -> GroupLimits:
        """These limits for a log of which some rows go by themselves."""
        target_bytes = self.target_bytes
        if retention.size_bytes is not None:
            target_bytes = max(1, min(target_bytes, retention.size_bytes // SPAN_OF_RETENTION))
        return replace(self, target_bytes=target_bytes, retention_ms=retention.time_ms)


def groups_of(ranges: Sequence[LedgerRange], limits: GroupLimits) -> list[tuple[LedgerRange, ...]]:
    """The groups among neighbouring ``ranges`` (of one chunk, or of the head), in row order."""
    groups: list[tuple[LedgerRange, ...]] = []
    run: list[LedgerRange] = []
    size_bytes = 0
    for item in ranges:
        if run and not _may_join(run, size_bytes, item, limits):
            groups += _worth_it(run, limits)
            run, size_bytes = [], 0
        if _is_small(item, limits):
            run.append(item)
            size_bytes += item.size_bytes
    return [*groups, *_worth_it(run, limits)]


def _is_small(item: LedgerRange, limits: GroupLimits) -> bool:
    return item.size_bytes < limits.target_bytes and item.ledger_id not in limits.unreadable


def _may_join(
    run: Sequence[LedgerRange], size_bytes: int, item: LedgerRange, limits: GroupLimits
) -> bool:
    first = run[0]
    span_ms = item.commit_ms - first.committed_since_ms
    retention_ms = limits.retention_ms
    return (
        _is_small(item, limits)
        and item.schema_id == first.schema_id
        and size_bytes + item.size_bytes <= limits.target_bytes
        and (retention_ms is None or span_ms * SPAN_OF_RETENTION <= retention_ms)
        and len(run) < RANGES_MAX
    )


def _worth_it(run: Sequence[LedgerRange], limits: GroupLimits) -> list[tuple[LedgerRange, ...]]:
    """The run as a group, or what is worth it on either side of the one that is too large in it."""
    if len(run) < limits.ranges_min:
        return []
    at = max(range(len(run)), key=lambda index: run[index].size_bytes)
    if 2 * run[at].size_bytes <= sum(item.size_bytes for item in run):
        return [tuple(run)]
    return [*_worth_it(run[:at], limits), *_worth_it(run[at + 1 :], limits)]
