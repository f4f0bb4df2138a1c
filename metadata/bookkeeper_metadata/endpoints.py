"""Endpoints: where a bookie is reached, and what it speaks there. Pure values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

BOOKIE_ENDPOINT = "bookie"
"""Endpoint id under which a bookie takes adds and reads, whatever the protocol."""
GRPC = "grpc"
SOCKET = "socket"
"""The messages of gRPC over a plain socket."""
BOOKIE_RPC = "bookie-rpc"
HTTP_ENDPOINT = "httpserver"
"""Endpoint id of a bookie's HTTP port, as Apache's has it."""
HTTP = "http"
TLS = "tls"
"""Extension of an endpoint that speaks TLS: of Apache's protocol behind a START_TLS, of the others from the first byte."""
PORT_MAX = 2**16 - 1
_ADDRESS = re.compile(r"(?P<host>[^/\s]+):(?P<port>[0-9]{1,5})")


def authority(host: str, port: int) -> str:
    """``host:port``, as URIs and gRPC have it: an IPv6 address in brackets, or its last part would be taken for the port."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port; ``None``: it is no address."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > PORT_MAX:
        return None
    return match["host"], int(match["port"])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a bookie; the fields are those of Apache's message."""

    id: str
    host: str
    port: int
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """``host:port``; an IPv6 address in brackets."""
        return authority(self.host, self.port)

    @property
    def has_tls(self) -> bool:
        """Whether TLS is spoken there."""
        return TLS in self.extensions

    @classmethod
    def of_id(cls, bookie_id: str) -> Endpoint:
        """Where a bookie may be of which nothing but the id is known: the id is most often an address."""
        return cls(BOOKIE_ENDPOINT, *(parse_address(bookie_id) or (bookie_id, 0)), GRPC)


@dataclass(frozen=True, slots=True)
class BookieServiceInfo:
    """What a bookie's registration says of it."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def endpoint(self, protocol: str, endpoint_id: str = BOOKIE_ENDPOINT) -> Endpoint | None:
        """The endpoint that speaks ``protocol``; by default the one for adds and reads."""
        wanted = endpoint_id, protocol
        return next((e for e in self.endpoints if (e.id, e.protocol) == wanted), None)

    def best_endpoint(self, protocols: Iterable[str]) -> Endpoint | None:
        """The endpoint for adds and reads that speaks the first of ``protocols`` that any does."""
        return next(filter(None, map(self.endpoint, protocols)), None)
