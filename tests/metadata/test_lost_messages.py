"""Lost messages on the way to a real ZooKeeper: unknown to the store, resolved by those above it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from bookkeeper_metadata.cluster import initialize, instance_id
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata, Stop, Versioned
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.memory import Fault
from bookkeeper_metadata.store.operations import Create, Delete, Put
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.conformance.metadata_store import content, is_owner
from tests.metadata.samples import open_ledger
from tests.metadata.zookeeper_relay import Interceptor, Relay, Request, Sent

pytestmark = [
    pytest.mark.zookeeper,
    pytest.mark.slow,
    pytest.mark.parametrize("fault", list(Fault)),
]

_roots = itertools.count()


class LossyProxy(Interceptor):
    """Loses one message and its connection; :meth:`lose` arms it for the next of one type."""

    def __init__(self, port: int) -> None:
        self.relay = Relay(port, self)
        self._armed: tuple[Request, Fault] | None = None
        self._doomed: Sent | None = None
        self.losses = 0

    def lose(self, request: Request, fault: Fault) -> None:
        """Lose the next message of this type on its way there or back."""
        self._armed = (request, fault)

    async def request(self, sent: Sent) -> bool:
        if self._armed is None or sent.kind != self._armed[0]:
            return True
        fault = self._armed[1]
        self._armed = None
        self.losses += 1
        if fault is Fault.LOST_REPLY:
            self._doomed = sent
        return fault is Fault.LOST_REPLY

    async def reply(self, sent: Sent) -> bool:
        return sent is not self._doomed


@pytest.fixture
def root() -> str:
    return f"/lost/{next(_roots)}/ledgers"


@pytest.fixture
async def proxy(zookeeper: ZooKeeperProcess) -> AsyncIterator[LossyProxy]:
    proxy = LossyProxy(zookeeper.port)
    yield proxy
    await proxy.relay.stop()


@pytest.fixture
async def store(proxy: LossyProxy, root: str) -> AsyncIterator[MetadataStore]:
    """A session through the proxy, over the empty folder that ``root`` is to lie in."""
    service = f"127.0.0.1:{await proxy.relay.start()}"
    store = await ZooKeeperStore.connect([service], session_timeout_ms=4_000)
    await store.create(root.rpartition("/")[0], b"", make_parents=True)
    yield store
    await store.close()
    assert proxy.losses > 0, "nothing was lost, so nothing was tested"


@pytest.mark.parametrize("request_type", [each for each in Request if each != Request.CHECK])
async def test_the_store_reports_unknown_and_reads_back_what_became_of_it(
    proxy: LossyProxy, store: MetadataStore, root: str, fault: Fault, request_type: Request
) -> None:
    for name in ("put", "delete"):
        await store.create(f"{root}/{name}", b"0", make_parents=True)
    changes: dict[Request, Callable[[], Awaitable[object]]] = {
        Request.CREATE: lambda: store.create(f"{root}/new", b""),
        Request.DELETE: lambda: store.delete(f"{root}/delete", 0),
        Request.SET_DATA: lambda: store.put(f"{root}/put", b"1", 0),
        Request.MULTI: lambda: store.multi(
            [Create(f"{root}/new", b""), Delete(f"{root}/delete", 0), Put(f"{root}/put", b"1", 0)]
        ),
    }

    proxy.lose(request_type, fault)
    with pytest.raises(MetadataUnavailableError):
        await changes[request_type]()

    names = await store.children(root) or []
    put = await content(store, f"{root}/put")
    was_applied = {
        Request.CREATE: "new" in names,
        Request.DELETE: "delete" not in names,
        Request.SET_DATA: put == (b"1", 1),
        Request.MULTI: names == ["new", "put"] and put == (b"1", 1),
    }
    assert was_applied[request_type] == (fault is Fault.LOST_REPLY)


@pytest.mark.parametrize("accompanied", [False, True])
async def test_a_ledger_is_created_changed_and_deleted_exactly_once(
    proxy: LossyProxy, store: MetadataStore, root: str, fault: Fault, accompanied: bool
) -> None:
    proxy.lose(Request.MULTI, fault)
    if fault is Fault.LOST_REQUEST:
        with pytest.raises(MetadataUnavailableError):
            await initialize(store, root)
        await initialize(store, root)
    else:
        assert await initialize(store, root) == await instance_id(store, root)
    ledgers = LedgerStore(store, root, random=Random(1))

    # when the creation of a ledger, an update and its deletion each lose a message
    proxy.lose(Request.CREATE, fault)  # the draw of an id
    first, _ = await ledgers.create(open_ledger())
    proxy.lose(Request.MULTI if accompanied else Request.CREATE, fault)
    mark = (lambda made: [Create(f"{root}/mark-{made}", b"")]) if accompanied else None
    ledger_id, created = await ledgers.create(open_ledger(), ledger_id=50, extra_operations=mark)
    proxy.lose(Request.SET_DATA, fault)
    updated: Versioned | Stop[object] = await ledgers.update(
        ledger_id, LedgerMetadata.in_recovery, known=created
    )
    proxy.lose(Request.DELETE, fault)
    await ledgers.delete(first)

    assert isinstance(updated, Versioned)
    assert updated.version == 1
    assert await ledgers.read(ledger_id) == updated
    assert [found async for found in ledgers.list_ids()] == [50]
    assert proxy.losses == 5


async def test_a_registration_is_made_whatever_is_lost(
    proxy: LossyProxy, store: MetadataStore, root: str, fault: Fault
) -> None:
    await store.create(root, b"")
    proxy.lose(Request.CREATE, fault)
    registration = await store.ephemeral(f"{root}/bookie", b"me")
    assert await is_owner(store, f"{root}/bookie")
    await registration.withdraw()
    assert await store.get(f"{root}/bookie") is None


async def test_a_lock_is_held_once_whatever_is_lost(
    proxy: LossyProxy, store: MetadataStore, root: str, fault: Fault
) -> None:
    await store.create(root, b"")
    proxy.lose(Request.CREATE, fault)
    release = await store.lock(root)
    assert len(await store.children(root) or []) == 1
    await release()
    assert await store.children(root) == []
