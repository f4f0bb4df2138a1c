"""Certificates for tests, in files: an authority, and whom it vouches for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from bookie_server.core.roles import Roles
from bookie_server.serving.server_tls import ServerTls
from bookkeeper_metadata.foundation.tls.contexts import Tls
from bookkeeper_metadata.foundation.tls.settings import TlsFiles

HOST = "127.0.0.1"


class Authority:
    """Vouches for names; its files are in a folder of their own."""

    def __init__(self, place: Path, keys: trustme.KeyType = trustme.KeyType.ECDSA) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self._keys = keys
        self._authority = trustme.CA(key_type=keys)
        self.trust_path = place / "trust.pem"
        self._authority.cert_pem.write_to_path(self.trust_path)

    def files(self, name: str, host: str = HOST, *, expires_at: datetime | None = None) -> TlsFiles:
        """Files of whoever has this common name, at this host; written anew if they are there."""
        issued = self._authority.issue_cert(
            host, common_name=name, not_after=expires_at, key_type=self._keys
        )
        certificate, key = self.place / f"{name}.pem", self.place / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        # In the form that Java reads, too.
        private = load_pem_private_key(issued.private_key_pem.bytes(), None)
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        key.chmod(0o600)
        return TlsFiles(str(self.trust_path), str(certificate), str(key))

    def files_of_names(self, name: str, common_names: Sequence[str]) -> TlsFiles:
        """Files of whoever has these common names, for no host at all."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common_names]
        own = x509.load_pem_x509_certificate(self._authority.cert_pem.bytes())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(parts))
            .issuer_name(own.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
            .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
            .sign(self._own_key(), hashes.SHA256())
        )
        path = self.place / f"{name}.pem"
        path.write_bytes(
            certificate.public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return TlsFiles(str(self.trust_path), str(path))

    def _own_key(self) -> ec.EllipticCurvePrivateKey:
        key = load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    @property
    def trust_only(self) -> TlsFiles:
        """Files of somebody who has no certificate."""
        return TlsFiles(str(self.trust_path))


def settings_of(files: TlsFiles) -> dict[str, Any]:
    """The same as settings, by name."""
    return {
        "tls_trust_path": files.trust_path,
        "tls_certificate_path": files.certificate_path,
        "tls_key_path": files.key_path,
    }


def serving_with(
    files: TlsFiles, *, wants_certificate: bool = True, is_only: bool = True
) -> ServerTls:
    """How a bookie with these files serves."""
    return ServerTls(Tls(files), wants_certificate, is_only)


SOME_ROLES = Roles(client_names=("task",), bookie_names=("bookie",), admin_names=("admin",))
"""For tests of who may do what."""
