"""Same entries: which entries two runs have in common, and whether their copies are replicas.

A duplicate is held against what is pending and against what is stored by one rule.
"""

from __future__ import annotations

from bisect import bisect_left

from bookie_server.wire.digest import Crc32cDigest, Crc32Digest, HmacDigest, size_of
from bookie_server.wire.messages import Section
from bookie_server.wire.record import RECORD_OVERHEAD, Run, length_of, run_verifies


def digest_size_of(section: Section) -> int | None:
    """How much behind the headers of its entries need not be equal in a copy; ``None``: that is to be found out."""
    size = size_of(section.digest_type)
    # A writer sends the same bytes again, digest and all; only recovery packages entries anew.
    return 0 if size is None and not section.is_recovery else size


def same_entries(run: Run, stored: Run, digest_size: int | None) -> bool:
    """Whether the ids both hold have equal lengths and payloads.

    LAC and digest may differ: Apache's recovery packages an entry anew (docs/architecture.md). Where the size
    of the digest is not known, it is that of the first by which both verify; where neither verifies by any,
    whatever an HMAC would leave free is compared.
    """
    # What is sent again is mostly the same to the last byte.
    if run.entry_ids == stored.entry_ids and run.data == stored.data:
        return True
    for index, entry_id in enumerate(stored.entry_ids):
        at = _index_of(run, entry_id)
        if at is not None and not _is_same(run, at, stored, index, digest_size):
            return False
    return True


def conflicts_with_any(run: Run, others: list[Run], digest_size: int | None) -> bool:
    """Whether one of the others holds an id of ``run`` with another length or payload."""
    for other in others:
        common = other.between(run.first_entry, run.last_entry)
        if common is not None and not same_entries(run, common, digest_size):
            return True
    return False


def without_ids_of(run: Run, others: list[Run]) -> list[Run]:
    """The parts of ``run`` whose ids none of the others holds."""
    if not others:
        return [run]
    return run.without(
        lambda entry_id: any(_index_of(other, entry_id) is not None for other in others)
    )


def _is_same(run: Run, at: int, stored: Run, index: int, digest_size: int | None) -> bool:
    """Whether two records of an id have one cumulative length and one payload: then they are replicas."""
    begin, twin = run.offsets[at], stored.offsets[index]
    if length_of(run.data, begin) != length_of(stored.data, twin):
        return False
    if digest_size is None:
        digest_size = _digest_size_of(run.slice(at, at + 1), stored.slice(index, index + 1))
    skip = RECORD_OVERHEAD + digest_size
    payload = run.data[begin + skip : run.end_of(at)]
    return bool(payload == stored.data[twin + skip : stored.end_of(index)])


def _digest_size_of(record: Run, twin: Run) -> int:
    """How much of two copies of an entry may be a digest that need not be equal, as far as shows without a password."""
    if record.last_add_confirmed() == twin.last_add_confirmed():
        return 0  # nothing else of what it covers may differ
    for digest in (Crc32cDigest(), Crc32Digest()):
        found = [run_verifies(each, digest) for each in (record, twin)]
        if any(found):
            # One that does not verify by what the other does is damaged, and no copy of it.
            return digest.size if all(found) else 0
    return HmacDigest.size if record.size_bytes >= RECORD_OVERHEAD + HmacDigest.size else 0


def _index_of(run: Run, entry_id: int) -> int | None:
    """The place of an id in the run; ``None`` where the run does not hold it."""
    at = bisect_left(run.entry_ids, entry_id)
    return at if at < len(run.entry_ids) and run.entry_ids[at] == entry_id else None
