"""What exactly-once means, as judges of what a log shows (invariants X1, X2, X3 and X5).

Pure: each takes what was seen and raises :class:`ViolationError` with the first thing that must
never be. Their own tests show each of them a history it has to refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

SHOWN_MAX = 5
"""Offending rows named in a violation."""


class ViolationError(AssertionError):
    """Something happened that must never happen."""


@dataclass(frozen=True, slots=True)
class Block:
    """One range of a log, and which micro-batch its ledger says it is of."""

    query_id: str
    batch_id: int
    ledger_id: int
    commit_ms: int
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class Row:
    """One visible row."""

    position: int
    ledger_id: int
    value: int


def check_batches_once(blocks: Sequence[Block]) -> None:
    """X1: the ranges of a (query, batch) are one commit's and stand together; no ledger twice."""
    twice = [ledger for ledger, times in Counter(b.ledger_id for b in blocks).items() if times > 1]
    if twice:
        raise ViolationError(f"ledgers visible twice: {twice[:SHOWN_MAX]}")
    met: set[tuple[str, int]] = set()
    for batch, ranges in groupby(blocks, lambda block: (block.query_id, block.batch_id)):
        if batch in met:
            raise ViolationError(f"batch visible twice: {batch}")
        met.add(batch)
        commits = {block.commit_ms for block in ranges}
        if len(commits) > 1:
            raise ViolationError(f"batch committed twice: {batch} at {sorted(commits)}")


def check_batches_ascend(blocks: Sequence[Block]) -> None:
    """The batches of a query are in the log in their order."""
    last: dict[str, int] = {}
    for block in blocks:
        if block.batch_id < last.get(block.query_id, -1):
            raise ViolationError(f"batch {block.batch_id} after {last[block.query_id]}")
        last[block.query_id] = block.batch_id


def check_rows(seen: Iterable[int], expected: Iterable[int]) -> None:
    """X2: the visible rows are the source's, as a multiset."""
    found, wanted = Counter(seen), Counter(expected)
    if found != wanted:
        extra, missing = sorted((found - wanted).elements()), sorted((wanted - found).elements())
        raise ViolationError(
            f"{len(extra)} rows too many, first {extra[:SHOWN_MAX]}; "
            f"{len(missing)} missing, first {missing[:SHOWN_MAX]}"
        )


def check_whole_batches(seen: Iterable[int], batches: Sequence[Collection[int]]) -> int:
    """X3, at any moment: the rows are those of the first n batches, none in part; returns n."""
    found = Counter(seen)
    wanted: Counter[int] = Counter()
    for count, batch in enumerate([(), *batches]):
        wanted.update(batch)
        if wanted == found:
            return count
    raise ViolationError(f"{found.total()} rows are no whole number of batches")


def check_no_hole(rows: Sequence[Row]) -> None:
    """Positions follow each other."""
    for before, after in pairwise(rows):
        if after.position != before.position + 1:
            raise ViolationError(f"position {after.position} follows {before.position}")


def check_order(rows: Sequence[Row]) -> None:
    """Each ledger's rows ascend as its partition's source did."""
    for before, after in pairwise(rows):
        if after.ledger_id == before.ledger_id and after.value <= before.value:
            raise ViolationError(f"row {after.value} stands behind {before.value}")


def check_only_grows(before: Sequence[Block], after: Sequence[Block]) -> None:
    """X3, over time: what was visible stays, as it was and where it was."""
    if list(after[: len(before)]) != list(before):
        raise ViolationError(f"{len(before)} visible ranges changed: {after[: len(before)]}")


def check_nothing_orphaned(
    *, ledgers: Collection[int], named: Collection[int], nodes: Collection[str]
) -> None:
    """X5: after quiescence and a collection every ledger is named, no bookkeeping node is left."""
    orphans = sorted(set(ledgers) - set(named))
    if orphans:
        raise ViolationError(f"orphan ledgers: {orphans[:SHOWN_MAX]}")
    lost = sorted(set(named) - set(ledgers))
    if lost:
        raise ViolationError(f"ledgers named and gone: {lost[:SHOWN_MAX]}")
    if nodes:
        raise ViolationError(f"nodes left: {sorted(nodes)[:SHOWN_MAX]}")
