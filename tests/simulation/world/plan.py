"""How the bookies of a world are set up."""

from __future__ import annotations

from dataclasses import dataclass, field

from bookie_server.settings import BookieSettings
from tests.simulation.world.workers import DiskPace


@dataclass(frozen=True, slots=True, kw_only=True)
class BookiePlan:
    """How this world's bookies are set up; small numbers, so that files roll within seconds."""

    directories: int = 1
    checkpoint_interval_ms: int = 1_000
    write_cache_size_bytes: int = 4096
    session_timeout_us: int = 2_000_000
    gc_interval_ms: int = 1_000
    compaction_interval_ms: int = 1_000
    compaction_merge_count: int = 8
    pace: DiskPace = field(default_factory=DiskPace)


def settings_of(name: str, plan: BookiePlan) -> BookieSettings:
    """Of one bookie."""
    return BookieSettings(
        bookie_id=name,
        journal_directories=tuple(f"/j{n}" for n in range(plan.directories)),
        ledger_directories=tuple(f"/l{n}" for n in range(plan.directories)),
        journal_file_size_bytes=64 * 1024,
        journal_zero_chunk_bytes=8 * 1024,
        write_cache_size_bytes=plan.write_cache_size_bytes,
        checkpoint_interval_ms=plan.checkpoint_interval_ms,
        block_size_bytes=512,
        gc_interval_ms=plan.gc_interval_ms,
        surplus_check_interval_ms=700,
        integrity_check_interval_ms=200,
        scrub_interval_ms=500,
        minor_compaction_interval_ms=plan.compaction_interval_ms,
        major_compaction_interval_ms=2 * plan.compaction_interval_ms,
        major_compaction_live_percent=100,
        compaction_merge_count=plan.compaction_merge_count,
        reserve_for_fences_bytes=256 * 1024,
        reserve_for_recovery_bytes=128 * 1024,
        writable_margin_bytes=128 * 1024,
    )
