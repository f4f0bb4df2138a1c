"""What can be set about a bookie: numbers with units, checked all at once, each explained.

Precedence rises from default over configuration file (TOML) and environment (``BOOKKEEPER_`` and
the name in capitals; the cluster as for every client, ``BOOKKEEPER_METADATA_URI``) to flag.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from typing import Any, TypeVar

from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.bookies import BOOKIE_ID_RULE, is_bookie_id
from bookkeeper_metadata.endpoints import PORT_MAX
from bookkeeper_metadata.environment import METADATA_URI_VARIABLE, read_metadata_uri
from bookkeeper_metadata.foundation.settings import Settings, setting
from bookkeeper_metadata.foundation.settings_sources import SettingsTable
from bookkeeper_metadata.foundation.tls.settings import TLS_VARIABLES, TlsFiles, TlsSettings
from bookkeeper_metadata.store.zookeeper_settings import ZOOKEEPER_VARIABLES, ZooKeeperSettings

_MIB = 1024 * 1024
ENVIRONMENT_PREFIX = "BOOKKEEPER_"
AUTORECOVERY_PREFIX = "BOOKKEEPER_AUTORECOVERY_"
"""Of variables, as the command's name says."""
REPLACE_FLAG = "--replace-lost-directories"
REPLACE_HELP = (
    "Directories that are missing or empty are lost: take new ones in their place. Of one that lost its "
    "cookie or start counter the records are kept. The bookie then denies nothing it may have stored. "
    "A flag for one start, never a setting."
)
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, kw_only=True)
class CommonSettings(Settings):
    """What a process that runs for long is told of its cluster, what it shows of itself, and how it logs."""

    metadata_service_uri: str = "zk+hierarchical://127.0.0.1:2181/ledgers"
    """Where the cluster's metadata lives, in Apache's notation."""
    http_host: str = "127.0.0.1"
    """Address to show metrics and health on. Beyond loopback it needs `insecure`."""
    http_port: int = setting(0, minimum=0, maximum=PORT_MAX)
    """TCP port of `/metrics`, `/healthz` and, of a bookie, `/readyz` (Apache's httpServerPort); over TLS where there is a certificate. 0: none is opened."""
    insecure: bool = False
    """Allow a host beyond loopback that TLS does not protect: anybody who reaches the port can read, and write what it takes."""
    log_level: str = setting("info", one_of=LOG_LEVELS)
    """Least severe event logged: debug, info, warning or error."""
    log_format: str = setting("text", one_of=LOG_FORMATS)
    """One line per event: `text` with key=value facts, or `json` for machines."""


@dataclass(frozen=True, kw_only=True)
class ProcessSettings(ZooKeeperSettings, TlsSettings, CommonSettings):
    """What every process that runs for long is told."""

    def defects(self) -> list[str]:
        """An HTTP host open to the network in clear."""
        found = super().defects()
        if not self.tls_certificate_path:
            found += self._insecure_hosts("http_host", "set tls_certificate_path")
        return found

    @property
    def tls_of_http(self) -> TlsFiles | None:
        """What the HTTP port speaks TLS with; ``None``: it is in clear."""
        return self.tls_files if self.tls_certificate_path else None

    @property
    def connection(self) -> ConnectionSettings:
        """How it connects to bookies."""
        return ConnectionSettings(**{name: getattr(self, name) for name in TLS_VARIABLES})

    def _insecure_hosts(self, name: str, remedy: str) -> list[str]:
        host = getattr(self, name)
        if self.insecure or is_loopback(host):
            return []
        return [
            f"BK_INSECURE: anybody could use a host beyond loopback as it is; {remedy}, or set "
            f"insecure to accept that; {name}={host}"
        ]


P = TypeVar("P", bound=ProcessSettings)


