"""Limbo after damage: which ledgers a bookie that may have lost records must not deny.

A bookie may have lost records in two ways: its files are damaged, or its directories are empty. In
the second case only the metadata can tell a new bookie from one whose disks were emptied.

Which ledgers are concerned is read from the metadata, not from the damaged disk: all that have this
bookie in one of their ensembles. Each of them is put in *limbo*:

* entries of it may be gone: for those that are missing the bookie answers UNKNOWN, never "no such
  entry";
* a fence may be gone, too. A writer that still sends adds must not reach its ack quorum here behind
  a recovery's back (BP-46), so they are refused, closed ledgers' included: an add sent before the
  end may still be on its way. The writer is told LIMBO and loses a bookie; FENCED, which would end
  it, is said only where somebody asked for a fence.

How limbo ends is in :mod:`bookie_server.integrity.integrity_check`.
"""

from __future__ import annotations

import asyncio
import logging
from random import SystemRandom

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.engine import Storage
from bookie_server.wire.digest import master_key
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.errors import MetadataCorruptError, NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.interface import MetadataStore

_LOGGER = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.1
_UNREGISTERED_AFTER_S = 60.0
"""Longest wait for the session of a killed predecessor to end; far beyond every session timeout here."""
READS_IN_FLIGHT_MAX = 64
"""Ledgers whose metadata is read at once: a start among a million ledgers takes minutes, not hours."""


def state_after_loss(metadata: LedgerMetadata, bookie_id: str) -> LedgerHandleState | None:
    """The state a bookie that may have lost records gives a ledger; ``None`` if it never stored it."""
    if bookie_id not in metadata.bookie_ids:
        return None
    return LedgerHandleState(is_limbo=True)


async def wait_until_unregistered(store: MetadataStore, root: str, bookie_id: str) -> None:
    """Wait until no process is registered under this id, as a killed one is until its session ends.

    Until then writers may choose this id for ledgers that are created behind our look at the metadata.

    Raises:
        StorageRefusedError: a process stays registered.
    """
    registry = BookieRegistry(store, root)
    for attempt in range(round(_UNREGISTERED_AFTER_S / _LOOK_AGAIN_S)):
        if not await registry.is_registered(bookie_id):
            return
        if not attempt:
            _LOGGER.info(
                "waiting until the earlier registration expires. bookie_id=%s up_to_s=%d",
                bookie_id,
                _UNREGISTERED_AFTER_S,
            )
        await asyncio.sleep(_LOOK_AGAIN_S)
    raise StorageRefusedError(
        Paths(root).bookie(bookie_id), "another live process is registered under this bookie id"
    )


async def put_ledgers_in_limbo(
    storage: Storage, store: MetadataStore, root: str, bookie_id: str
) -> None:
    """Put every ledger that names this bookie in limbo, durably, before anything is answered.

    A ledger whose metadata cannot be understood may name it too. The session is synced first: a ledger
    created a moment ago must not be missed by a lagging follower.

    Raises:
        MetadataUnavailableError: the bookie must not start, since it does not know which entries it
            may deny.
    """
    await store.sync(root)
    ledgers = LedgerStore(store, root, random=SystemRandom())
    # Whatever is stored here, too: the metadata need not name it, as when a
    # recovery that has not closed the ledger yet chose this bookie.
    contents = storage.contents
    in_limbo = set(contents.ledgers)

    async def add_if_ours(ledger_id: int) -> None:
        try:
            metadata = (await ledgers.read(ledger_id)).metadata
        except NoSuchLedgerError:
            return  # deleted meanwhile: no client reads it any more
        except MetadataCorruptError as corrupt:
            # It may name us. Limbo denies nothing and accepts nothing, of a ledger that nobody can
            # read or write as it is; a refusal to start would let one bad node stop every bookie.
            _LOGGER.error(
                "unreadable metadata, the ledger is in limbo here. ledger_id=%d detail=%s",
                ledger_id,
                corrupt,
            )
            in_limbo.add(ledger_id)
            return
        if state_after_loss(metadata, bookie_id) is not None:
            in_limbo.add(ledger_id)
        if ledger_id in in_limbo:
            contents.bind_key(ledger_id, master_key(metadata.password))

    # A ledger created after this has lost nothing here: the bookie answers nobody yet.
    listed = [ledger_id async for ledger_id in ledgers.list_ids()]
    await each(add_if_ours, listed, concurrency_max=READS_IN_FLIGHT_MAX)
    is_new = storage.recovery.is_new and not in_limbo
    contents.set_limbo(sorted(in_limbo))
    # On disk before the first answer: a crash would otherwise bring the bookie back without it.
    await asyncio.to_thread(storage.checkpoint_now)
    if is_new:
        _LOGGER.info("new bookie: no ledger names it. ledgers_asked=%d", len(listed))
    else:
        _LOGGER.warning("limbo after damage. ledgers=%d", len(in_limbo))
