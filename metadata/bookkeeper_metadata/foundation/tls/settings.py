"""What a process is told about TLS; bookies, clients and the processes beside them are told the same. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper_metadata.foundation.settings import Settings, variables_of


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files; an empty one: there is none."""

    trust_path: str
    """Certificates of whoever may vouch for a peer."""
    certificate_path: str = ""
    """Own certificate, and behind it those that lead to one that peers trust."""
    key_path: str = ""
    """Of that certificate, not encrypted; empty: it is in the same file."""


@dataclass(frozen=True, kw_only=True)
class TlsSettings(Settings):
    """Paths of PEM files, which every process that is told of them must find where it runs."""

    tls_trust_path: str = ""
    """File with the certificates of whoever may vouch for bookies and their clients (Apache's tlsTrustStore). It switches
    TLS on. Empty: everything is sent in clear."""
    tls_certificate_path: str = ""
    """File with the process's own certificate, and behind it those that lead to one that others trust (Apache's
    tlsCertificatePath). A bookie that has one takes TLS only."""
    tls_key_path: str = ""
    """File with the key of that certificate, not encrypted. Empty: the certificate's file has it."""
    tls_only: bool = True
    """False, while a cluster is changed over: bookies that do not offer TLS are talked to in clear, and `rpc_port` takes
    clear text, as Apache's bookies do."""

    def defects(self) -> list[str]:
        """Files of which one is no use without another that is missing."""
        needs = {"tls_certificate_path": "tls_trust_path", "tls_key_path": "tls_certificate_path"}
        return [*super().defects(), *self.unmet(needs)]

    @property
    def tls_files(self) -> TlsFiles | None:
        """``None``: TLS is off."""
        if not self.tls_trust_path:
            return None
        return TlsFiles(self.tls_trust_path, self.tls_certificate_path, self.tls_key_path)


TLS_VARIABLES: Mapping[str, str] = variables_of(TlsSettings)
"""The environment variable of each, for every kind of process."""
