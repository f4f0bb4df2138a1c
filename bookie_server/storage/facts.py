"""What a bookie knows of a ledger besides its entries, and which ledgers are deleted for ever."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from metadata.model import NO_ENTRY_ID

UNASSIGNED = -1
MASTER_KEY_SIZE_MAX = 0xFFFF
"""What the index's format can hold; requests are limited far below."""

_FACTS = struct.Struct(">BhhqHI")
_FENCED, _LIMBO, _KEYED, _HAS_LAC = 1, 2, 4, 8


@dataclass(slots=True)
class LedgerFacts:
    """One ledger's state on this bookie; changed on the loop thread only."""

    master_key: bytes | None = None
    """``None`` until an add or a fence bound one."""
    is_fenced: bool = False
    is_limbo: bool = False
    """Something of this ledger may have been lost: its absences and its last entry are unknown."""
    explicit_lac: bytes | None = None
    """The last explicit LAC packet as its client signed it."""
    last_add_confirmed: int = NO_ENTRY_ID
    """Highest LAC seen in entries and packets: a hint for readers."""
    journal_index: int = UNASSIGNED
    directory_index: int = UNASSIGNED
    """Where its entry logs are; assigned by its first checkpoint with entries."""


def encode_facts(facts: LedgerFacts) -> bytes:
    """The facts as an index delta carries them."""
    key, packet = facts.master_key, facts.explicit_lac
    flags = (
        _FENCED * facts.is_fenced
        | _LIMBO * facts.is_limbo
        | _KEYED * (key is not None)
        | _HAS_LAC * (packet is not None)
    )
    key, packet = key or b"", packet or b""
    lac = facts.last_add_confirmed
    head = _FACTS.pack(
        flags, facts.journal_index, facts.directory_index, lac, len(key), len(packet)
    )
    return head + key + packet


def decode_facts(content: bytes) -> LedgerFacts:
    """The inverse of ``encode_facts``.

    Raises:
        ValueError: the bytes are something else.
    """
    if len(content) < _FACTS.size:
        raise ValueError(f"facts of {len(content)} bytes")
    flags, journal, directory, lac, key_size, packet_size = _FACTS.unpack_from(content)
    if len(content) != _FACTS.size + key_size + packet_size or flags > 15:
        raise ValueError(f"facts of {len(content)} bytes; flags={flags}")
    key = content[_FACTS.size : _FACTS.size + key_size]
    packet = content[_FACTS.size + key_size :]
    return LedgerFacts(
        master_key=key if flags & _KEYED else None,
        is_fenced=bool(flags & _FENCED),
        is_limbo=bool(flags & _LIMBO),
        explicit_lac=packet if flags & _HAS_LAC else None,
        last_add_confirmed=lac,
        journal_index=journal,
        directory_index=directory,
    )


class LedgerRanges:
    """A set of ledger ids, kept as disjoint inclusive ranges; it only grows."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __contains__(self, ledger_id: int) -> bool:
        at = bisect_right(self._firsts, ledger_id) - 1
        return at >= 0 and ledger_id <= self._lasts[at]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._firsts, self._lasts, strict=True)))

    def add(self, first: int, last: int) -> None:
        """Add ``first..last``, merging what touches it."""
        start = bisect_right(self._lasts, first - 2)
        stop = bisect_right(self._firsts, last + 1)
        if start < stop:
            first = min(first, self._firsts[start])
            last = max(last, self._lasts[stop - 1])
        self._firsts[start:stop] = [first]
        self._lasts[start:stop] = [last]
