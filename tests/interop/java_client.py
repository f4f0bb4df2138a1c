"""Apache's Java client in a test's hands: one process, told what to do line by line (InteropClient.java)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.peers.apache import JAVA_OPTIONS
from benchmarks.peers.artifacts import Artifacts
from benchmarks.peers.commands import CommandedClient
from bookkeeper_metadata.foundation.tls.settings import TlsFiles

SOURCE = Path(__file__).with_name("InteropClient.java")
FENCED, UNAUTHORIZED = -101, -102
"""Codes of Apache's exceptions."""


class JavaClient(CommandedClient):
    """Speaks one version of the protocol; ``explicit_lac_ms`` 0: none are sent; ``settings`` by Apache's names."""

    def __init__(
        self,
        artifacts: Artifacts,
        uri: str,
        log_path: Path,
        version: str,
        explicit_lac_ms: int = 0,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        given = (f"{name}={value}" for name, value in settings.items())
        arguments = (uri, version, str(explicit_lac_ms), *given)
        command = artifacts.command("InteropClient", *arguments, options=JAVA_OPTIONS)
        super().__init__(f"Apache's client {version}", command, log_path, dict(os.environ))

    def do(self, *words: object) -> dict[str, Any]:
        """One command and its answer, which may be the code of an error."""
        self.tell(*words)
        return self.next_answer()

    def write_ledger(self, digest: str, quorums: Sequence[int], sizes: Sequence[int]) -> int:
        """A closed ledger with one entry of each size; its password is ``secret``."""
        ledger_id = int(self.do("create", *quorums, digest, "secret")["ledger"])
        for size in sizes:
            self.do("append", 1, size)
        assert self.do("close") == {}
        return ledger_id

    def read(
        self, ledger_id: int, digest: str, last: int, *, first: int = 0, how: str = "singly"
    ) -> str:
        """SHA-1 of the payloads of these entries."""
        answer = self.do("read", ledger_id, digest, "secret", first, last, how)
        assert answer["count"] == last - first + 1
        return str(answer["sha1"])


def payload(entry_id: int, size: int) -> bytes:
    """What an entry of these tests holds, whoever writes it."""
    period = bytes((31 * entry_id + at) % 256 for at in range(256))
    return (period * (size // 256 + 1))[:size]


def sha1_of(sizes: Sequence[int], first: int = 0) -> str:
    """SHA-1 of such payloads, from this entry on."""
    digest = hashlib.sha1(usedforsecurity=False)
    for entry_id, size in enumerate(sizes, first):
        digest.update(payload(entry_id, size))
    return digest.hexdigest()


def tls_settings(files: TlsFiles) -> dict[str, str]:
    """Of a client or a bookie of Apache's that has these files."""
    return {
        "tlsProvider": "JDK",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsClientAuthentication": "true",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": files.key_path,
        "tlsCertificatePath": files.certificate_path,
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": files.trust_path,
        "hostnameVerificationEnabled": "true",
    }
