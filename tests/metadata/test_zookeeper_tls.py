"""ZooKeeper behind TLS: everything works as without, and whom it is not sure of it does not talk to."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from kazoo.client import KazooClient

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.foundation.tls import contexts
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from bookkeeper_metadata.store.zookeeper_access import load_access
from bookkeeper_metadata.store.zookeeper_age import newest_zxid
from bookkeeper_metadata.store.zookeeper_settings import ZooKeeperSettings
from tests.conformance.metadata_store import MetadataStoreConformance, Service
from tests.doubles.waits import LIMIT_S, until
from tests.metadata.secure_zookeeper import HOST, Certificates, SecureZooKeeper, as_user
from tests.patience import seconds

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

SESSION_TIMEOUT_MS = 4_000
_folders = itertools.count()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA
) -> Iterator[SecureZooKeeper]:
    """It wants a certificate of every client."""
    with SecureZooKeeper(tmp_path_factory.mktemp("secure"), authority, "need") as process:
        yield process


@pytest.fixture
def own(tmp_path: Path, authority: trustme.CA) -> Certificates:
    return Certificates.make(tmp_path / "own", "client", authority)


@pytest.fixture
def strangers(tmp_path: Path) -> Certificates:
    """Of an authority that nobody knows."""
    return Certificates.make(tmp_path / "strangers", "client", trustme.CA())


def by_tls(certificates: Certificates, **others: str) -> ZooKeeperSettings:
    return ZooKeeperSettings(
        zookeeper_trust_path=certificates.trust_path,
        **{"zookeeper_certificate_path": certificates.path, **others},
    )


async def open_store(
    process: SecureZooKeeper, settings: ZooKeeperSettings, host: str = HOST, port: int = 0
) -> ZooKeeperStore:
    return await ZooKeeperStore.connect(
        [f"{host}:{port or process.secure_port}"],
        access=load_access(settings),
        session_timeout_ms=SESSION_TIMEOUT_MS,
        connect_timeout_ms=round(seconds(20) * 1000),
    )


async def refused(
    process: SecureZooKeeper,
    settings: ZooKeeperSettings,
    *wanted: str,
    host: str = HOST,
    port: int = 0,
) -> None:
    """No connection comes about, and what is said then has these words; a busy server may say it late."""
    said = ""
    async with asyncio.timeout(seconds(30)):
        while not said or not all(word in said for word in wanted):
            with pytest.raises(MetadataUnavailableError) as error:
                await ZooKeeperStore.connect(
                    [f"{host}:{port or process.secure_port}"],
                    access=load_access(settings),
                    session_timeout_ms=SESSION_TIMEOUT_MS,
                    connect_timeout_ms=2000,
                )
            said = str(error.value)


class SecureService(Service):
    """Sessions by TLS, of one user."""

    def __init__(self, process: SecureZooKeeper, settings: ZooKeeperSettings) -> None:
        self._process = process
        self._settings = settings
        self.root = f"/conformance/{next(_folders)}"

    async def connect(self) -> MetadataStore:
        return await open_store(self._process, self._settings)

    async def expire(self, store: MetadataStore) -> None:
        """A second connection takes over the session and ends it."""
        assert isinstance(store, ZooKeeperStore)
        old, client_id = store.session_id, store._client.client_id
        async with asyncio.timeout(seconds(LIMIT_S)):
            while store.session_id == old:
                await asyncio.to_thread(self._end_session, client_id)
                with suppress(TimeoutError):
                    await until(lambda: store.session_id != old, limit_s=2.0)

    def _end_session(self, client_id: tuple[int, bytes]) -> None:
        client = KazooClient(self._process.service, client_id=client_id, timeout=2.0)
        client.start()
        client.stop()
        client.close()


@pytest.fixture
def service(secure: SecureZooKeeper, own: Certificates, tmp_path: Path) -> Service:
    settings = as_user(
        tmp_path,
        "me",
        zookeeper_trust_path=own.trust_path,
        zookeeper_certificate_path=own.path,
    )
    return SecureService(secure, settings)


class TestZooKeeperStoreBehindTls(MetadataStoreConformance):
    pass


async def test_a_server_of_another_name_is_not_talked_to(
    secure: SecureZooKeeper, own: Certificates
) -> None:
    await refused(secure, by_tls(own), "TLS failed", "not valid for '127.0.0.1'", host="127.0.0.1")


async def test_a_server_of_an_unknown_authority_is_not_talked_to(
    secure: SecureZooKeeper, own: Certificates, strangers: Certificates
) -> None:
    settings = ZooKeeperSettings(
        zookeeper_trust_path=strangers.trust_path, zookeeper_certificate_path=own.path
    )

    await refused(secure, settings, "TLS failed", "certificate verify failed")


async def test_a_server_that_wants_a_certificate_says_so_to_who_has_none_or_a_strangers(
    secure: SecureZooKeeper, own: Certificates, strangers: Certificates
) -> None:
    """By TLS 1.3 only as its answer to the first request."""
    nobody = ZooKeeperSettings(zookeeper_trust_path=own.trust_path)
    stranger = ZooKeeperSettings(
        zookeeper_trust_path=own.trust_path, zookeeper_certificate_path=strangers.path
    )

    await refused(secure, nobody, "TLS failed", "certificate")
    await refused(secure, stranger, "TLS failed", "certificate")


async def test_a_port_without_tls_is_not_talked_to(
    secure: SecureZooKeeper, own: Certificates
) -> None:
    await refused(secure, by_tls(own), "TLS failed", port=secure.port)


async def test_without_tls_nothing_is_had_of_a_secure_port(secure: SecureZooKeeper) -> None:
    await refused(secure, ZooKeeperSettings(), "no connection within")


async def test_no_certificate_is_needed_where_none_is_wanted(
    tmp_path: Path, authority: trustme.CA, own: Certificates
) -> None:
    with SecureZooKeeper(tmp_path / "server", authority, "none") as process:
        settings = ZooKeeperSettings(zookeeper_trust_path=own.trust_path)
        async with await open_store(process, settings) as store:
            await store.create("/a", bytes(900_000))
            found = await store.get("/a")

    assert found is not None
    assert found.value == bytes(900_000)


async def test_a_certificate_is_a_user_where_zookeeper_asks_for_one(
    secure: SecureZooKeeper, own: Certificates, tmp_path: Path, authority: trustme.CA
) -> None:
    other = Certificates.make(tmp_path / "other", "other", authority)
    acl = f"x509:{own.subject}:cdrwa"
    path = f"/x509-{next(_folders)}"
    async with await open_store(secure, by_tls(own, zookeeper_acl=acl)) as store:
        await store.create(path, b"mine")
        found = await store.acl(path)
    assert found is not None
    assert ",".join(map(str, found.acl)) == acl

    async with await open_store(secure, by_tls(own)) as store:
        assert await store.get(path) is not None
    async with await open_store(secure, by_tls(other)) as store:
        with pytest.raises(MetadataAccessError):
            await store.get(path)


async def test_how_far_a_server_has_counted_is_asked_by_tls_too(
    secure: SecureZooKeeper, own: Certificates
) -> None:
    access = load_access(by_tls(own))
    assert access.tls is not None
    async with await open_store(secure, by_tls(own)) as store:
        await store.create(f"/counted-{next(_folders)}", b"")

    place = (HOST, secure.secure_port)
    assert await newest_zxid([place], access.tls.client_context())
    assert await newest_zxid([place]) is None


async def test_a_certificate_that_is_replaced_counts_with_the_next_connection(
    secure: SecureZooKeeper,
    own: Certificates,
    strangers: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that has a stranger's certificate connects once it has been given another."""
    monkeypatch.setattr(contexts, "_LOOK_AGAIN_S", 0.0)
    path = tmp_path / "replaced.pem"
    shutil.copy(strangers.path, path)
    settings = by_tls(own, zookeeper_certificate_path=str(path))

    connecting = asyncio.create_task(open_store(secure, settings))
    await asyncio.sleep(0.2)
    assert not connecting.done()
    shutil.copy(own.path, path)

    async with await connecting as store:
        assert await store.children("/") is not None
