"""The one ledger every schedule is about."""

from __future__ import annotations

from bookie_server.wire.digest import DummyDigest
from bookkeeper_metadata.model import DigestType

LEDGER = 7
KEY = b"k" * 20
DIGEST = DummyDigest()
"""Checks nothing: what damage does is modelled, not computed."""
DIGEST_TYPE = DigestType.DUMMY
