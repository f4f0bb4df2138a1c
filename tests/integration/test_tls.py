"""A cluster behind TLS with certificates of clients: written, read, taken over, healed and looked at; nobody else comes in."""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bookie_server.client.settings import BOOKIE_PROTOCOLS, ConnectionSettings
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.tls.contexts import TlsFilesError
from bookkeeper_metadata.foundation.tls.settings import TLS_VARIABLES, TlsFiles
from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.ledger.errors import TlsNeededError, TlsNotOfferedError
from tests.doubles.certificates import Authority, settings_of
from tests.integration.admin_page import admin_page
from tests.integration.command_line import CommandLine
from tests.integration.processes import eventually
from tests.patience import seconds

pytestmark = pytest.mark.integration

ROLES = {
    "tls_client_names": ["task"],
    "tls_bookie_names": ["bookie"],
    "tls_admin_names": ["operator"],
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[LocalCluster]:
    settings = {**settings_of(authority.files("bookie")), **ROLES}
    with LocalCluster(4, bookie_settings=settings) as running:
        yield running


def client_of(
    cluster: LocalCluster, files: TlsFiles | None, protocol: str = "auto", *, tls_only: bool = True
) -> BookKeeper:
    named = settings_of(files) if files is not None else {}
    settings = ClientSettings(
        bookie_protocol=protocol, connection=ConnectionSettings(**named, tls_only=tls_only)
    )
    return BookKeeper(cluster.metadata_service_uri, settings=settings)


@pytest.mark.parametrize("protocol", BOOKIE_PROTOCOLS)
def test_a_task_writes_reads_and_takes_over(
    protocol: str, secured: LocalCluster, authority: Authority
) -> None:
    files = authority.files("task")
    with client_of(secured, files, protocol) as bk, client_of(secured, files, protocol) as other:
        writer = bk.create_ledger(password=b"secret")
        payloads = [bytes([index]) * 100_000 for index in range(30)]
        assert writer.append_many(payloads) == range(30)
        reader = other.open_ledger(writer.ledger_id, password=b"secret", recovery=True)
        assert [bytes(entry.payload) for entry in reader.read(0, 29)] == payloads
        with pytest.raises(BookKeeperError):
            writer.append(b"too late")


def test_what_a_client_lacks_is_told_before_anything_is_done(
    secured: LocalCluster, authority: Authority, tmp_path: Path
) -> None:
    with client_of(secured, None) as bk, pytest.raises(TlsNeededError, match="tls_trust_path"):
        bk.create_ledger()
    missing = TlsFiles(str(tmp_path / "nowhere.pem"))
    with client_of(secured, missing) as bk, pytest.raises(TlsFilesError, match=r"nowhere\.pem"):
        bk.create_ledger()
    with client_of(secured, authority.files("operator")) as bk:
        assert list(bk.list_ledgers()) is not None


def test_a_client_with_tls_sends_nothing_in_clear(authority: Authority) -> None:
    files = authority.files("task")
    with LocalCluster(3) as clear:
        with client_of(clear, files) as bk, pytest.raises(TlsNotOfferedError, match="tls_only"):
            bk.create_ledger()
        with client_of(clear, files, tls_only=False) as bk, bk.create_ledger() as writer:
            assert writer.append(b"while the cluster is changed over") == 0


def test_metrics_and_health_are_shown_over_tls(secured: LocalCluster, authority: Authority) -> None:
    address = secured.bookies[0].http_address
    context = ssl.create_default_context(cafile=str(authority.trust_path))
    with urllib.request.urlopen(f"{address}/metrics", context=context, timeout=60) as answer:
        assert b"bookkeeper_server" in answer.read()
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(f"{address.replace('https', 'http')}/metrics", timeout=60)


def test_the_admin_page_is_shown_to_whoever_has_a_certificate(
    secured: LocalCluster, authority: Authority
) -> None:
    own, operator = (
        authority.files("operator"),
        ssl.create_default_context(cafile=str(authority.trust_path)),
    )
    flags = [f"--{name.replace('_', '-')}={path}" for name, path in settings_of(own).items()]
    operator.load_cert_chain(own.certificate_path, own.key_path)
    with admin_page(secured.metadata_service_uri, *flags, tls=operator) as page:
        assert page.url.startswith("https://")
        shown = page.json("bookies")["bookies"]
        assert len(shown) == 4
        # Over TLS, too: they were asked in clear, and nothing was ever shown.
        assert all(each["http_address"].startswith("https://") for each in shown)
        assert all(each["written_bytes"] is not None for each in shown)
        strangers = ssl.create_default_context(cafile=str(authority.trust_path))
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(f"{page.url}/metrics", timeout=60, context=strangers)


def test_commands_take_their_files_from_the_environment(
    secured: LocalCluster,
    authority: Authority,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = CommandLine(secured.metadata_service_uri, capfd, monkeypatch)
    assert "BK_TLS_NEEDED" in command.refused("ledgers", "create")
    for name, path in settings_of(authority.files("operator")).items():
        monkeypatch.setenv(TLS_VARIABLES[name], path)
    command("logs", "append", "over-tls", stdin=b"one\ntwo\n")
    assert len(command.lines("logs", "read", "over-tls")) == 2
    created = command.json("ledgers", "create")
    command("ledgers", "verify", created["ledger_id"])


def test_a_lost_bookie_is_made_up_for(secured: LocalCluster, authority: Authority) -> None:
    files = authority.files("task")
    with client_of(secured, files) as bk:
        with bk.create_ledger() as writer:
            writer.append_many([b"kept"] * 10)

        def first_ensemble() -> tuple[str, ...]:
            return bk.ledger_metadata(writer.ledger_id).fragments[0].ensemble

        lost = next(each for each in secured.bookies if each.bookie_id == first_ensemble()[0])
        secured.start_auto_recovery(lost_bookie_delay_ms=0)
        lost.kill()
        try:
            assert eventually(lambda: lost.bookie_id not in first_ensemble(), seconds(60))
        finally:
            assert secured.auto_recovery is not None
            secured.auto_recovery.stop()
            lost.start()


def test_strangers_fill_no_log_by_way_of_grpc(secured: LocalCluster) -> None:
    """It wrote a line of its own for each that came to no terms, past all limits, and waited for whoever reads them."""
    bookie = secured.bookies[0]
    # It is called after the address of its gRPC.
    host, _, port = bookie.bookie_id.rpartition(":")
    before = bookie.log_path.stat().st_size
    for _ in range(100):
        with socket.create_connection((host, int(port)), timeout=seconds(20)) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with suppress(ConnectionError):
                stranger.recv(1_000)
    assert bookie.log_path.stat().st_size - before < 5_000


def test_logs_name_no_secrets_and_whom_they_refuse(
    secured: LocalCluster, authority: Authority, tmp_path: Path
) -> None:
    nobody = authority.files("nobody")
    quick = ConnectionSettings(
        **settings_of(nobody), add_timeout_ms=1_000, reconnect_timeout_ms=200, read_timeout_ms=1_000
    )
    settings = ClientSettings(connection=quick, bookie_wait_timeout_ms=0)
    with BookKeeper(secured.metadata_service_uri, settings=settings) as bk:
        writer = bk.create_ledger(password=b"never-told")
        with pytest.raises(BookKeeperError):
            writer.append(b"not taken")
    logs = "".join(bookie.log_path.read_text() for bookie in secured.bookies)
    assert "refused" in logs
    assert "name='nobody'" in logs
    assert "never-told" not in logs
    assert "PRIVATE KEY" not in logs
