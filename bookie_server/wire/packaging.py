"""Packaging: payloads become records, once for all replicas.

Every entry a client writes passes here, so what many of one size have in common is made in one step.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from bookie_server.wire.digest import Digest
from bookie_server.wire.record import (
    HEADER_SIZE,
    LENGTH_SIZE,
    RECORD_HEAD,
    RECORD_OVERHEAD,
    layout,
)

PARTS_PER_RECORD = 2
_FEW = 40
"""Records that it takes less to package one by one than to make a table of."""
_INT64_MAX = (1 << 63) - 1


def encode_records(
    digest: Digest,
    ledger_id: int,
    first_entry: int,
    payloads: Sequence[bytes],
    *,
    last_add_confirmed: int,
    length_before: int,
) -> list[bytes]:
    """Package consecutive payloads, as parts to join: length, header and digest, then the payload, …

    ``length_before`` is the ledger's cumulative length in front of ``first_entry``. ``PARTS_PER_RECORD`` parts
    a record, so a striping writer can pick the records of one bookie without copying twice.
    """
    sizes = set(map(len, payloads)) if len(payloads) > _FEW else ()
    end = max(first_entry + len(payloads), length_before + sum(sizes) * len(payloads))
    # Beyond that numpy would begin anew below zero, where ``struct`` refuses.
    if len(sizes) == 1 and end <= _INT64_MAX:
        return _encode_uniform(
            digest,
            ledger_id,
            first_entry,
            payloads,
            last_add_confirmed=last_add_confirmed,
            length_before=length_before,
        )
    parts: list[bytes] = []
    append, pack, compute = parts.append, RECORD_HEAD.pack, digest.compute
    overhead = HEADER_SIZE + digest.size
    entry_id, length = first_entry, length_before
    for payload in payloads:
        size = len(payload)
        length += size
        head = pack(overhead + size, ledger_id, entry_id, last_add_confirmed, length)
        append(head + compute(head[LENGTH_SIZE:], payload))
        append(payload)
        entry_id += 1
    return parts


def _encode_uniform(
    digest: Digest,
    ledger_id: int,
    first_entry: int,
    payloads: Sequence[bytes],
    *,
    last_add_confirmed: int,
    length_before: int,
) -> list[bytes]:
    """As above, of payloads that have one size."""
    size, count = len(payloads[0]), len(payloads)
    table = np.empty(count, layout(RECORD_OVERHEAD + digest.size))
    table["size"] = HEADER_SIZE + digest.size + size
    table["ledger"], table["lac"] = ledger_id, last_add_confirmed
    table["entry"] = np.arange(count) + first_entry
    table["length"] = np.arange(1, count + 1) * size + length_before
    digests = digest.compute_all(_header_of(digest.size).iter_unpack(table.data), payloads)
    if digest.size:
        table["rest"] = np.frombuffer(digests, table.dtype["rest"])
    heads = _whole(digest.size).iter_unpack(table.data)
    return [
        part for (head,), payload in zip(heads, payloads, strict=True) for part in (head, payload)
    ]


@lru_cache
def _header_of(digest_size: int) -> struct.Struct:
    return struct.Struct(f">{LENGTH_SIZE}x{HEADER_SIZE}s{digest_size}x")


@lru_cache
def _whole(digest_size: int) -> struct.Struct:
    return struct.Struct(f"{RECORD_OVERHEAD + digest_size}s")
