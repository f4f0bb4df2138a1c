"""LocalCluster: a genuine ZooKeeper and N bookies on this machine, for development and tests.

The processes are the production ones; only addresses are loopback and directories are chosen here.
All of them are children of a guard process and never outlive whoever started the cluster, not even
by ``kill -9``. With a ``directory`` the cluster's identity (ports, hence bookie ids, and data)
survives; without one everything is temporary and gone after :meth:`LocalCluster.stop`.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

from bookkeeper_metadata.foundation.invariant import invariant
from spark_bookkeeper.local.auto_recovery import LOST_BOOKIE_DELAY_MS, LocalAutoRecovery
from spark_bookkeeper.local.bookie import LocalBookie, wait_until_serving
from spark_bookkeeper.local.errors import LocalDirectoryInUseError, directory_refusals
from spark_bookkeeper.local.guard import Guard
from spark_bookkeeper.local.ports import LOOPBACK, free_port, is_listening
from spark_bookkeeper.local.readiness import initialize_once, run_in_thread
from spark_bookkeeper.local.restarts import Restarts
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess

LEDGERS_ROOT = "/ledgers"
STATE_FORMAT = 1
_CARRIERS = (_SOCKETS, _RPC) = ("sockets", "rpc")
"""Names of carriers in the state, beside gRPC, whose ports are in the bookies' ids."""


