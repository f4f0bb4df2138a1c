"""What a bookie takes from a peer: one table, read by the checks and printed in docs/limits.md.

Every field of every request has a limit here, or a reason for having none. A request is checked whole
before anything is done for it. One that can be answered is BAD_REQUEST; bytes that are no request
end their call, or their stream, with INVALID_ARGUMENT. What limits say of one field is checked by
:func:`defect_of`; relations between fields, and what bounds work rather than values, stand here and
are checked where the table says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookkeeper_metadata.model import ENTRY_ID_MAX, NO_ENTRY_ID, DigestType

_MIB = 1024 * 1024
FRAME_SIZE_MAX = 8 * _MIB
"""Largest frame, and largest message that a client accepts."""
PIECE_SIZE_MAX = 576 * 1024
"""Largest message that a bookie accepts over gRPC, and so what an idle stream may cost it. A frame of a client's
usual 1 MiB is two; smaller ones cost more CPU, larger ones more memory (docs/performance.md)."""
PIECE_SIZE_MIN = PIECE_SIZE_MAX // 2
"""Least size of a piece that is not its frame's last."""
USUAL_SIZE_MAX = 1_088 * 1024
"""Largest frame that a socket brings without a promise: a client's usual 1 MiB with what is around its records."""
FRAME_SECTIONS_MAX = 1_024
"""Most sections of a frame: each costs about a kilobyte of memory, however small it is."""
HEADER_SIZE_MAX = 64 * 1024
"""Largest protobuf header in a frame, and largest request that is no frame."""
RUN_ENTRIES_MAX = 16_384
"""Most records of one section: each costs the event loop about a microsecond, whatever its size."""
ID_SPAN_MAX = 65_536
"""Most ids between the first and the last one of a section: each may be looked up."""
ENTRY_SIZE_MAX = 5 * _MIB - 500
"""Largest entry (header, digest and payload): Apache's frame limit less what it reserves."""
READ_SIZE_BYTES_MAX = 2 * _MIB
"""Most bytes of records in one reply; a first entry is always returned."""
WAIT_MS_MAX = 30_000
"""Longest wait of a long poll: a caller that vanished is forgotten by then."""
LIST_RANGES_MAX = 4_096
"""Most ranges in one reply to a request for the list of entries."""
REPLY_SIZE_MAX = 1024 * 1024
"""Largest message of a bookie, records aside, that a client reads: one of many small parts takes a hundred times its size."""
REPLY_PARTS_MAX = ID_SPAN_MAX
"""Most answers or ranges in one such message: each costs a client about a microsecond."""
ENSEMBLE_SIZE_MAX = 4_096
"""Most bookies of an ensemble that a read may speak of; far more than there are."""
LAC_PACKET_SIZE_MIN, LAC_PACKET_SIZE_MAX = 16, 36
"""An explicit LAC: two numbers and a digest, of which HMAC's is the largest with 20 bytes."""
_UINT32_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Limit:
    """The least and the greatest value of some fields; of ``bytes`` it is their number that counts."""

    name: str
    meaning: str
    minimum: int
    maximum: int
    fields: tuple[str, ...]
    """``Message.field``."""
    taken_for: int | None = None
    """A greater value is allowed, and taken for this one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit of another kind: of frames and records, or of how fields go together."""

    name: str
    meaning: str
    fields: tuple[str, ...]


LIMITS = (
    Limit(
        "ledger id",
        "Apache's ids have 64 bits and are never negative",
        0,
        ENTRY_ID_MAX,
        (
            "SectionHeader.ledger_id",
            "ReadRequest.ledger_id",
            "ReadLacRequest.ledger_id",
            "WriteLacRequest.ledger_id",
            "ListEntriesRequest.ledger_id",
        ),
    ),
    Limit(
        "entry id",
        "negative ones are records of a ledger's state, the journal's own",
        0,
        ENTRY_ID_MAX,
        ("ReadRequest.first_entry", "ReadRequest.last_entry", "ListEntriesRequest.first_entry"),
    ),
    Limit(
        "last add confirmed",
        "-1 stands for none",
        NO_ENTRY_ID,
        ENTRY_ID_MAX,
        ("LongPoll.previous_lac",),
    ),
    Limit(
        "master key",
        "a SHA-1; the first add, fence or packet binds it to the ledger for good",
        MASTER_KEY_SIZE,
        MASTER_KEY_SIZE,
        ("SectionHeader.master_key", "WriteLacRequest.master_key"),
    ),
    Limit(
        "master key of a read",
        "looked at only where the read fences, and then as above",
        0,
        MASTER_KEY_SIZE,
        ("ReadRequest.master_key", "ReadLacRequest.master_key"),
    ),
    Limit(
        "digest type",
        "one of the types named in bookie.proto that are a digest",
        min(kind.value for kind in DigestType),
        max(kind.value for kind in DigestType),
        ("SectionHeader.digest_type",),
    ),
    Limit(
        "explicit LAC packet",
        "two numbers and a digest",
        LAC_PACKET_SIZE_MIN,
        LAC_PACKET_SIZE_MAX,
        ("WriteLacRequest.packet",),
    ),
    Limit(
        "stripe",
        "ensemble and write quorum of a ledger",
        1,
        ENSEMBLE_SIZE_MAX,
        ("Stripe.ensemble_size", "Stripe.write_quorum"),
    ),
    Limit("place in a stripe", "the bookie's", 0, ENSEMBLE_SIZE_MAX - 1, ("Stripe.index",)),
    Limit(
        "bytes of a reply",
        "of records; one entry comes whatever its size, but a long poll's 0 is none",
        0,
        _UINT32_MAX,
        ("ReadRequest.size_bytes_max", "LongPoll.size_bytes_max"),
        taken_for=READ_SIZE_BYTES_MAX,
    ),
    Limit(
        "time of a long poll",
        "in milliseconds",
        0,
        _UINT32_MAX,
        ("LongPoll.timeout_ms",),
        taken_for=WAIT_MS_MAX,
    ),
    Limit(
        "ranges of a list",
        "0 says that the client cannot ask for the next page",
        0,
        _UINT32_MAX,
        ("ListEntriesRequest.ranges_max",),
        taken_for=LIST_RANGES_MAX,
    ),
)

