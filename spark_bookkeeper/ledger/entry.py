"""Entry: what a reader gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bookie_server.wire.record import RECORD_OVERHEAD, Run, parse_header


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, verified. ``payload`` shares the bytes of the reply it came in."""

    ledger_id: int
    entry_id: int
    length: int
    """Payload bytes of the ledger up to and including this entry."""
    payload: memoryview


def entries_of(run: Run, digest_size: int) -> Iterator[Entry]:
    """The entries of a verified run, in order."""
    data = memoryview(run.data)
    for index, offset in enumerate(run.offsets):
        header = parse_header(data, offset)
        payload = data[offset + RECORD_OVERHEAD + digest_size : run.end_of(index)]
        yield Entry(header.ledger_id, header.entry_id, header.length, payload)