@dataclass(frozen=True, kw_only=True)
class PlaceSettings(ProcessSettings):
    """Where a bookie listens, and as what it registers."""

    bookie_id: str = ""
    """Name under which the bookie registers for good. Empty: `host:port`, which ties its data to its address."""
    host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback it needs TLS with certificates of clients, or `insecure`."""
    port: int = setting(3181, minimum=0, maximum=PORT_MAX)
    """TCP port of the gRPC service. 0 takes a free one, and needs a `bookie_id`."""
    socket_port: int = setting(0, minimum=0, maximum=PORT_MAX)
    """TCP port of the same service over plain sockets, on the same `host`: clients use it where there is one, and nothing
    else then. 0: none is opened, and clients use gRPC."""
    rpc_port: int = setting(3183, minimum=0, maximum=PORT_MAX)
    """TCP port of Apache BookKeeper's protocol, versions 2 and 3, on the same `host`: Java clients, `bookkeeper shell` and Apache's
    auto-recovery use it. 0: none is opened, and a Java client that shares the cluster chooses the bookie all the same, cannot
    reach it, and writes fewer copies until it has replaced it."""
    tls_client_authentication: bool = True
    """Refuse clients without a certificate that `tls_trust_path` vouches for (Apache's tlsClientAuthentication). False: what
    is sent is secret, and anybody may connect."""
    tls_client_names: tuple[str, ...] = ()
    """Common names of certificates that may read, write, fence and recover ledgers. Empty: all that are vouched for."""
    tls_bookie_names: tuple[str, ...] = ()
    """Common names that may ask besides what a bookie holds: other bookies, and auto-recovery. Empty, as the next: all that are vouched for."""
    tls_admin_names: tuple[str, ...] = ()
    """Common names that may do whatever a bookie or a client may: for operators' commands."""
    autorecovery: bool = False
    """Run auto-recovery beside the bookie (Apache's autoRecoveryDaemonEnabled): a process of its own, which begins once
    the bookie is registered, ends with it and is started again if it dies. Its settings have variables, `BOOKKEEPER_AUTORECOVERY_...`, and a file."""
    autorecovery_config: str = ""
    """TOML file of its settings, as of `bookkeeper autorecovery --config`; its variables beat it. The bookie's settings say
    cluster, bookie and how to log: a file for another cluster or bookie is refused. Empty: none."""

    def defects(self) -> list[str]:
        """A bookie id that cannot be a ZooKeeper node, and a host open to the network."""
        found = super().defects()
        if self.bookie_id and not is_bookie_id(self.bookie_id):
            found.append(f"bookie_id must be {BOOKIE_ID_RULE}; bookie_id={self.bookie_id}")
        if not self.port and not self.bookie_id:
            found.append(
                "port 0 takes a free port, so the bookie's id would be an address that it never has "
                "again; name it with --bookie-id, or give a port; port=0"
            )
        ports = {name: getattr(self, name) for name in ("port", "socket_port", "rpc_port")}
        chosen = [port for port in ports.values() if port]
        if len(set(chosen)) < len(chosen):
            listed = " ".join(f"{name}={port}" for name, port in ports.items())
            found.append(f"each carrier needs a port of its own, or 0 for none; {listed}")
        is_asked = bool(self.tls_certificate_path and self.tls_client_authentication)
        if not is_asked:
            names = ("tls_client_names", "tls_bookie_names", "tls_admin_names")
            found += [
                f"{each} needs certificates of clients" for each in names if getattr(self, each)
            ]
        if not is_asked or (self.rpc_port and not self.tls_only):
            remedy = (
                "set tls_trust_path and tls_certificate_path, with tls_client_authentication and "
                "tls_only, or rpc_port to 0"
            )
            found += self._insecure_hosts("host", remedy)
        return found

    @property
    def registered_id(self) -> str:
        """The name under which it registers."""
        return self.bookie_id or f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class SpaceSettings(Settings):
    """What a bookie keeps free on each of its disks; what it has promised to write counts as used."""

    reserve_for_fences_bytes: int = setting(64 * _MIB)
    """Kept free on each disk for fences, indexes and whatever makes room again: no entries are written into it."""
    reserve_for_recovery_bytes: int = setting(64 * _MIB)
    """Kept free besides for recoveries (Apache's `minUsableSizeForHighPriorityWrites`). With less free, a bookie is read-only."""
    writable_margin_bytes: int = setting(64 * _MIB)
    """What must be free beyond both reserves before it takes new entries again. Larger: it changes less often."""

    @property
    def full_below_bytes(self) -> int:
        """Free bytes below which no entries are taken at all."""
        return self.reserve_for_fences_bytes

    @property
    def read_only_below_bytes(self) -> int:
        """Free bytes below which no new entries are taken."""
        return self.full_below_bytes + self.reserve_for_recovery_bytes

    @property
    def writable_above_bytes(self) -> int:
        """Free bytes at which new entries are taken again."""
        return self.read_only_below_bytes + self.writable_margin_bytes


@dataclass(frozen=True, kw_only=True)
class LayoutSettings(SpaceSettings):
    """How a bookie lays its bytes out."""

    journal_directories: tuple[str, ...] = ()
    """Directories of the journals, one thread and one sync queue each; best a disk of their own each."""
    ledger_directories: tuple[str, ...] = ()
    """Directories of entry logs and index; a ledger stays in one. New ones come last: see the next."""
    allow_storage_expansion: bool = False
    """Take empty directories that were added behind the known ones. False: they are refused, as a disk not mounted."""
    journal_file_size_bytes: int = setting(256 * _MIB, minimum=64 * 1024)
    """Size at which a journal file is left for the next. Larger: fewer rolls, more disk kept after a checkpoint."""
    journal_zero_chunk_bytes: int = setting(8 * _MIB, minimum=4096)
    """How much is zero-filled ahead at a time. Larger: fewer syncs in the background, each competing longer."""
    write_cache_size_bytes: int = setting(64 * _MIB, minimum=4096)
    """Synced bytes kept in memory before a checkpoint starts. Larger: fewer, larger entry logs, longer replay.
    Much smaller than the default: a fast writer has a checkpoint begun, with a file and a sync for each directory, many times a second."""
    block_size_bytes: int = setting(64 * 1024, minimum=512, maximum=4 * _MIB)
    """Unit of index and checksum in an entry log. Larger: smaller index, more read for one small entry."""

    @property
    def cached_bytes_max(self) -> int:
        """Of entries in no entry log yet, before none are taken: one cache is being written out, another fills."""
        return 2 * self.write_cache_size_bytes


@dataclass(frozen=True, kw_only=True)
class StorageSettings(LayoutSettings):
    """A layout that names its directories, each for one purpose; what the storage needs."""

    @property
    def directories(self) -> tuple[str, ...]:
        """All of them, journals first."""
        return *self.journal_directories, *self.ledger_directories

    def defects(self) -> list[str]:
        """Directories that are not named, or named twice."""
        found = []
        for name in ("journal_directories", "ledger_directories"):
            directories = getattr(self, name)
            if not directories or len(set(directories)) != len(directories):
                found.append(f"{name} must name at least one directory, each once")
        if set(self.journal_directories) & set(self.ledger_directories):
            found.append("journal_directories and ledger_directories must not share a directory")
        return found


@dataclass(frozen=True, kw_only=True)
class BookieSettings(LayoutSettings, PlaceSettings):
    """All settings of one bookie process."""

    group_bytes_max: int = setting(4 * _MIB, minimum=4096)
    """Bytes one journal write takes at most. Larger: more throughput, longer waits behind a group."""
    checkpoint_interval_ms: int = 10_000
    """Longest time between checkpoints when something changed (Apache's flushInterval is 10 s). One of next to nothing,
    below a 64th of `write_cache_size_bytes`, waits six times as long."""
    gc_interval_ms: int = setting(30_000, minimum=100)
    """Time between two looks for deleted ledgers (Apache's gcWaitTime); what two find gone is deleted."""
    surplus_check_interval_ms: int = setting(21_600_000, minimum=0)
    """Time between two looks for copies too many: closed ledgers whose metadata names this bookie no more (Apache's
    gcOverreplicatedLedgerWaitTime). 0: none."""
    minor_compaction_interval_ms: int = 60_000
    """Time between two looks for entry logs that are nearly empty, or many and small."""
    minor_compaction_live_percent: int = setting(20, minimum=0, maximum=100)
    """Of logs of which less lives, the rest is copied to a new one (Apache's minorCompactionThreshold)."""
    major_compaction_interval_ms: int = 3_600_000
    """Time between two looks for entry logs that are partly dead."""
    major_compaction_live_percent: int = setting(80, minimum=0, maximum=100)
    """The same share for these (Apache's majorCompactionThreshold). Higher: less disk, more copying."""
    compaction_merge_count: int = setting(8, minimum=2)
    """Entry logs of about the same size that become one. Lower: fewer files and rows, more copying."""
    compaction_bytes_per_second: int = setting(32 * _MIB, minimum=0)
    """Pace of both (Apache's compactionRateByBytes). 0: nothing is rewritten."""
    integrity_check_interval_ms: int = setting(10_000, minimum=100)
    """Time between two looks at ledgers in limbo, or with damaged entries: what they lack is marked for auto-recovery,
    and limbo ends where nothing is lacking (Apache's dataIntegrityChecking)."""
    scrub_interval_ms: int = setting(604_800_000, minimum=0)
    """Time between two walks through all that is stored, to find what cannot be read (Apache's localScrubInterval). 0: none."""
    scrub_bytes_per_second: int = setting(8 * _MIB, minimum=1)
    """Pace of both (Apache's localScrubRateLimit counts entries). A terabyte takes a day and a half."""
    read_threads: int = 4
    """Threads that read entry logs; each holds one reply's worth at a time, up to 2 MiB."""
    adds_in_progress_bytes_max: int = setting(32 * _MIB, minimum=8 * _MIB)
    """Memory of adds that are not answered yet; further frames wait in their clients (bounds bytes where
    Apache's maxAddsInProgressLimit counts). Larger: more clients at full load."""
    reads_in_progress_bytes_max: int = setting(32 * _MIB, minimum=8 * _MIB)
    """Memory of entries on their way to readers; further reads wait (Apache counts: maxReadsInProgressLimit). A read of 2 MiB
    takes 4 until it is on its way, and 2 until its client has it."""
    response_backpressure_timeout_ms: int = 10_000
    """Who leaves a reply untaken for so long while reads of others wait for room is disconnected (Apache's
    waitTimeoutOnResponseBackpressureMs and closeChannelOnResponseTimeout)."""
    connections_max: int = 10_000
    """Connections at a time, as many for each carrier that has a port; further ones are refused. A client over sockets takes
    two. Less where the system allows fewer open files (ulimit -n)."""
    drain_timeout_ms: int = setting(10_000, minimum=0)
    """How long a stopping bookie waits for what it has begun; a second SIGTERM ends it at once."""

    @property
    def storage(self) -> StorageSettings:
        """The settings of the storage.

        Raises:
            ValueError: directories are missing or clash.
        """
        names = (field.name for field in dataclasses.fields(StorageSettings))
        return StorageSettings(**{name: getattr(self, name) for name in names})


def is_loopback(host: str) -> bool:
    """Whether ``host`` can only be reached from this machine. Other names are not resolved."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def bookie_settings_table() -> SettingsTable[BookieSettings]:
    """All settings of a bookie."""
    return settings_table(BookieSettings, ENVIRONMENT_PREFIX)


def settings_table(kind: type[P], prefix: str) -> SettingsTable[P]:
    """All settings of a process; the variables of the cluster, of TLS and of how to get into ZooKeeper are the same for each."""
    shared = {"metadata_service_uri": METADATA_URI_VARIABLE, **TLS_VARIABLES, **ZOOKEEPER_VARIABLES}
    return SettingsTable(kind, prefix, shared)


def load_settings(
    table: SettingsTable[P],
    *,
    config_path: str | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
) -> P:
    """As :meth:`SettingsTable.load`; the cluster may be named by its old variable, too."""
    uri = read_metadata_uri(environment)
    others = {name: each for name, each in environment.items() if name != METADATA_URI_VARIABLE}
    named = others if uri is None else {**others, METADATA_URI_VARIABLE: uri}
    return table.load(config_path=config_path, environment=named, flags=flags)


def load_bookie_settings(
    *, config_path: str | None = None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> BookieSettings:
    """Those of a bookie; raises as :meth:`SettingsTable.load` does."""
    return load_settings(
        bookie_settings_table(), config_path=config_path, environment=environment, flags=flags
    )
