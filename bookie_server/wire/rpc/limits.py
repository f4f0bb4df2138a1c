"""What a bookie takes of Apache's requests: what :mod:`bookie_server.wire.limits` allows of ours, in Apache's words.

Asked of every request before anything is done for it: the first add, fence or packet binds its ledger to a key for good.
"""

from __future__ import annotations

import struct

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookie_server.wire.limits import ENTRY_SIZE_MAX, LAC_PACKET_SIZE_MAX, LAC_PACKET_SIZE_MIN
from bookie_server.wire.record import HEADER_SIZE
from bookie_server.wire.rpc import messages
from bookie_server.wire.rpc.statuses import RpcStatus
from bookkeeper_metadata.model import NO_ENTRY_ID

_IDS = struct.Struct(">qq")


def refusal_for(request: messages.Request) -> RpcStatus | None:
    """Why a request is refused, whatever the bookie holds; ``None``: it may be served."""
    if isinstance(request, messages.GetInfo | messages.Authenticate | messages.StartTls):
        return None
    if request.ledger_id < 0:
        return RpcStatus.EBADREQ
    match request:
        case messages.AddEntry():
            return None if _is_possible(request) else RpcStatus.EBADREQ
        case messages.WriteLac():
            is_packet = LAC_PACKET_SIZE_MIN <= len(request.body) <= LAC_PACKET_SIZE_MAX
            return None if is_packet and _is_key(request.master_key) else RpcStatus.EBADREQ
        case messages.ReadEntry():
            return _refusal_of_read(request)
        case messages.BatchRead():
            if min(request.first_entry, request.count_max, request.size_bytes_max) < 0:
                return RpcStatus.EBADREQ
            return _refusal_of_fence(request)
        case messages.ReadLac() | messages.ForceLedger() | messages.ListEntries():
            return None


def _is_possible(add: messages.AddEntry) -> bool:
    """Whether it is an entry, and the one that it says it is: Apache's bookies store the entry that the body is."""
    ids = add.ledger_id, add.entry_id
    return (
        is_within_limits(*ids, len(add.body))
        and _is_key(add.master_key)
        and _IDS.unpack_from(add.body) == ids
    )


def is_within_limits(ledger_id: int, entry_id: int, size_bytes: int) -> bool:
    """Whether there may be an entry with these ids, and of this size."""
    # A negative entry id would be a record of a ledger's state in the journal.
    return HEADER_SIZE <= size_bytes <= ENTRY_SIZE_MAX and ledger_id >= 0 and entry_id >= 0


def _refusal_of_read(read: messages.ReadEntry) -> RpcStatus | None:
    if read.entry_id < NO_ENTRY_ID:
        return RpcStatus.EBADREQ
    if read.is_long_poll and (read.entry_id >= 0 or (read.previous_lac or 0) < NO_ENTRY_ID):
        return RpcStatus.EBADREQ
    return _refusal_of_fence(read)


def _refusal_of_fence(read: messages.ReadEntry | messages.BatchRead) -> RpcStatus | None:
    is_keyless = read.is_fencing and not _is_key(read.master_key or b"")
    return RpcStatus.EUA if is_keyless else None


def _is_key(master_key: Buffer) -> bool:
    return len(master_key) == MASTER_KEY_SIZE
