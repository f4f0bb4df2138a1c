"""The one ledger every schedule is about."""

from __future__ import annotations

from bookie_server.wire.digest import DummyDigest
from bookkeeper_metadata.model import DigestType, Fragment, LedgerMetadata

LEDGER = 7
KEY = b"k" * 20
DIGEST = DummyDigest()
"""Checks nothing: what damage does is modelled, not computed."""
DIGEST_TYPE = DigestType.DUMMY


def created(quorum: str) -> LedgerMetadata:
    """Of a ledger of that E/WQ/AQ at b0, b1, ..."""
    size, width, acks = map(int, quorum.split("/"))
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=width,
        ack_quorum=acks,
        fragments=(Fragment(0, tuple(f"b{i}" for i in range(size))),),
        digest_type=DIGEST_TYPE,
    )
