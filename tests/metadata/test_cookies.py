"""Cookies are Apache's text, and tell which bookies ever were and how often they started."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.cookies import (
    Cookie,
    CookieStore,
    StartCounter,
    encode_cookie,
    encode_counter,
    parse_cookie,
    parse_counter,
)
from bookkeeper_metadata.endpoints import BookieServiceInfo
from bookkeeper_metadata.errors import (
    BookieRunningError,
    ClusterNotInitializedError,
    MetadataCorruptError,
    NoSuchCookieError,
)
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.operations import BadVersionError, NodeExistsError
from tests.doubles.stores import LaggingStore

ROOT = "/ledgers"
GARBAGE = b"\xffnot one of ours"
OURS = Cookie("10.0.0.1:3181", ("/j0", "/j1"), ("/l0", "/l1"), "d2c6a1e0")
APACHE = (
    b'5\nbookieHost: "10.0.0.1:3181"\njournalDir: "/j0,/j1"\nledgerDirs: "2\\t/l0\\t/l1"\n'
    b'instanceId: "d2c6a1e0"\n'
)
"""As Apache's ``Cookie.toString`` writes it."""


async def made() -> MemoryStore:
    store = MemoryStore()
    await initialize(store, ROOT, random=Random(0))
    return store


def test_a_cookie_is_apaches_text() -> None:
    assert encode_cookie(OURS) == APACHE
    assert parse_cookie(APACHE, "/x") == OURS


@pytest.mark.conformance("S5")
def test_apaches_own_cookies_are_read() -> None:
    """With index directories, of layout 4, and with a tab behind the last directory."""
    with_indexes = APACHE + b'indexDirs: "1\\t/i"\n'
    with_more = APACHE + b"ofTheFuture: 1\n"
    older = APACHE.replace(b"5\n", b"4\n", 1).replace(b'/l1"', b'/l1\\t"')

    for text in (with_indexes, with_more, older):
        assert parse_cookie(text, "/x") == OURS


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"3\nold\n",
        b"5\n",
        b"5\nbookieHost: 7\n",
        b"\xff\xfe",
        APACHE.replace(b"2\\t", b"3\\t"),
    ],
)
def test_what_is_no_cookie_is_refused_with_its_path(value: bytes) -> None:
    with pytest.raises(MetadataCorruptError, match="path=/cookies/b"):
        parse_cookie(value, "/cookies/b")


@pytest.mark.parametrize(
    "counter", [StartCounter(1, "a"), StartCounter(2**40, "b", is_metadata_older=True)]
)
def test_a_start_counter_survives_its_encoding(counter: StartCounter) -> None:
    assert parse_counter(encode_counter(counter), "/x") == counter


@pytest.mark.parametrize(
    "value", [b"", b"7", b"{}", b'{"starts": -1}', b'{"starts": "1"}', b"\xff"]
)
def test_what_is_no_start_counter_is_refused_with_its_path(value: bytes) -> None:
    with pytest.raises(MetadataCorruptError, match="path=/x"):
        parse_counter(value, "/x")


async def test_a_bookie_is_known_from_its_first_count_on_and_listed_once_it_has_a_cookie() -> None:
    cookies = CookieStore(await made(), ROOT)
    unknown = await cookies.read(OURS.bookie_id)
    assert not unknown.is_known

    await cookies.count_start(OURS.bookie_id, StartCounter(1), unknown)
    assert (await cookies.read(OURS.bookie_id)).is_known
    assert await cookies.bookie_ids() == []

    await cookies.write_cookie(OURS, unknown)
    recorded = await cookies.read(OURS.bookie_id)
    assert (recorded.cookie, recorded.counter) == (OURS, StartCounter(1))
    assert await cookies.bookie_ids() == [OURS.bookie_id]


async def test_a_cookie_is_written_again_only_when_it_changes() -> None:
    cookies = CookieStore(await made(), ROOT)
    await cookies.write_cookie(OURS, await cookies.read(OURS.bookie_id))
    recorded = await cookies.read(OURS.bookie_id)

    await cookies.write_cookie(OURS, recorded)
    assert (await cookies.read(OURS.bookie_id)).cookie_version == recorded.cookie_version
    await cookies.write_cookie(replace(OURS, journal_directories=("/elsewhere",)), recorded)
    assert (await cookies.read(OURS.bookie_id)).cookie_version == recorded.cookie_version + 1


