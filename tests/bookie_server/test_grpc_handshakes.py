"""gRPC behind TLS: what it is told of certificates, which keys it takes, and handshakes by the dozen, which it must live through."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bookie_server.client.connecting import connect_to
from bookie_server.client.settings import ConnectionSettings
from bookie_server.serving.server_tls import _RENEWAL_PAUSE_S, is_for_grpc, server_tls
from bookie_server.settings import BookieSettings
from bookkeeper_metadata.endpoints import GRPC, Endpoint
from bookkeeper_metadata.foundation.tls import contexts
from bookkeeper_metadata.foundation.tls.contexts import PemFiles, TlsFilesError
from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from spark_bookkeeper.local.environment import child_environment
from tests.doubles.certificates import HOST, Authority, serving_with, settings_of
from tests.patience import seconds

pytestmark = pytest.mark.integration

ROUNDS = 20
AT_ONCE = 50
SERVE = """
import asyncio, sys
from pathlib import Path
from tests.doubles.secured_bookie import serving

async def main():
    async with serving(Path(sys.argv[1])) as secured:
        secured.authority.files("task")
        print(secured.ports.grpc_address.rpartition(":")[2], flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
KEYS: dict[str, Callable[[], Any]] = {
    "RSA": lambda: rsa.generate_private_key(65_537, 2_048),
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "P-521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "Ed448": ed448.Ed448PrivateKey.generate,
}
TAKEN = ("RSA", "P-256", "P-384")


def certificate_of(kind: str) -> bytes:
    """A certificate of itself and its key, in one file's content."""
    key = KEYS[kind]()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, kind)])
    is_edwards = kind.startswith("Ed")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .sign(key, None if is_edwards else hashes.SHA256())
    )
    private: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What gRPC would ask at each handshake, of each time that credentials were made."""
    monkeypatch.setattr(contexts, "_LOOK_AGAIN_S", 0.0)
    found: list[Callable[[], object]] = []

    def note(_: object, renewal: Callable[[], object], **__: object) -> None:
        found.append(renewal)

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", note)
    return found


def test_it_is_told_of_certificates_that_are_others_and_of_no_handshake(
    asked: list[Callable[[], object]], tmp_path: Path
) -> None:
    """Told anything it frees what other threads may be about to use, which ended bookies."""
    authority = Authority(tmp_path)
    serving_with(authority.files("bookie")).grpc_credentials()
    (renewal,) = asked
    assert [renewal() for _ in range(3)] == [None] * 3
    os.chmod(authority.files("bookie").key_path, 0o600)
    began_s = time.monotonic()
    assert isinstance(renewal(), grpc.ServerCertificateConfiguration)
    # Handshakes that have begun are through with the former by then.
    assert time.monotonic() - began_s >= _RENEWAL_PAUSE_S
    assert [renewal() for _ in range(3)] == [None] * 3
    (tmp_path / "bookie.key").touch()
    assert renewal() is None, "it is the same"


def test_it_goes_on_with_the_former_where_it_does_not_take_a_key(
    asked: list[Callable[[], object]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    files = Authority(tmp_path).files("bookie")
    both = tmp_path / "both.pem"
    both.write_bytes(Path(files.certificate_path).read_bytes() + Path(files.key_path).read_bytes())
    serving_with(TlsFiles(files.trust_path, str(both))).grpc_credentials()
    (renewal,) = asked
    both.write_bytes(certificate_of("Ed448"))
    assert [renewal() for _ in range(3)] == [None] * 3
    (told,) = [each for each in caplog.messages if "gRPC goes on with the former" in each]
    assert str(both) in told


@pytest.mark.parametrize("kind", KEYS)
def test_a_bookie_starts_with_keys_that_all_its_clients_can_use(kind: str, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certificate_of(kind))
    trust = Authority(tmp_path / "authority").trust_path
    settings = BookieSettings(tls_trust_path=str(trust), tls_certificate_path=str(both))
    if kind in TAKEN:
        assert server_tls(settings) is not None
        return
    with pytest.raises(TlsFilesError, match=r"both\.pem") as refused:
        server_tls(settings)
    assert "P-256" in str(refused.value)


@pytest.mark.parametrize(
    "written",
    [
        lambda pem: pem.replace(b"-----BEGIN CERTIFICATE", b"-----BEGIN X509 CERTIFICATE"),
        lambda pem: b"# behind -----BEGIN CERTIFICATE----- comes what counts\n" + pem,
        lambda pem: pem.replace(b"\n", b"\r\n"),
        lambda pem: "Grüße\n".encode("latin-1") + pem,
    ],
)
def test_however_it_is_written_a_certificate_is_found(written: Callable[[bytes], bytes]) -> None:
    assert is_for_grpc(PemFiles(b"", written(certificate_of("P-256")), None))


def test_what_holds_no_certificate_is_none_for_it() -> None:
    garbled = b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n"
    assert not is_for_grpc(PemFiles(b"", garbled, None))
    assert not is_for_grpc(PemFiles(b"", b"nothing", None))
    assert not is_for_grpc(PemFiles(b"", None, None))


@contextmanager
def bookie(place: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves over TLS, and its port for gRPC."""
    command = [sys.executable, "-c", SERVE, str(place)]
    root = Path(__file__).parents[2]
    environment = {**child_environment(), "PYTHONPATH": f"{root}:{root / 'metadata'}"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environment, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        try:
            yield running, int(running.stdout.readline())
        finally:
            running.kill()


def hello() -> bytes:
    """What a client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    said = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


def test_many_handshakes_at_once_end_no_bookie(tmp_path: Path) -> None:
    """Five ended one, of clients that had every right; and nobody needed a certificate for it."""
    first_words = hello()
    with bookie(tmp_path) as (running, port):
        for _ in range(ROUNDS):
            with ExitStack() as open_ones:
                for _ in range(AT_ONCE):
                    connection = socket.create_connection((HOST, port), timeout=seconds(20))
                    open_ones.callback(connection.close)
                    connection.sendall(first_words)
            assert running.poll() is None, "the bookie has ended"

        async def ask() -> object:
            place = tmp_path / "certificates"
            files = TlsFiles(*(str(place / name) for name in ("trust.pem", "task.pem", "task.key")))
            settings = ConnectionSettings(
                read_timeout_ms=20_000, reconnect_timeout_ms=20_000, **settings_of(files)
            )
            client = connect_to("b:1", Endpoint("bookie", HOST, port, GRPC), settings)
            try:
                return await client.info()
            finally:
                await client.close()

        assert asyncio.run(ask()) is not None
        assert running.poll() is None
