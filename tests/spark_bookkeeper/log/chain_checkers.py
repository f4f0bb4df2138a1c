"""What must hold of a log made of ledgers: LedgerChaining's C1-C3 and the log's own promises.

Each checker names what is broken; ``test_chain_checkers.py`` has a history for each that it must
refuse. Source: LedgerChaining.tla (Vanlightly/bookkeeper-tlaplus).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise


def c1_all_nonempty_listed(nonempty: Collection[int], listed: Collection[int]) -> Iterator[str]:
    """Every ledger a leader stored entries in is in the log."""
    for ledger_id in sorted(set(nonempty) - set(listed)):
        yield f"ledger {ledger_id} has entries and is not in the log"


def c2_listed_in_order(listed: Sequence[int]) -> Iterator[str]:
    """Leaders' ledgers are in the order they were written, which is the order of their ids."""
    for before, after in pairwise(listed):
        if before >= after:
            yield f"ledger {after} follows ledger {before}"


def c3_one_open(opened: Collection[str]) -> Iterator[str]:
    """A log has one open ledger at most."""
    if len(opened) > 1:
        yield f"ledgers {sorted(opened)} are open at once"


def acknowledged_in_place(
    acknowledged: Mapping[bytes, int], rows: Sequence[bytes]
) -> Iterator[str]:
    """What a writer was told is at the row it was told."""
    for payload, row in acknowledged.items():
        if not (0 <= row < len(rows) and rows[row] == payload):
            yield f"{payload!r} is not row {row}"


def nothing_twice(rows: Sequence[bytes]) -> Iterator[str]:
    """No row comes twice."""
    seen: set[bytes] = set()
    for payload in rows:
        if payload in seen:
            yield f"{payload!r} is there twice"
        seen.add(payload)


def writers_in_order(rows: Sequence[bytes]) -> Iterator[str]:
    """Each writer's rows (``name-number``) are in the order it appended them."""
    last: dict[bytes, int] = {}
    for payload in rows:
        name, number = payload.split(b"-")
        if int(number) < last.get(name, -1):
            yield f"{payload!r} follows number {last[name]} of the same writer"
        last[name] = int(number)
