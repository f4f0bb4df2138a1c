"""What auto-recovery may be told; every default says where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from bookie_server.settings import AUTORECOVERY_PREFIX, ProcessSettings, settings_table
from bookkeeper_metadata.foundation.settings import Settings, setting
from bookkeeper_metadata.foundation.settings_sources import SettingsTable


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings(Settings):
    """Numbers of one process of auto-recovery; validated on construction."""

    lost_bookie_delay_ms: int = setting(0, minimum=0)
    """How long a single bookie that is lost is waited for before its ledgers are marked; two at once are not
    waited for (Apache's lostBookieRecoveryDelay, 0 too). Longer than a restart takes, nothing is copied
    for one. What is written in the metadata counts instead."""
    bookie_check_interval_ms: int = 86_400_000
    """Time between two looks for ledgers of lost bookies, whatever the registrations say meanwhile (Apache's
    auditorPeriodicBookieCheckInterval)."""
    replicas_check_interval_ms: int = setting(86_400_000, minimum=0)
    """Time between two walks that ask bookies which entries they hold of each ledger (Apache's
    auditorPeriodicReplicasCheckInterval). 0: none."""
    ledgers_check_interval_ms: int = setting(604_800_000, minimum=0)
    """Time between two walks that read first and last entries from each bookie (Apache's
    auditorPeriodicCheckInterval). 0: none."""
    open_ledger_grace_ms: int = setting(30_000, minimum=0)
    """How long a writer has to replace a bookie that is gone by itself, before its ledger is taken from it
    (Apache's openLedgerRereplicationGracePeriod). An idle writer does not notice that a bookie is gone."""
    retry_ms_min: int = 5_000
    """How long a ledger waits that could not be mended (Apache's rwRereplicateBackoffMs); twice as long
    after each try, and no longer once a bookie comes that was not there."""
    retry_ms_max: int = 300_000
    """At most so long (Apache's lockReleaseOfFailedLedgerGracePeriod)."""
    poll_ms: int = 2_000
    """Time between two looks for marked ledgers, where the one before found nothing to do."""
    ledgers_at_once: int = 8
    """Ledgers that are mended at a time: small ones take round trips, not bytes. Each takes up to 12 MiB of memory."""
    bytes_per_second: int = setting(32 * 1024 * 1024, minimum=0)
    """How fast copies are made, to leave writers and readers their share; 0: as fast as can be."""

    def defects(self) -> list[str]:
        """What is wrong with these settings together."""
        found = super().defects()
        if self.retry_ms_max < self.retry_ms_min:
            found.append("retry_ms_max must not be below retry_ms_min")
        return found


@dataclass(frozen=True, kw_only=True)
class AutoRecoverySettings(ReplicationSettings, ProcessSettings):
    """All settings of a process of auto-recovery."""

    bookie: str = ""
    """Id of the bookie beside this process: it takes copies before others do."""
    logs_gc_interval_ms: int = setting(600_000, minimum=0)
    """Time between two collections of all logs by the process that is the auditor: what dead writers and overwrites left
    goes, and what retention lets go, as by `bookkeeper logs gc`. 0: none."""


@cache
def auto_recovery_settings_table() -> SettingsTable[AutoRecoverySettings]:
    """All settings of a process of auto-recovery."""
    return settings_table(AutoRecoverySettings, AUTORECOVERY_PREFIX)
