"""Auto-recovery beside a bookie: a process of its own, whose copying takes no time of the bookie's interpreter.

It begins when the bookie is registered: before, it would take its own bookie for lost, as any auditor does, and have all
of its ledgers marked and copied. It is started again if it dies, and ends within seconds of the bookie: when its standard input ends, which is a pipe that
only the bookie's process holds, and which the kernel closes however that one ends.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bookie_server.settings import AUTORECOVERY_PREFIX, BookieSettings
from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.foundation.defects import raise_all
from bookkeeper_metadata.foundation.tls.settings import TLS_VARIABLES
from bookkeeper_metadata.paths import parse_uri
from spark_bookkeeper.cli.processes.autorecovery import load_auto_recovery_settings
from spark_bookkeeper.local.environment import package_environment
from spark_bookkeeper.replication.settings import auto_recovery_settings_table

_LOGGER = logging.getLogger(__name__)
_CERTIFICATE = {"tls_certificate_path", "tls_key_path"}
_LOG_SETTINGS = ("log_format", "log_level")
_ACL = "zookeeper_acl"
_PAUSE_S_MIN = 1.0
_PAUSE_S_MAX = 60.0
_STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Command:
    """How a process is started."""

    line: Sequence[str]
    """Which every user of the machine may read."""
    environment: Mapping[str, str]
    """Variables that it has besides."""


def auto_recovery_beside(settings: BookieSettings) -> Command | None:
    """What runs it beside this bookie; ``None`` where the settings do not want it.

    Its own settings come from their file, and before that from their variables. What the bookie's say as well - cluster,
    bookie and how to log - is the bookie's: where its own say otherwise they are refused, or for the log it is told.

    Raises:
        ValueError: its own settings make no sense, their file cannot be read, or they are for another bookie or cluster.
    """
    if not settings.autorecovery:
        return None
    config = settings.autorecovery_config or None
    flags = {
        "bookie": settings.registered_id,
        "metadata_service_uri": settings.metadata_service_uri,
        "log_level": settings.log_level,
        "log_format": settings.log_format,
    }
    try:
        own = _given(config)
        # As the bookie gets into ZooKeeper, unless it is to be another user there.
        ways = settings.of_zookeeper().items()
        flags |= {name: value for name, value in ways if value and name not in own}
        _refuse_others(own, flags)
        shared = {name: getattr(settings, name) for name in TLS_VARIABLES if name not in own}
        # The one is of no use without the other.
        if _CERTIFICATE & own.keys():
            shared = {name: value for name, value in shared.items() if name not in _CERTIFICATE}
        load_auto_recovery_settings(config, {**flags, **shared})
    except OSError as cause:
        raise ValueError(f"autorecovery_config cannot be read: {cause}") from cause
    # From others' hashes their passwords can be guessed.
    hidden = {_variable_of(_ACL): acl} if (acl := flags.pop(_ACL, "")) else {}
    line = [sys.executable, "-m", "spark_bookkeeper.cli", "autorecovery"]
    line += ["--while-stdin-is-open", *(("--config", config) if config else ())]
    for name, value in {**flags, **shared}.items():
        if value == "":
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            line += [f"--{flag}", value]
    return Command(line, hidden)


def _variable_of(name: str) -> str:
    (variable,) = (s.variable for s in auto_recovery_settings_table().settings if s.name == name)
    return variable


def _given(config: str | None) -> Mapping[str, Any]:
    """What its own file and variables say."""
    # Not the cluster's variable, which is for all processes: there a flag of the bookie beats it, as ever.
    own = {name: each for name, each in os.environ.items() if name.startswith(AUTORECOVERY_PREFIX)}
    return auto_recovery_settings_table().given(config_path=config, environment=own)


def _refuse_others(given: Mapping[str, Any], of_bookie: Mapping[str, str]) -> None:
    """Say where its own settings are not the bookie's, which count."""
    defects = []
    for name in sorted(of_bookie.keys() & given.keys()):
        theirs, ours = of_bookie[name], given[name]
        if _is_same(name, theirs, ours):
            continue
        if name in _LOG_SETTINGS:
            _LOGGER.warning(
                "auto-recovery beside a bookie logs as the bookie's settings say, not as its own do. "
                "setting=%s bookies=%s its_own=%s",
                name,
                theirs,
                ours,
            )
        else:
            defects.append(
                f"auto-recovery beside a bookie has the bookie's {name}, and its own settings say another: "
                f"take it out of them (autorecovery_config, or {AUTORECOVERY_PREFIX}... in the environment), "
                f"or run `bookkeeper autorecovery` by itself; bookies={theirs} its_own={ours}"
            )
    raise_all(defects, None)


def _is_same(name: str, theirs: str, ours: str) -> bool:
    if name != "metadata_service_uri":
        return theirs == ours
    one, other = parse_uri(theirs), parse_uri(ours)
    # Each may name some of the servers only.
    return one.root == other.root and not set(one.servers).isdisjoint(other.servers)


class Companion(Closing):
    """A process that is kept running from ``begin`` until this is closed."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._reading, self._writing = os.pipe()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start it, without waiting. Idempotent, and nothing once this is closed."""
        if self._thread is None and not self._stopping.is_set():
            self._thread = threading.Thread(
                target=self._keep, name="auto-recovery-beside", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """End it, and wait until it has ended. Idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        # It ends by itself now: nobody holds the pipe that it reads.
        os.close(self._writing)
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)
            if self._thread.is_alive() and self._process is not None:
                self._process.kill()
            self._thread.join()
        os.close(self._reading)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command.line,
            stdin=self._reading,
            env={**package_environment(), **self._command.environment},
            # What is typed to the bookie's terminal is for the bookie, which ends this one when it is time.
            start_new_session=True,
        )

    def _keep(self) -> None:
        pause_s = _PAUSE_S_MIN
        while not self._stopping.is_set():
            begun_s = time.monotonic()
            try:
                self._process = self._spawn()
            except OSError as error:
                _LOGGER.warning(
                    "auto-recovery cannot be started yet. detail=%s pause_s=%.0f", error, pause_s
                )
            else:
                exit_code = self._process.wait()
                if self._stopping.is_set():
                    return
                if time.monotonic() - begun_s > _PAUSE_S_MAX:
                    pause_s = _PAUSE_S_MIN  # it had come to work
                _LOGGER.warning(
                    "auto-recovery ended, starting it again. exit_code=%s pause_s=%.0f",
                    exit_code,
                    pause_s,
                )
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
