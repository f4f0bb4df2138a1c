"""Where everything lies in the store: the metadata service URI and Apache's node names.

Pure text in both directions; nothing here asks the store. Source: Apache ``ZKMetadataDriverBase``,
``StringUtils`` (``getHybridHierarchicalLedgerPath``, ``getLongHierarchicalLedgerPath``),
``BookKeeperConstants``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, unique

from bookkeeper_metadata.foundation.invariant import invariant

SHORT_LEDGER_ID_MAX = 2**31 - 2
"""Largest id stored under the short path of the hierarchical layout."""
LEDGER_ID_MAX = 2**63 - 1
READONLY = "readonly"
"""A child of ``available`` that is not a bookie."""

_DEFAULT_PORT = 2181
_URI = re.compile(r"zk(?:\+(?P<layout>[a-z]+))?://(?P<servers>[^/]+)(?P<root>/.*)")
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")
_ROOT = re.compile(r"(?:/[^/\s]+)+")
_SHORT_PATH = re.compile(r"(\d{2})/(\d{4})/L(\d{4})")
_LONG_PATH = re.compile(r"(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})")


@unique
class LedgerLayout(Enum):
    """How ledger ids become paths; the value is the URI's word for it."""

    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "longhierarchical"


@dataclass(frozen=True, slots=True)
class MetadataServiceUri:
    """A parsed ``zk+hierarchical://h1:2181;h2:2181/ledgers``."""

    servers: tuple[str, ...]
    """``host:port`` each."""
    root: str
    """Path of the cluster, e.g. ``/ledgers``."""
    layout: LedgerLayout | None
    """``None`` (``zk://``, ``zk+null://``): as the cluster's LAYOUT says."""

    def __str__(self) -> str:
        scheme = "zk" if self.layout is None else f"zk+{self.layout.value}"
        return f"{scheme}://{';'.join(self.servers)}{self.root}"


def parse_uri(uri: str) -> MetadataServiceUri:
    """Take a metadata service URI apart; servers without a port get 2181.

    Raises:
        ValueError: it is none, or names a layout this project does not write.
    """
    match = _URI.fullmatch(uri.strip())
    if match is None:
        raise ValueError(
            f"not a metadata service URI: {uri!r}; expected zk+hierarchical://host:2181/ledgers"
        )
    word = match["layout"]
    layouts = {layout.value: layout for layout in LedgerLayout}
    if word not in (None, "null", *layouts):
        known = ", ".join((*layouts, "null"))
        raise ValueError(f"unsupported ledger layout {word!r} in {uri!r}; supported: {known}")
    root = match["root"].rstrip("/")
    if not _ROOT.fullmatch(root):
        raise ValueError(f"no ledgers root path in metadata service URI {uri!r}, e.g. /ledgers")
    servers = tuple(_parse_server(server, uri) for server in re.split("[;,]", match["servers"]))
    return MetadataServiceUri(servers, root, layouts.get(word) if word else None)


def _parse_server(server: str, uri: str) -> str:
    match = _SERVER.fullmatch(server)
    if match is None or not 0 < int(match["port"] or _DEFAULT_PORT) < 65536:
        raise ValueError(f"not a host:port: {server!r} in metadata service URI {uri!r}")
    return f"{match['host']}:{match['port'] or _DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class Paths:
    """Every node name below one cluster's root."""

    root: str

    @property
    def layout(self) -> str:
        return f"{self.root}/LAYOUT"

    @property
    def instance_id(self) -> str:
        return f"{self.root}/INSTANCEID"

    @property
    def available(self) -> str:
        return f"{self.root}/available"

    @property
    def readonly(self) -> str:
        return f"{self.root}/available/{READONLY}"

    @property
    def cookies(self) -> str:
        return f"{self.root}/cookies"

    @property
    def idgen(self) -> str:
        return f"{self.root}/idgen"

    @property
    def idgen_long(self) -> str:
        return f"{self.root}/idgen-long"

    @property
    def underreplication(self) -> str:
        return f"{self.root}/underreplication"

    @property
    def underreplication_layout(self) -> str:
        return f"{self.underreplication}/LAYOUT"

    @property
    def underreplicated_ledgers(self) -> str:
        return f"{self.underreplication}/ledgers"

    @property
    def underreplication_locks(self) -> str:
        return f"{self.underreplication}/locks"

    @property
    def underreplication_disable(self) -> str:
        return f"{self.underreplication}/disable"

    @property
    def lost_bookie_recovery_delay(self) -> str:
        return f"{self.underreplication}/lostBookieRecoveryDelay"

    @property
    def auditor_election(self) -> str:
        return f"{self.underreplication}/auditorelection"

    def bookie(self, bookie_id: str, *, readonly: bool = False) -> str:
        """Registration of a bookie that takes writes, or of one that only serves reads."""
        return f"{self.readonly if readonly else self.available}/{bookie_id}"

    def cookie(self, bookie_id: str) -> str:
        """What the bookie of this id must find on its disks."""
        return f"{self.cookies}/{bookie_id}"

    def underreplicated_ledger(self, ledger_id: int) -> str:
        """The mark of an under-replicated ledger: its id as four groups of hex digits."""
        digits = f"{ledger_id:016x}"
        groups = "/".join(digits[at : at + 4] for at in range(0, 16, 4))
        return f"{self.underreplicated_ledgers}/{groups}/urL{ledger_id:010d}"

    def underreplication_lock(self, ledger_id: int) -> str:
        """The ephemeral node of whoever repairs this ledger now."""
        return f"{self.underreplication_locks}/urL{ledger_id:010d}"

    def ledger(self, ledger_id: int, layout: LedgerLayout = LedgerLayout.HIERARCHICAL) -> str:
        """The node of a ledger's metadata."""
        invariant(0 <= ledger_id <= LEDGER_ID_MAX, "a ledger id has 63 bits")
        if layout is LedgerLayout.HIERARCHICAL and ledger_id <= SHORT_LEDGER_ID_MAX:
            digits = f"{ledger_id:010d}"
        else:
            digits = f"{ledger_id:019d}"
        first = len(digits) % 4
        groups = [digits[:first], *(digits[at : at + 4] for at in range(first, len(digits), 4))]
        return "/".join((self.root, *groups[:-1], f"L{groups[-1]}"))

    def ledger_id(self, path: str) -> int | None:
        """The ledger whose metadata lies at ``path``; ``None`` for any other node."""
        below = path.removeprefix(f"{self.root}/")
        match = _SHORT_PATH.fullmatch(below) or _LONG_PATH.fullmatch(below)
        if match is None or below == path:
            return None
        ledger_id = int("".join(match.groups()))
        return ledger_id if ledger_id <= LEDGER_ID_MAX else None
