"""Explicit LACs: packets that a writer signed, of which a bookie keeps the one that proves most."""

from __future__ import annotations

from bookie_server.core.handle_state import LedgerHandleState


def lac_of_packet(packet: bytes) -> int:
    """The LAC that an explicit LAC packet claims, unverified; -1 if the packet is too short."""
    return int.from_bytes(packet[8:16], "big", signed=True) if len(packet) >= 16 else -1


def take_over(packet: bytes, handle: LedgerHandleState) -> None:
    """Keep a packet, unless the ledger's own claims more."""
    # Packets may arrive out of order: an older one must not replace a newer one's proof. With what entries claim
    # it is not compared: those may have been dropped since.
    lac = lac_of_packet(packet)
    if handle.explicit_lac is None or lac >= lac_of_packet(handle.explicit_lac):
        handle.explicit_lac = packet
    handle.last_add_confirmed = max(handle.last_add_confirmed, lac)
