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
"""The child of ``available`` that is a folder, not a bookie."""

_DEFAULT_PORT = 2181
_URI = re.compile(r"zk(?:\+(?P<layout>[a-z]+))?://(?P<servers>[^/]+)(?P<root>/.*)")
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")
_ROOT = re.compile(r"(?:/[^/\s]+)+")
_SHORT_PATH = re.compile(r"([0-9]{2})/([0-9]{4})/L([0-9]{4})")
_MARK = re.compile(r"urL(\d{10,19})")
_LONG_PATH = re.compile(r"([0-9]{3})/([0-9]{4})/([0-9]{4})/([0-9]{4})/L([0-9]{4})")


@unique
class LedgerLayout(Enum):
    """How ledger ids become paths; the value is its name in a URI."""

    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "longhierarchical"


@unique
class PeriodicCheck(Enum):
    """What an auditor looks at now and then; the value is the name of the node that says when it did."""

    ALL_LEDGERS = "checkallledgersctime"
    """First and last entry of each fragment, on each of its bookies."""
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"
    """Every bookie's list of entries."""


def mark_name(ledger_id: int) -> str:
    """The name of a ledger's mark, and of the lock on it."""
    return f"urL{ledger_id:010d}"


def marked_ledger(name: str) -> int | None:
    """The inverse of ``mark_name``; ``None`` for any other name."""
    match = _MARK.fullmatch(name)
    ledger_id = int(match[1]) if match else -1
    return ledger_id if 0 <= ledger_id <= LEDGER_ID_MAX and mark_name(ledger_id) == name else None


@dataclass(frozen=True, slots=True)
class MetadataServiceUri:
    """A parsed ``zk+hierarchical://h1:2181;h2:2181/ledgers``."""

    servers: tuple[str, ...]
    """``host:port`` each."""
    root: str
    """Path of the cluster, e.g. ``/ledgers``."""
    layout: LedgerLayout | None
    """``None`` (``zk://``, ``zk+null://``): the cluster's LAYOUT decides."""

    def __str__(self) -> str:
        scheme = "zk" if self.layout is None else f"zk+{self.layout.value}"
        return f"{scheme}://{';'.join(self.servers)}{self.root}"


def parse_uri(uri: str) -> MetadataServiceUri:
    """Parse a metadata service URI; servers without a port get 2181.

    Raises:
        ValueError: it is not one, or names a layout this project does not write.
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
    # Apache's URIs put semicolons between servers, ZooKeeper's connection strings commas.
    servers = tuple(_parse_server(server, uri) for server in re.split("[;,]", match["servers"]))
    return MetadataServiceUri(servers, root, layouts.get(word) if word else None)


def _parse_server(server: str, uri: str) -> str:
    match = _SERVER.fullmatch(server)
    if match is None or not 0 < int(match["port"] or _DEFAULT_PORT) < 65536:
        raise ValueError(f"not a host:port: {server!r} in metadata service URI {uri!r}")
    return f"{match['host']}:{match['port'] or _DEFAULT_PORT}"


class _Below:
    """A node at a fixed place below the cluster's root; read from ``Paths``, it is the node's path."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, paths: Paths, owner: type[Paths]) -> str:
        return f"{paths.root}/{self._place}"


