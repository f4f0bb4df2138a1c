"""Ids of a store that was restored from a backup are skipped, as many as it takes and no more."""

from __future__ import annotations

from random import Random

import pytest

from bookkeeper_metadata import ids as ids_module
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.ids import SKIPPED_MAX, LedgerIds
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import MemoryStore
from tests.metadata.samples import open_ledger

ROOT = "/ledgers"


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await initialize(store, ROOT)
    return store


@pytest.mark.parametrize("at_once", [7, 200, 10_000])
async def test_the_next_ledger_has_the_first_id_beyond_those_that_were_skipped(
    store: MemoryStore, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids_module, "_ROUND", at_once)
    ids, ledgers = LedgerIds(store, Paths(ROOT)), LedgerStore(store, ROOT, random=Random(1))

    skipped = await ids.skip_past(200)
    created = await ledgers.create(open_ledger())

    assert skipped == 201
    assert created[0] == 201
    assert await ids.pending() == []


async def test_ids_that_are_beyond_already_stay_where_they_are(store: MemoryStore) -> None:
    ids = LedgerIds(store, Paths(ROOT))
    await ids.skip_past(200)

    assert await ids.skip_past(100) == 1


async def test_a_number_that_can_only_be_a_mistake_is_refused(store: MemoryStore) -> None:
    with pytest.raises(ValueError, match="more than"):
        await LedgerIds(store, Paths(ROOT)).skip_past(SKIPPED_MAX + 1)
