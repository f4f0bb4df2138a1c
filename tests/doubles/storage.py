"""Storage of a bookie without a cluster."""

from __future__ import annotations

from bookie_server.storage.engine import Storage


def answer_new(storage: Storage) -> Storage:
    """Say what the metadata would of a new bookie: no ledger names it, so nothing was lost."""
    if storage.recovery.is_new:
        storage.contents.set_limbo([], [])
        storage.checkpoint_now()
    return storage
