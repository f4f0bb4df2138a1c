"""Registrations are Apache's bytes, and a bookie that is alive is never reported as dead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from bookkeeper_metadata.bookies import (
    BookieRegistry,
    check_bookie_id,
    encode_service_info,
    parse_service_info,
)
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.endpoints import (
    BOOKIE_ENDPOINT,
    BOOKIE_RPC,
    GRPC,
    BookieServiceInfo,
    Endpoint,
)
from bookkeeper_metadata.errors import MetadataCorruptError, MetadataUnavailableError
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.operations import NodeExistsError, NoNodeError

ROOT = "/ledgers"
OURS = BookieServiceInfo(
    (
        Endpoint(BOOKIE_ENDPOINT, "10.0.0.1", 3181, GRPC, extensions=("tls",)),
        Endpoint("httpserver", "10.0.0.1", 8080, "http", auth=("token",)),
    ),
    {"rack": "r1"},
)


@pytest.fixture
async def store() -> MemoryStore:
    """Of an empty cluster."""
    store = MemoryStore()
    await initialize(store, ROOT, random=Random(0))
    return store


def test_a_registration_has_exactly_these_bytes() -> None:
    info = BookieServiceInfo((Endpoint("bookie", "h", 3181, "grpc"),), {"k": "v"})
    expected = "32 14 0a06626f6f6b6965 10ed18 1a0168 220467727063 3a 06 0a016b 120176"
    assert encode_service_info(info) == bytes.fromhex(expected)


def test_a_registration_comes_back_as_it_was() -> None:
    assert parse_service_info(encode_service_info(OURS), "b:1") == OURS


def test_the_bookies_own_endpoint_is_found_by_protocol() -> None:
    grpc = OURS.endpoint(GRPC)
    assert grpc is not None
    assert grpc.address == "10.0.0.1:3181"
    assert OURS.endpoint(BOOKIE_RPC) is None
    assert OURS.endpoint("http") is None


def test_an_empty_registration_has_its_id_as_address() -> None:
    endpoint = parse_service_info(b"", "bookie-1.example:3181").endpoint(BOOKIE_RPC)
    assert endpoint == Endpoint(BOOKIE_ENDPOINT, "bookie-1.example", 3181, BOOKIE_RPC)


@pytest.mark.parametrize(
    ("value", "bookie_id"),
    [
        (b"", "no-address"),
        (b"\xff", "b:1"),
        (b"\x32\x03\x0a\x01x", "b:1"),
        (encode_service_info(OURS).replace(b"10.0.0.1", b"10.0\xff0.1"), "b:1"),
        (b"", "b:65536"),
        (encode_service_info(BookieServiceInfo((Endpoint("b", "h", 65536, GRPC),))), "b:1"),
        (encode_service_info(BookieServiceInfo((Endpoint("b", "h", -1, GRPC),))), "b:1"),
    ],
)
def test_what_is_no_registration_is_refused(value: bytes, bookie_id: str) -> None:
    with pytest.raises(MetadataCorruptError):
        parse_service_info(value, bookie_id)


@pytest.mark.parametrize(
    ("bookie_id", "host", "port"),
    [
        ("h:1", "h", 1),
        ("::1:3181", "::1", 3181),
        ("h:65536", "h:65536", 0),
        ("h:" + "9" * 5_000, "h:" + "9" * 5_000, 0),
        ("h:٣", "h:٣", 0),
        ("bookie-1", "bookie-1", 0),
    ],
)
def test_an_id_that_may_be_an_address_is_taken_for_one(
    bookie_id: str, host: str, port: int
) -> None:
    """Ledgers' metadata name bookies, and anybody may have written it: a port of 5,000 digits ended the auditor."""
    assert Endpoint.of_id(bookie_id) == Endpoint(BOOKIE_ENDPOINT, host, port, GRPC)


@pytest.mark.parametrize("bookie_id", ["a", "host.example:3181", "10.0.0.1:1", "x_y-z"])
def test_a_node_may_be_called_that(bookie_id: str) -> None:
    assert check_bookie_id(bookie_id) == bookie_id


@pytest.mark.parametrize("bookie_id", ["", "readonly", "a/b", "a b", ".", "..", "ä", "a\n"])
def test_a_node_may_not_be_called_that(bookie_id: str) -> None:
    with pytest.raises(ValueError, match="not a bookie id"):
        check_bookie_id(bookie_id)


async def test_writable_and_read_only_bookies_are_listed_apart(store: MemoryStore) -> None:
    registry = BookieRegistry(store, ROOT)
    await registry.register("w:1", OURS)
    readonly = await registry.register("r:1", OURS, readonly=True)

    assert await registry.writable() == {"w:1": OURS}
    assert await registry.readonly() == {"r:1": OURS}

    await readonly.withdraw()
    assert await registry.readonly() == {}


async def test_an_id_in_use_and_a_missing_cluster_are_refused(store: MemoryStore) -> None:
    await BookieRegistry(MemoryStore(store.tree), ROOT).register("b:1", OURS)
    with pytest.raises(NodeExistsError):
        await BookieRegistry(store, ROOT).register("b:1", OURS)
    with pytest.raises(NoNodeError):
        await BookieRegistry(store, "/elsewhere").register("b:1", OURS)


async def test_a_bookie_that_cannot_be_understood_is_alive_without_an_endpoint(
    store: MemoryStore,
) -> None:
    await store.ephemeral(f"{ROOT}/available/b:1", b"\xff")
    assert await BookieRegistry(store, ROOT).writable() == {"b:1": BookieServiceInfo()}


async def test_of_a_watch_that_cannot_be_had_nothing_is_left(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of the two went on when the second was refused."""
    watched, ended = list[str](), list[str]()

    async def watch(path: str, _: object) -> Callable[[], None]:
        if watched:
            raise MetadataUnavailableError(store.service, "no reply")
        watched.append(path)
        return partial(ended.append, path)

    monkeypatch.setattr(store, "watch_children", watch)
    with pytest.raises(MetadataUnavailableError):
        await BookieRegistry(store, ROOT).watch(lambda writable, readonly: None)

    assert ended == watched


async def test_a_watch_reports_both_lists_now_and_after_every_change(store: MemoryStore) -> None:
    registry = BookieRegistry(store, ROOT)
    seen: list[tuple[set[str], set[str]]] = []
    stop = await registry.watch(lambda w, r: seen.append((set(w), set(r))))
    assert seen == [(set(), set())]
    await registry.register("w:1", OURS)
    await registry.register("r:1", OURS, readonly=True)
    await store.sync("/")
    assert seen[-1] == ({"w:1"}, {"r:1"})
    stop()
    await registry.register("w:2", OURS)
    await store.sync("/")
    assert seen[-1] == ({"w:1"}, {"r:1"})


@pytest.mark.parametrize("was_readonly", [False, True])
@pytest.mark.parametrize("read_count", [0, 1, 2])
async def test_a_bookie_that_changes_while_the_ids_are_listed_is_among_them(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, was_readonly: bool, read_count: int
) -> None:
    registry = BookieRegistry(store, ROOT)
    old = await registry.register("b:1", OURS, readonly=was_readonly)
    children, reads = store.children, 0

    async def move_behind_a_read(path: str) -> list[str] | None:
        nonlocal reads
        if reads == read_count:
            await registry.register("b:1", OURS, readonly=not was_readonly)
            await old.withdraw()
        reads += 1
        return await children(path)

    monkeypatch.setattr(store, "children", move_behind_a_read)

    assert await registry.list_registered_ids() == {"b:1"}
    assert reads > read_count
