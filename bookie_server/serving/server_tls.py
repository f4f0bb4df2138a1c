"""ServerTls: how a bookie serves over TLS; made once, and asked for each connection."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import grpc

from bookie_server.core.roles import Roles
from bookie_server.settings import BookieSettings
from bookkeeper_metadata.foundation.tls.contexts import Tls, tls_of


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
        """The same for gRPC, which asks for it itself."""

        def configuration() -> grpc.ServerCertificateConfiguration:
            pem = self.tls.pem()
            # gRPC takes none to trust for an order to ask clients for certificates.
            trust = pem.trust if self.wants_certificate else None
            return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], trust)

        return grpc.dynamic_ssl_server_credentials(
            configuration(), configuration, require_client_authentication=self.wants_certificate
        )


def server_tls(settings: BookieSettings) -> ServerTls | None:
    """How a bookie with these settings serves; ``None``: in clear.

    Raises:
        TlsFilesError: files of TLS are not all there, or do not fit together.
    """
    tls = tls_of(settings.tls_files) if settings.tls_certificate_path else None
    if tls is None:
        return None
    return ServerTls(tls, settings.tls_client_authentication, settings.tls_only)


def roles_of(settings: BookieSettings) -> Roles | None:
    """Who may do what; ``None``: clients are not asked who they are."""
    if not (settings.tls_certificate_path and settings.tls_client_authentication):
        return None
    return Roles(settings.tls_client_names, settings.tls_bookie_names, settings.tls_admin_names)
