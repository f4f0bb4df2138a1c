"""What a bookie takes of Apache's requests: nothing that would bind a ledger to what no client has, or keep what is no packet."""

from __future__ import annotations

import pytest

from bookie_server.wire.limits import ENTRY_SIZE_MAX, LAC_PACKET_SIZE_MAX, LAC_PACKET_SIZE_MIN
from bookie_server.wire.rpc import messages
from bookie_server.wire.rpc.limits import refusal_for
from bookie_server.wire.rpc.statuses import RpcStatus

KEY = bytes(20)
FENCE, POLL = messages.READ_FLAG_FENCE, messages.READ_FLAG_PIGGYBACK


def entry(ledger_id: int = 7, entry_id: int = 0, size: int = 36) -> bytes:
    ids = b"".join(each.to_bytes(8, signed=True) for each in (ledger_id, entry_id))
    return ids + bytes(size - len(ids))


def add(**how: object) -> messages.AddEntry:
    fields = {"ledger_id": 7, "entry_id": 0, "master_key": KEY, "body": entry(), **how}
    return messages.AddEntry(**fields)  # type: ignore[arg-type]


def packet(size: int, key: bytes = KEY) -> messages.WriteLac:
    return messages.WriteLac(7, 3, key, bytes(size))


FINE = [
    add(),
    add(body=entry(size=32)),
    add(body=entry(size=ENTRY_SIZE_MAX)),
    packet(LAC_PACKET_SIZE_MIN),
    packet(LAC_PACKET_SIZE_MAX),
    messages.ReadEntry(7, 0),
    messages.ReadEntry(7, -1),
    messages.ReadEntry(7, -1, KEY, flag=FENCE),
    messages.ReadEntry(7, -1, b"ignored"),
    messages.ReadEntry(7, -1, previous_lac=-1, timeout_ms=5, flag=POLL),
    messages.BatchRead(7, 0, 1, 0, 0),
    messages.BatchRead(7, 0, 1, 5, 5, KEY, is_fencing=True),
    messages.ReadLac(0),
    messages.ForceLedger(7),
    messages.ListEntries(7),
    messages.GetInfo(3),
    messages.StartTls(),
    messages.Authenticate(b"p", b""),
]
BAD = [
    add(body=entry(size=31)),
    add(body=entry(size=ENTRY_SIZE_MAX + 1)),
    add(body=entry(ledger_id=8)),
    add(body=entry(entry_id=1)),
    add(entry_id=-4096, body=entry(entry_id=-4096)),
    add(ledger_id=-1, body=entry(ledger_id=-1)),
    add(master_key=b""),
    add(master_key=bytes(21)),
    packet(LAC_PACKET_SIZE_MIN - 1),
    packet(LAC_PACKET_SIZE_MAX + 1),
    packet(5_000_000),
    packet(20, b"short"),
    messages.ReadEntry(-1, 0),
    messages.ReadEntry(7, -2),
    messages.ReadEntry(7, 4, previous_lac=1, flag=POLL),
    messages.ReadEntry(7, -1, previous_lac=-2, flag=POLL),
    messages.BatchRead(7, -1, 1, 5, 5),
    messages.BatchRead(7, 0, 1, -5, 5),
    messages.BatchRead(7, 0, 1, 5, -5),
    messages.ReadLac(-7),
    messages.ForceLedger(-7),
    messages.ListEntries(-7),
]
KEYLESS = [
    messages.ReadEntry(7, -1, flag=FENCE),
    messages.ReadEntry(7, 3, b"", flag=FENCE),
    messages.ReadEntry(7, 3, bytes(19), flag=FENCE),
    messages.BatchRead(7, 0, 1, 5, 5, bytes(21), is_fencing=True),
]


@pytest.mark.parametrize("request_", FINE, ids=repr)
def test_what_a_client_may_ask_is_served(request_: messages.Request) -> None:
    assert refusal_for(request_) is None


@pytest.mark.parametrize("request_", BAD, ids=lambda each: repr(each)[:80])
def test_what_breaks_a_limit_is_a_bad_request(request_: messages.Request) -> None:
    assert refusal_for(request_) is RpcStatus.EBADREQ


@pytest.mark.parametrize("request_", KEYLESS, ids=repr)
def test_a_fence_without_a_key_is_nobodys(request_: messages.Request) -> None:
    """Of a ledger that is unknown, too: it would be bound to that for good."""
    assert refusal_for(request_) is RpcStatus.EUA
