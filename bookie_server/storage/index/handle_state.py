"""A ledger's handle state as an index delta carries it."""

from __future__ import annotations

import struct

from bookie_server.core.handle_state import LedgerHandleState

_HANDLE = struct.Struct(">BhhqHI")
_FENCED, _LIMBO, _KEYED, _HAS_LAC, _DROPPED = 1, 2, 4, 8, 16


MASTER_KEY_SIZE_MAX = 0xFFFF
"""What the index's format can hold; requests are limited far below."""


def encode_handle_state(handle: LedgerHandleState) -> bytes:
    """Encode a ledger's handle state for an index delta."""
    key, packet = handle.master_key, handle.explicit_lac
    # Flags beside the lengths: an empty key or packet is not the same as none.
    flags = (
        _FENCED * handle.is_fenced
        | _LIMBO * handle.is_limbo
        | _KEYED * (key is not None)
        | _HAS_LAC * (packet is not None)
        | _DROPPED * handle.is_dropped
    )
    key, packet = key or b"", packet or b""
    lac = handle.last_add_confirmed
    head = _HANDLE.pack(
        flags, handle.journal_index, handle.directory_index, lac, len(key), len(packet)
    )
    return head + key + packet


def decode_handle_state(content: bytes) -> LedgerHandleState:
    """The inverse of ``encode_handle_state``.

    Raises:
        ValueError: the bytes are something else.
    """
    if len(content) < _HANDLE.size:
        raise ValueError(f"handle state of {len(content)} bytes")
    flags, journal, directory, lac, key_size, packet_size = _HANDLE.unpack_from(content)
    if len(content) != _HANDLE.size + key_size + packet_size or flags > 31:
        raise ValueError(f"handle state of {len(content)} bytes; flags={flags}")
    key = content[_HANDLE.size : _HANDLE.size + key_size]
    packet = content[_HANDLE.size + key_size :]
    return LedgerHandleState(
        master_key=key if flags & _KEYED else None,
        is_fenced=bool(flags & _FENCED),
        is_limbo=bool(flags & _LIMBO),
        is_dropped=bool(flags & _DROPPED),
        explicit_lac=packet if flags & _HAS_LAC else None,
        last_add_confirmed=lac,
        journal_index=journal,
        directory_index=directory,
    )


def says_dropped(content: bytes) -> bool:
    """Whether an encoded state is of a ledger that was dropped, or left limbo without all of it: what logs that no row
    names hold of it is nobody's."""
    return bool(content[0] & _DROPPED)
