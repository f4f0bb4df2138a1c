"""ServerTls: how a bookie serves over TLS; made once, and asked for each connection."""

from __future__ import annotations

import logging
import re
import ssl
import threading
from base64 import b64decode
from dataclasses import dataclass

import grpc

from bookie_server.core.roles import Roles
from bookie_server.settings import BookieSettings
from bookkeeper_metadata.foundation.tls.contexts import PemFiles, Tls, TlsFilesError, tls_of

_LOGGER = logging.getLogger(__name__)
_RENEWAL_PAUSE_S = 0.2
"""So long gRPC begins no handshake when there is another certificate."""
_FIRST_CERTIFICATE = re.compile(
    rb"^-----BEGIN (?:X509 )?CERTIFICATE-----\s*$(.+?)^-----END", re.DOTALL | re.MULTILINE
)
_KEYS_OF_GRPC = (
    bytes.fromhex("300d06092a864886f70d0101010500"),  # RSA
    bytes.fromhex("301306072a8648ce3d020106082a8648ce3d030107"),  # P-256
    bytes.fromhex("301006072a8648ce3d020106052b81040022"),  # P-384
)
"""What stands in a certificate in front of a public key of these kinds. Source: RFC 3279, RFC 5480."""
_WRONG_KEY = (
    "gRPC takes certificates of RSA, P-256 and P-384 keys only, and finds none of these here"
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Certificates that have been replaced by others are noticed by the next connection."""

    tls: Tls
    wants_certificate: bool
    """Of each client."""
    is_only: bool
    """Whether nothing is taken in clear, where a client could choose."""

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self.tls.server_context(wants_certificate=self.wants_certificate)

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """The same for gRPC, which asks at each handshake whether there are others by now."""
        certificates = _GrpcCertificates(self.tls, wants_certificate=self.wants_certificate)
        return grpc.dynamic_ssl_server_credentials(
            certificates.configuration(),
            certificates.renewal,
            require_client_authentication=self.wants_certificate,
        )


class _GrpcCertificates:
    """What gRPC was told to serve with, and whether that has changed.

    Told anything it makes what handshakes are made of anew, and frees the former while other threads may be about to use it,
    which ends the process (https://github.com/grpc/grpc/issues/36693). So it is told nothing but what is new.
    """

    def __init__(self, tls: Tls, *, wants_certificate: bool) -> None:
        self._tls = tls
        self._wants_certificate = wants_certificate
        self._known = tls.pem()

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """Of the files as they were found last."""
        pem = self._known
        # gRPC takes none to trust for an order to ask clients for certificates.
        trust = pem.trust if self._wants_certificate else None
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], trust)

    def renewal(self) -> grpc.ServerCertificateConfiguration | None:
        """Another one; ``None``: as before. gRPC asks under a lock of its own, one thread at a time."""
        pem = self._tls.pem()
        if pem == self._known:
            return None
        self._known = pem
        if not is_for_grpc(pem):
            path = self._tls.files.certificate_path
            _LOGGER.warning("gRPC goes on with the former. error=%s path=%s", _WRONG_KEY, path)
            return None
        # Nobody begins a handshake meanwhile, and who has is through with what is about to be freed.
        threading.Event().wait(_RENEWAL_PAUSE_S)
        return self.configuration()


def is_for_grpc(pem: PemFiles) -> bool:
    """Whether gRPC can serve with this certificate, as far as the kind of its key shows."""
    found = _FIRST_CERTIFICATE.search(pem.certificate or b"")
    if found is None:
        return False
    try:
        shown = b64decode(found[1])
    except ValueError:
        return False
    return any(kind in shown for kind in _KEYS_OF_GRPC)


def server_tls(settings: BookieSettings) -> ServerTls | None:
    """How a bookie with these settings serves; ``None``: in clear.

    Raises:
        TlsFilesError: files of TLS are not all there, do not fit together, or hold a key that gRPC does not take.
    """
    tls = tls_of(settings.tls_files) if settings.tls_certificate_path else None
    if tls is None:
        return None
    if not is_for_grpc(tls.pem()):
        raise TlsFilesError(_WRONG_KEY, settings.tls_certificate_path)
    return ServerTls(tls, settings.tls_client_authentication, settings.tls_only)


def roles_of(settings: BookieSettings) -> Roles | None:
    """Who may do what; ``None``: clients are not asked who they are."""
    if not (settings.tls_certificate_path and settings.tls_client_authentication):
        return None
    return Roles(settings.tls_client_names, settings.tls_bookie_names, settings.tls_admin_names)