RULES = (
    Rule(
        "frame",
        f"{FRAME_SIZE_MAX:,} bytes and {FRAME_SECTIONS_MAX:,} sections at most, whole ones to the last byte",
        ("frame",),
    ),
    Rule(
        "message to a bookie over gRPC",
        f"{PIECE_SIZE_MAX:,} bytes at most; a larger frame comes in pieces of {PIECE_SIZE_MIN:,} at least, "
        "the last one aside, that have the size announced by the first",
        ("frame",),
    ),
    Rule(
        "header and request",
        f"{HEADER_SIZE_MAX:,} bytes at most",
        ("SectionHeader", "every request that is no frame"),
    ),
    Rule(
        "records of a section",
        f"1 to {RUN_ENTRIES_MAX:,} whole ones with ascending ids of at least 0, no two of them "
        f"{ID_SPAN_MAX:,} apart, all of the header's ledger; an entry has at most {ENTRY_SIZE_MAX:,} bytes, and room for its digest",
        ("records",),
    ),
    Rule(
        "header of a record",
        "LAC of at least -1, and below the entry's own id except in recovery's adds; length of at "
        "least 0; a digest that matches, except HMAC, which only readers can check",
        ("records",),
    ),
    Rule(
        "range of a read",
        "not empty",
        ("ReadRequest.first_entry", "ReadRequest.last_entry"),
    ),
    Rule(
        "stripe of a read",
        "write_quorum ≤ ensemble_size, index < ensemble_size",
        ("Stripe.ensemble_size", "Stripe.write_quorum", "Stripe.index"),
    ),
    Rule(
        "fence",
        f"has a master key of {MASTER_KEY_SIZE} bytes",
        (
            "ReadRequest.is_fencing",
            "ReadRequest.master_key",
            "ReadLacRequest.is_fencing",
            "ReadLacRequest.master_key",
        ),
    ),
    Rule("long poll", "never fences", ("ReadLacRequest.long_poll", "ReadLacRequest.is_fencing")),
    Rule(
        "Apache's protocol",
        "the same, in frames of at most 5,242,880 bytes, their length included; an entry whose ids are not those of its request is "
        "refused; a fence without a master key is unauthorized",
        ("every request at `rpc_port`",),
    ),
    Rule(
        "explicit LAC packet",
        "is of the request's ledger; LAC of at least -1; a digest that matches, except HMAC",
        ("WriteLacRequest.packet",),
    ),
)

UNLIMITED: Mapping[str, str] = {
    "SectionHeader.is_recovery": "both values have a meaning",
    "ReadRequest.request_id": "echoed, and used for nothing else",
    "ReadRequest.is_fencing": "both values have a meaning",
    "ReadLacRequest.is_fencing": "both values have a meaning",
}
"""The fields without a limit of their own, and why."""


def _by_message() -> dict[str, list[tuple[str, Limit]]]:
    found: defaultdict[str, list[tuple[str, Limit]]] = defaultdict(list)
    for limit in LIMITS:
        for name in limit.fields:
            message, field = name.split(".")
            found[message].append((field, limit))
    return dict(found)


_CHECKS = _by_message()


def defect_of(name: str, message: object) -> str:
    """Which limit a message of the type ``name`` breaks by a field of its own; empty for none."""
    for field, limit in _CHECKS[name]:
        value = getattr(message, field)
        number = len(value) if isinstance(value, bytes) else value
        if not limit.minimum <= number <= limit.maximum:
            return f"{limit.name}: {field} of {number}, not {limit.minimum}..{limit.maximum}"
    return ""
