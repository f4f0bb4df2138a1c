"""TLS with certificates on both sides, between Java and our bookies, and between our client and Apache's bookies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.peers.apache import ApacheCluster
from benchmarks.peers.artifacts import Artifacts
from bookie_server.client.settings import ConnectionSettings
from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.errors import LedgerFencedError
from tests.doubles.certificates import Authority, settings_of
from tests.interop.conftest import MakeJavaClient
from tests.interop.java_client import payload, sha1_of, tls_settings

pytestmark = [pytest.mark.integration, pytest.mark.full]

SIZES = (0, 1, 100, 70_000, 200_000, 5) + (64,) * 94
LAST = len(SIZES) - 1
PAYLOADS = [payload(entry_id, size) for entry_id, size in enumerate(SIZES)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[LocalCluster]:
    with LocalCluster(3, bookie_settings=settings_of(authority.files("bookie"))) as running:
        yield running


@pytest.fixture(scope="module")
def secured_apache(artifacts: Artifacts, authority: Authority) -> Iterator[ApacheCluster]:
    settings = tls_settings(authority.files("apache"))
    with ApacheCluster(artifacts, settings=settings) as running:
        yield running


def client_of(uri: str, authority: Authority, protocol: str) -> BookKeeper:
    connection = ConnectionSettings(**settings_of(authority.files("task")))
    settings = ClientSettings(bookie_protocol=protocol, connection=connection)
    return BookKeeper(uri, settings=settings)


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_java_on_our_bookies_behind_tls(
    secured: LocalCluster, authority: Authority, java: MakeJavaClient, version: str
) -> None:
    uri = secured.metadata_service_uri
    client = java(uri, version, files=authority.files("java"))
    ledger_id = client.write_ledger("CRC32C", (3, 3, 2), SIZES)
    assert client.read(ledger_id, "CRC32C", LAST) == sha1_of(SIZES)
    with client_of(uri, authority, "auto") as ours:
        reader = ours.open_ledger(ledger_id, password=b"secret")
        assert [bytes(entry.payload) for entry in reader.read(0, LAST)] == PAYLOADS
        writer = ours.create_ledger(password=b"secret")
        writer.append_many(PAYLOADS)
        opened = client.do("open", writer.ledger_id, "CRC32C", "secret", "true")
        assert opened == {"last": LAST, "length": sum(SIZES)}
        with pytest.raises(LedgerFencedError):
            writer.append(b"late")


def test_java_in_clear_or_of_a_stranger_writes_nothing(
    secured: LocalCluster, java: MakeJavaClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    uri = secured.metadata_service_uri
    stranger = Authority(tmp_path_factory.mktemp("stranger"))
    for client in (java(uri, "v3"), java(uri, "v3", files=stranger.files("java"))):
        client.do("create", 3, 3, 2, "CRC32C", "secret")
        assert "code" in client.do("append", 1, 10)


@pytest.mark.parametrize("protocol", ["auto", "v2", "v3"])
def test_our_client_on_apaches_bookies_behind_tls(
    secured_apache: ApacheCluster, authority: Authority, java: MakeJavaClient, protocol: str
) -> None:
    uri = secured_apache.metadata_service_uri
    with client_of(uri, authority, protocol) as ours:
        writer = ours.create_ledger(password=b"secret")
        writer.append_many(PAYLOADS)
        reader = ours.open_ledger(writer.ledger_id, password=b"secret", recovery=True)
        assert [bytes(entry.payload) for entry in reader.read(0, LAST)] == PAYLOADS
        with pytest.raises(LedgerFencedError):
            writer.append(b"late")
        client = java(uri, "v2", files=authority.files("java"))
        assert client.read(writer.ledger_id, "CRC32C", LAST) == sha1_of(SIZES)
