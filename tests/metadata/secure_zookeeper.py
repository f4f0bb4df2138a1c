"""A real ZooKeeper behind TLS, certificates that it and its clients have, and files of users and passwords."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate

from bookkeeper_metadata.store.zookeeper_settings import ZooKeeperSettings
from spark_bookkeeper.local.ports import LOOPBACK, free_port
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess

HOST = "localhost"
PASSWORD = "secret:with colon"
"""Of every user, unless a test says otherwise."""


@dataclass(frozen=True)
class Certificates:
    """PEM files of one authority: its own certificate, and one with its key for a name."""

    trust_path: str
    path: str
    subject: str
    """As whom ZooKeeper knows it."""

    @classmethod
    def make(cls, directory: Path, name: str, authority: trustme.CA) -> Certificates:
        """Certificates for a host, or for a client of any name."""
        directory.mkdir(parents=True, exist_ok=True)
        issued = authority.issue_cert(name, common_name=name)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        # ZooKeeper reads no other form of a key.
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        trust, path = directory / "trust.pem", directory / f"{name}.pem"
        authority.cert_pem.write_to_path(trust)
        path.write_bytes(chain + pem)
        named = load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
        # Java writes a mark with a stroke before it that Python does not.
        subject = named.subject.rfc4514_string().replace("#", "\\#")
        return cls(str(trust), str(path), subject)


class ConfiguredZooKeeper(ZooKeeperProcess):
    """One with further lines in its configuration."""

    lines: Mapping[str, object]

    def _write(self, name: str, text: str) -> Path:
        added = "".join(f"{key}={value}\n" for key, value in self.lines.items())
        return super()._write(name, text + (added if name == "zoo.cfg" else ""))


class SecureZooKeeper(ConfiguredZooKeeper):
    """One that serves TLS at a second port, for the host :data:`HOST`; ``client_auth`` as its ``ssl.clientAuth``."""

    def __init__(
        self, directory: Path, authority: trustme.CA, client_auth: str, host: str = HOST
    ) -> None:
        super().__init__(directory / "data")
        self.secure_port = free_port({self.port})
        own = Certificates.make(directory / "pem", host, authority)
        self.lines = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": self.secure_port,
            "secureClientPortAddress": LOOPBACK,
            "ssl.keyStore.location": own.path,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": own.trust_path,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": client_auth,
        }

    @property
    def secure_service(self) -> str:
        return f"{HOST}:{self.secure_port}"


def user_file(directory: Path, user: str, password: str = PASSWORD) -> str:
    """The path of a file with these."""
    path = directory / f"{user}.auth"
    path.write_text(f"{user}:{password}\nnot read\n", encoding="utf-8")
    path.chmod(0o600)
    return str(path)


def as_user(directory: Path, user: str, **more: str) -> ZooKeeperSettings:
    """Settings of a process that is this user, and others."""
    return ZooKeeperSettings(zookeeper_auth_path=user_file(directory, user), **more)
