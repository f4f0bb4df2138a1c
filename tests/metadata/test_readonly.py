"""What an operator wants of a bookie outlives it, and is forgotten with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.cookies import Cookie, CookieStore, RecordedIdentity
from bookkeeper_metadata.endpoints import BookieServiceInfo
from bookkeeper_metadata.errors import NoSuchCookieError
from bookkeeper_metadata.readonly import ReadonlyWishes
from bookkeeper_metadata.store.memory import MemoryStore
from tests.doubles.waits import until

ROOT = "/ledgers"
COOKIE = Cookie("b:1", ("/j",), ("/l",), None)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """Of a cluster that knows one bookie."""
    async with MemoryStore() as made:
        await initialize(made, ROOT, random=Random(0))
        await CookieStore(made, ROOT).write_cookie(COOKIE, RecordedIdentity())
        yield made


async def test_a_bookie_learns_of_each_change(store: MemoryStore) -> None:
    wishes, seen = ReadonlyWishes(store, ROOT), list[bool]()
    await wishes.watch("b:1", seen.append)

    await wishes.make("b:1")
    await wishes.make("b:1")
    await until(lambda: seen == [False, True])
    assert await wishes.is_made("b:1")

    assert await wishes.withdraw("b:1")
    await until(lambda: seen == [False, True, False])
    assert not await wishes.withdraw("b:1")


async def test_a_misspelt_bookie_is_an_error(store: MemoryStore) -> None:
    with pytest.raises(NoSuchCookieError):
        await ReadonlyWishes(store, ROOT).make("b:2")


async def test_a_bookie_without_a_cookie_that_runs_can_be_made_read_only(
    store: MemoryStore,
) -> None:
    await BookieRegistry(store, ROOT).register("old:1", BookieServiceInfo())

    await ReadonlyWishes(store, ROOT).make("old:1")

    assert await ReadonlyWishes(store, ROOT).is_made("old:1")


async def test_the_wish_is_forgotten_with_the_bookie(store: MemoryStore) -> None:
    """The next bookie of its id would take no entries, and nobody would know why."""
    wishes = ReadonlyWishes(store, ROOT)
    await wishes.make("b:1")

    await CookieStore(store, ROOT).delete("b:1")

    assert not await wishes.is_made("b:1")