async def test_of_two_that_start_at_once_one_counts() -> None:
    cookies = CookieStore(await made(), ROOT)
    for starts, conflict in ((1, NodeExistsError), (2, BadVersionError)):
        recorded = await cookies.read(OURS.bookie_id)
        await cookies.count_start(OURS.bookie_id, StartCounter(starts), recorded)
        with pytest.raises(conflict):
            await cookies.count_start(OURS.bookie_id, StartCounter(starts), recorded)


async def test_a_lagging_session_knows_of_a_cookie_all_the_same() -> None:
    store = await made()
    cookies = CookieStore(store, ROOT)
    await cookies.write_cookie(OURS, await cookies.read(OURS.bookie_id))

    lagging = [CookieStore(LaggingStore(store.tree, "cookies"), ROOT) for _ in range(2)]

    assert (await lagging[0].read(OURS.bookie_id)).is_known
    assert await lagging[1].bookie_ids() == [OURS.bookie_id]


async def test_a_bookie_is_forgotten_only_when_it_is_gone() -> None:
    store = await made()
    cookies = CookieStore(store, ROOT)
    recorded = await cookies.read(OURS.bookie_id)
    with pytest.raises(NoSuchCookieError):
        await cookies.delete(OURS.bookie_id)
    await cookies.write_cookie(OURS, recorded)
    await cookies.count_start(OURS.bookie_id, StartCounter(4), recorded)
    registration = await BookieRegistry(store, ROOT).register(OURS.bookie_id, BookieServiceInfo())

    with pytest.raises(BookieRunningError):
        await cookies.delete(OURS.bookie_id)
    await registration.withdraw()
    await cookies.delete(OURS.bookie_id)

    found = await cookies.read(OURS.bookie_id)
    assert not found.is_known
    # The count goes on: the old disks stay old.
    assert found.counter == StartCounter(5, is_forgotten=True)


async def test_accepting_older_metadata_keeps_the_count_and_whose_it_is() -> None:
    """With another start's id, or none, the bookie's own disks would be old ones at its next start."""
    cookies = CookieStore(await made(), ROOT)
    with pytest.raises(NoSuchCookieError):
        await cookies.accept_metadata(OURS.bookie_id)
    counter = StartCounter(9, "5d1c", is_metadata_older=True)
    await cookies.count_start(OURS.bookie_id, counter, await cookies.read(OURS.bookie_id))

    assert await cookies.accept_metadata(OURS.bookie_id)
    assert not await cookies.accept_metadata(OURS.bookie_id), "nothing is left to accept"

    assert (await cookies.read(OURS.bookie_id)).counter == StartCounter(9, "5d1c")


async def test_cookies_of_no_cluster_are_an_error() -> None:
    with pytest.raises(ClusterNotInitializedError):
        await CookieStore(MemoryStore(), ROOT).bookie_ids()


@pytest.mark.parametrize("damaged", [("cookie",), ("start_counter",), ("cookie", "start_counter")])
async def test_what_cannot_be_read_can_be_forgotten(damaged: tuple[str, ...]) -> None:
    """One node that was not understood kept its bookie from starting and from being forgotten."""
    store = await made()
    cookies = CookieStore(store, ROOT)
    await cookies.write_cookie(OURS, await cookies.read(OURS.bookie_id))
    counter = StartCounter(7, "seventh")
    await cookies.count_start(OURS.bookie_id, counter, await cookies.read(OURS.bookie_id))
    for name in damaged:
        await store.put(getattr(Paths(ROOT), name)(OURS.bookie_id), GARBAGE, 0)
    with pytest.raises(MetadataCorruptError):
        await cookies.read(OURS.bookie_id)

    await cookies.delete(OURS.bookie_id)

    recorded = await cookies.read(OURS.bookie_id)
    assert not recorded.is_known
    assert recorded.counter is not None
    # Whatever the disks have counted, they are old.
    assert (recorded.counter.starts > 10**9) == ("start_counter" in damaged)
    assert recorded.counter.starts > counter.starts
    assert await cookies.bookie_ids() == []
    with pytest.raises(NoSuchCookieError):
        await cookies.delete(OURS.bookie_id)
