"""What a bookie does beside serving: it gives space back, and looks after what it holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from random import SystemRandom
from typing import Any

from bookie_server.bookie import Bookie
from bookie_server.client.connecting import connect_to
from bookie_server.collection.collector import Collector
from bookie_server.collection.counter import CollectionCounter
from bookie_server.collection.peers import Peers
from bookie_server.collection.surplus import SurplusDropper
from bookie_server.integrity.integrity_check import IntegrityCheck
from bookie_server.integrity.scrubber import Scrubber
from bookie_server.settings import BookieSettings
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.underreplication import Underreplication

Upkeep = Callable[[], Coroutine[Any, Any, None]]
"""Work that goes on beside serving; it never ends."""


def upkeep_of(
    bookie: Bookie,
    settings: BookieSettings,
    store: MetadataStore,
    root: str,
    *,
    counter: CollectionCounter | None,
) -> Mapping[str, Upkeep]:
    """By the names of their tasks. ``counter``: ``None`` for a bookie that writes nothing, and so keeps up nothing."""
    if counter is None:
        return {}
    ledgers = LedgerStore(store, root, random=SystemRandom())
    marks = Underreplication(store, root, random=SystemRandom())
    collector = Collector(bookie, counter, ledgers, interval_ms=settings.gc_interval_ms)
    pace = LoopPace(settings.scrub_bytes_per_second)
    integrity = IntegrityCheck(
        bookie,
        settings.bookie_id,
        ledgers,
        marks,
        interval_ms=settings.integrity_check_interval_ms,
        pace=pace,
        clock_ms=lambda: time.time_ns() // 1_000_000,
    )
    upkeep: dict[str, Upkeep] = {"collect-garbage": collector.run, "check-integrity": integrity.run}
    if settings.scrub_interval_ms:
        scrubber = Scrubber(
            bookie, interval_ms=settings.scrub_interval_ms, pace=pace, random=SystemRandom()
        )
        upkeep["scrub"] = scrubber.run
    if settings.surplus_check_interval_ms:
        connect = partial(connect_to, settings=settings.connection)
        peers = partial(Peers, BookieRegistry(store, root), connect)
        dropper = SurplusDropper(bookie, settings.bookie_id, ledgers, marks, peers)
        upkeep["drop-surplus"] = partial(
            dropper.run,
            interval_ms=settings.surplus_check_interval_ms,
            is_metadata_believed=lambda: collector.is_metadata_believed,
        )
    return upkeep
