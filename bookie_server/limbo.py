"""Judging damage: which ledgers a bookie that may have lost records must not deny.

Any ledger with this bookie in one of its ensembles may have lost entries here, so its absences are
unknown (limbo). It may have lost a fence too, so it is fenced: a writer that still sends adds to us
must not get its ack quorum behind a recovery's back (BP-46) - not behind one that has ended, either,
for an add sent before may still be on its way. The metadata, not the damaged disk, says which ledgers
these are. Limbo ends when a ledger's entries have been checked against its other replicas, which is
not part of this version.
"""

from __future__ import annotations

import asyncio
import logging
from random import SystemRandom

from bookie_server.storage.engine import Storage
from bookie_server.storage.facts import LedgerFacts
from metadata.errors import NoSuchLedgerError
from metadata.ledgers import LedgerStore
from metadata.model import LedgerMetadata
from metadata.store import MetadataStore

_LOGGER = logging.getLogger(__name__)


def assumed(metadata: LedgerMetadata, bookie_id: str) -> LedgerFacts | None:
    """What a bookie that may have lost everything assumes of a ledger; ``None``: it is none of its."""
    if not any(bookie_id in fragment.ensemble for fragment in metadata.fragments):
        return None
    return LedgerFacts(is_limbo=True, is_fenced=True)


async def judge_damage(storage: Storage, store: MetadataStore, root: str, bookie_id: str) -> None:
    """Put every ledger that names this bookie in limbo, durably, before anything is answered.

    Raises:
        MetadataUnavailableError, MetadataCorruptError: the bookie must not start: what it may deny
            is not known.
    """
    ledgers = LedgerStore(store, root, random=SystemRandom())
    in_limbo = set(storage.ledgers)
    fenced = set(storage.ledgers)
    async for ledger_id in ledgers.list_ids():
        try:
            metadata = (await ledgers.read(ledger_id)).metadata
        except NoSuchLedgerError:
            continue  # deleted meanwhile: nobody asks for it any more
        facts = assumed(metadata, bookie_id)
        if facts is not None:
            in_limbo.update([ledger_id] * facts.is_limbo)
            fenced.update([ledger_id] * facts.is_fenced)
    storage.set_limbo(sorted(in_limbo), sorted(fenced))
    await asyncio.to_thread(storage.commit_facts)
    _LOGGER.warning("limbo after damage. ledgers=%d fenced=%d", len(in_limbo), len(fenced))