class LocalCluster:
    """A cluster that lives as long as this object's ``with`` block, or from start to stop.

    ``bookies`` is the least number of bookies; a ``directory`` that has seen more starts them all,
    for their data is part of the cluster's. ``port`` is ZooKeeper's; drawn once when ``None``.
    ``bookie_settings`` go into every bookie's configuration file, by their names there.
    ``replace_lost_directories`` names bookies by their ids whose missing directories are lost for good.
    ``restart_bookies`` starts a bookie again that died, but none that was stopped or killed here.
    ``autorecovery`` runs the process that copies again what lost bookies held.

    Raises:
        ValueError: the arguments do not make a cluster.
    """

    def __init__(
        self,
        bookies: int = 3,
        *,
        directory: str | Path | None = None,
        port: int | None = None,
        bookie_settings: Mapping[str, Any] | None = None,
        restart_bookies: bool = False,
        autorecovery: bool = False,
        replace_lost_directories: Collection[str] = (),
    ) -> None:
        defects = []
        if bookies < 1:
            defects.append(f"bookies must be at least 1, got {bookies}")
        if port is not None and not 0 < port < 65536:
            defects.append(f"port must be between 1 and 65535, got {port}")
        if defects:
            raise ValueError("; ".join(defects))
        self._bookie_count_min = bookies
        self._kept_directory = None if directory is None else Path(directory).absolute()
        self._port_wanted = port
        self._bookie_settings = dict(bookie_settings or {})
        self._directory: Path | None = None
        self._lock: IO[str] | None = None
        self._guard: Guard | None = None
        self._zookeeper: ZooKeeperProcess | None = None
        self._bookies: list[LocalBookie] = []
        self._ports_taken: set[int] = set()
        self._carrier_ports: dict[str, dict[int, int]] = {}
        """By carrier and the ports of bookies."""
        self._owner_pid = os.getpid()
        self._replaced = frozenset(replace_lost_directories)
        self._restarts = Restarts() if restart_bookies else None
        self._heals = autorecovery
        self._auto_recovery: LocalAutoRecovery | None = None

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def metadata_service_uri(self) -> str:
        """What clients connect to, e.g. ``zk+hierarchical://127.0.0.1:2181/ledgers``."""
        return f"zk+hierarchical://{LOOPBACK}:{self.zookeeper.port}{LEDGERS_ROOT}"

    @property
    def bookies(self) -> list[LocalBookie]:
        """Every bookie of the cluster, running or not, in the order they joined."""
        return list(self._bookies)

    @property
    def zookeeper(self) -> ZooKeeperProcess:
        """The ZooKeeper process: ``stop()``, ``start()`` and ``kill()`` it as you like."""
        invariant(self._zookeeper is not None, "a cluster is used after start() and before stop()")
        assert self._zookeeper is not None
        return self._zookeeper

    @property
    def auto_recovery(self) -> LocalAutoRecovery | None:
        """The process that heals; ``None`` without ``autorecovery``."""
        return self._auto_recovery

    @property
    def directory(self) -> Path:
        """Where the cluster's data and logs are."""
        invariant(self._directory is not None, "a cluster is used after start() and before stop()")
        assert self._directory is not None
        return self._directory

    def start(self) -> None:
        """Start the processes that do not run, and wait until all of them serve.

        Raises:
            LocalStartError: a process did not come up; everything is stopped again.
            LocalDirectoryInUseError: another cluster runs in ``directory``.
            LocalDirectoryError: ``directory`` cannot be made or written to.
        """
        try:
            if self._guard is None:
                self._prepare()
            if not self.zookeeper.is_running:
                self.zookeeper.start()
            run_in_thread(initialize_once(self.metadata_service_uri))
            down = [bookie for bookie in self._bookies if not bookie.is_running]
            for bookie in down:
                bookie.spawn(replace_lost_directories=bookie.bookie_id in self._replaced)
            wait_until_serving(down)
            if self._heals or self._auto_recovery is not None:
                self.start_auto_recovery()
            if self._restarts is not None:
                self._restarts.begin(lambda: self.bookies)
        except BaseException:
            self.stop()
            raise

    def start_auto_recovery(
        self, lost_bookie_delay_ms: int = LOST_BOOKIE_DELAY_MS
    ) -> LocalAutoRecovery:
        """Run the process that copies again what lost bookies held, from now on; nothing if it runs.

        ``lost_bookie_delay_ms``: how long it waits for a single bookie, by default until it was started again.
        """
        invariant(self._guard is not None, "a cluster is used after start() and before stop()")
        assert self._guard is not None
        if self._auto_recovery is None:
            self._auto_recovery = LocalAutoRecovery(
                self._guard,
                directory=self.directory,
                metadata_service_uri=self.metadata_service_uri,
                http_port=free_port(self._ports_taken),
                lost_bookie_delay_ms=lost_bookie_delay_ms,
                settings=self._bookie_settings,
            )
        self._auto_recovery.start()
        return self._auto_recovery

    def add_bookie(self) -> LocalBookie:
        """Start one more bookie, empty, and return it once it serves.

        Raises:
            LocalStartError: it did not come up; the cluster is as it was.
        """
        bookie = self._new_bookie(free_port(self._ports_taken), len(self._bookies))
        try:
            bookie.start()
        except BaseException:
            bookie.kill()
            raise
        # Recorded only now: one that never served must not be started with the cluster from then
        # on.
        self._bookies.append(bookie)
        self._save()
        return bookie

    def stop(self) -> None:
        """Stop bookies, then ZooKeeper; remove the data unless a directory was given. Idempotent."""
        if self._guard is None or self._owner_pid != os.getpid():
            return  # a forked child must not stop its parent's cluster
        if self._restarts is not None:
            self._restarts.end()
        # First, or it would take the bookies that stop for lost ones.
        if self._auto_recovery is not None:
            self._auto_recovery.stop()
        # All drain at the same time, and while ZooKeeper is there to take back their registrations.
        for bookie in self._bookies:
            bookie.begin_stop()
        for bookie in self._bookies:
            bookie.stop()
        if self._zookeeper is not None:
            self._zookeeper.stop()
        self._guard.close()
        if self._lock is not None:
            self._lock.close()
        self._guard = self._zookeeper = self._directory = self._lock = None
        self._auto_recovery = None
        self._bookies = []
        self._ports_taken = set()

    def _prepare(self) -> None:
        """Choose or read the directory and the ports; starts no process but the guard."""
        if self._kept_directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="bookkeeper-local-"))
            self._guard = Guard(remove=self._directory)
            # Somebody may give the directory of this cluster to another one.
            self._lock = _lock(self._directory)
        else:
            self._directory = self._kept_directory
            with directory_refusals(self._directory):
                self._directory.mkdir(parents=True, exist_ok=True)
                self._lock = _lock(self._directory)
            self._guard = Guard()
        state = self._load()
        self._carrier_ports = {name: dict(state.get(name, ())) for name in _CARRIERS}
        of_carriers = [port for ports in self._carrier_ports.values() for port in ports.values()]
        known = (self._port_wanted, state["zookeeper"], *state["bookies"], *of_carriers)
        # Taken whether somebody listens there or not: the processes are down, and their bookies'
        # ids are made of these ports.
        self._ports_taken = {port for port in known if port is not None}
        port = self._port_wanted or state["zookeeper"] or free_port(self._ports_taken)
        self._zookeeper = ZooKeeperProcess(
            self._directory / "zookeeper", port, popen=self._guard.popen
        )
        ports = list(state["bookies"])
        while len(ports) < self._bookie_count_min:
            ports.append(free_port(self._ports_taken))
        self._bookies += [self._new_bookie(each, index) for index, each in enumerate(ports)]
        # Before any process starts: data without its ports could not be found again.
        self._save()

    def _new_bookie(self, port: int, index: int) -> LocalBookie:
        invariant(self._guard is not None, "a cluster is used after start() and before stop()")
        assert self._guard is not None
        return LocalBookie(
            self._guard,
            port=port,
            http_port=free_port(self._ports_taken),
            socket_port=self._carrier_port(_SOCKETS, port),
            rpc_port=self._carrier_port(_RPC, port),
            directory=self.directory / f"bookie{index}",
            metadata_service_uri=self.metadata_service_uri,
            settings=self._bookie_settings,
        )

    def _carrier_port(self, carrier: str, port: int) -> int:
        """Where another carrier reaches the bookie of this port: where it did before, so clients that know it go on at once."""
        ports = self._carrier_ports[carrier]
        if port not in ports or is_listening(ports[port]):
            ports[port] = free_port(self._ports_taken)
        return ports[port]

    def _load(self) -> dict[str, Any]:
        """ZooKeeper's port and the bookies' ports, as the last start in this directory left them."""
        try:
            state: dict[str, Any] = json.loads(self._state_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"format": STATE_FORMAT, "zookeeper": None, "bookies": []}
        if state.get("format") != STATE_FORMAT:
            raise ValueError(
                f"{self._state_path} was written by another version; choose another directory"
            )
        return state

    def _save(self) -> None:
        """Record the ports; written aside and renamed, for a torn file would orphan the data."""
        state = {
            "format": STATE_FORMAT,
            "zookeeper": self.zookeeper.port,
            "bookies": [bookie.port for bookie in self._bookies],
            # Of versions that have them: nothing is lost with these.
            _SOCKETS: [[bookie.port, bookie.socket_port] for bookie in self._bookies],
            _RPC: [[bookie.port, bookie.rpc_port] for bookie in self._bookies],
        }
        aside = self._state_path.with_suffix(".tmp")
        aside.write_text(json.dumps(state) + "\n", encoding="utf-8")
        aside.replace(self._state_path)

    @property
    def _state_path(self) -> Path:
        return self.directory / "cluster.json"


def _lock(directory: Path) -> IO[str]:
    """An open file whose lock keeps a second cluster out of ``directory`` until it is closed."""
    lock = (directory / "cluster.lock").open("a", encoding="utf-8")
    try:
        # The kernel's lock ends with the process, however that ends; a file that marks a running
        # cluster would stay behind after a kill.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise LocalDirectoryInUseError(str(directory)) from None
    return lock