@dataclass(frozen=True, slots=True)
class Paths:
    """Every node name below one cluster's root."""

    root: str

    layout = _Below("LAYOUT")
    instance_id = _Below("INSTANCEID")
    available = _Below("available")
    readonly = _Below(f"available/{READONLY}")
    cookies = _Below("cookies")
    idgen = _Below("idgen")
    idgen_long = _Below("idgen-long")
    underreplication = _Below("underreplication")
    underreplication_layout = _Below("underreplication/LAYOUT")
    underreplicated_ledgers = _Below("underreplication/ledgers")
    underreplication_locks = _Below("underreplication/locks")
    underreplication_disable = _Below("underreplication/disable")
    auditor_election = _Below("underreplication/auditorelection")
    lost_bookie_delay = _Below("underreplication/lostBookieRecoveryDelay")

    @property
    def of_bookies(self) -> str:
        """What Apache's tree has no place for; it lies beside it."""
        return f"{self.root}-bookies"

    def bookie(self, bookie_id: str, *, readonly: bool = False) -> str:
        """The registration of a bookie, under ``readonly`` if it only serves reads."""
        return f"{self.readonly if readonly else self.available}/{bookie_id}"

    def cookie(self, bookie_id: str) -> str:
        """The cookie of a bookie."""
        return f"{self.cookies}/{bookie_id}"

    def start_counter(self, bookie_id: str) -> str:
        """How often a bookie has started; beside Apache's tree, as the logs are."""
        return f"{self.of_bookies}/{bookie_id}/starts"

    def readonly_wish(self, bookie_id: str) -> str:
        """Exists while an operator wants the bookie to take no new entries; beside its start counter."""
        return f"{self.of_bookies}/{bookie_id}/readonly"

    def mark(self, ledger_id: int) -> str:
        """The mark that a ledger lacks copies: the id in hexadecimal, a folder for each 16 bits."""
        invariant(0 <= ledger_id <= LEDGER_ID_MAX, "a ledger id has 63 bits")
        digits = f"{ledger_id:016x}"
        folders = "/".join(digits[at : at + 4] for at in range(0, 16, 4))
        return f"{self.underreplicated_ledgers}/{folders}/{mark_name(ledger_id)}"

    def mark_lock(self, ledger_id: int) -> str:
        """Exists while somebody mends this ledger."""
        return f"{self.underreplication_locks}/{mark_name(ledger_id)}"

    def last_check(self, check: PeriodicCheck) -> str:
        """When such a check was made last."""
        return f"{self.underreplication}/{check.value}"

    def ledger(self, ledger_id: int, layout: LedgerLayout = LedgerLayout.HIERARCHICAL) -> str:
        """The node of a ledger's metadata."""
        invariant(0 <= ledger_id <= LEDGER_ID_MAX, "a ledger id has 63 bits")
        if layout is LedgerLayout.HIERARCHICAL and ledger_id <= SHORT_LEDGER_ID_MAX:
            digits = f"{ledger_id:010d}"
        else:
            digits = f"{ledger_id:019d}"
        # 10 digits become 2/4/4 and 19 become 3/4/4/4/4, so the length of the first level tells the
        # two families apart.
        first = len(digits) % 4
        groups = [digits[:first], *(digits[at : at + 4] for at in range(first, len(digits), 4))]
        return "/".join((self.root, *groups[:-1], f"L{groups[-1]}"))

    def ids_below(
        self, folder: str, layout: LedgerLayout = LedgerLayout.HIERARCHICAL
    ) -> tuple[int, int]:
        """The first and the last id of ledgers whose metadata may lie below a folder; the last one is less where none may."""
        names = folder.removeprefix(f"{self.root}/").split("/")
        digits = "".join(names)
        is_long = len(names[0]) == 3
        missing = (19 if is_long else 10) - len(digits)
        first = int(digits) * 10**missing
        last = min(first + 10**missing - 1, LEDGER_ID_MAX if is_long else SHORT_LEDGER_ID_MAX)
        if is_long and layout is LedgerLayout.HIERARCHICAL:
            first = max(first, SHORT_LEDGER_ID_MAX + 1)
        return first, last

    def ledger_id(self, path: str) -> int | None:
        """The ledger whose metadata lies at ``path``; ``None`` for any other node."""
        below = path.removeprefix(f"{self.root}/")
        match = _SHORT_PATH.fullmatch(below) or _LONG_PATH.fullmatch(below)
        if match is None or below == path:
            return None
        ledger_id = int("".join(match.groups()))
        # 19 digits hold more than 63 bits do.
        return ledger_id if ledger_id <= LEDGER_ID_MAX else None
