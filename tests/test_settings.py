"""Every setting there is keeps to the limits its field states, and one error names all that do not."""

from __future__ import annotations

import dataclasses

import pytest

from bookie_server.client.settings import ConnectionSettings
from bookie_server.settings import BookieSettings, StorageSettings
from bookkeeper_metadata.foundation.settings import Settings, setting
from spark_bookkeeper.log.settings import LogWriterSettings, RetentionSettings
from spark_bookkeeper.replication.settings import AutoRecoverySettings
from spark_bookkeeper.settings import ClientSettings

NEEDED: dict[type[Settings], dict[str, object]] = {
    BookieSettings: {},
    StorageSettings: {"journal_directories": ("/j",), "ledger_directories": ("/l",)},
    ConnectionSettings: {},
    ClientSettings: {},
    LogWriterSettings: {},
    RetentionSettings: {},
    AutoRecoverySettings: {},
}
"""What each kind cannot be made without."""
MINIMA_OTHER_THAN_ONE = {
    "adds_in_progress_bytes_max": 8 * 1024 * 1024,
    "reads_in_progress_bytes_max": 8 * 1024 * 1024,
    "add_quorum_timeout_ms": 0,
    "block_size_bytes": 512,
    "bookie_wait_timeout_ms": 0,
    "deleted_ledger_retention_ms": 0,
    "drain_timeout_ms": 0,
    "explicit_lac_interval_ms": 0,
    "gc_interval_ms": 100,
    "group_bytes_max": 4096,
    "integrity_check_interval_ms": 100,
    "journal_file_size_bytes": 64 * 1024,
    "recovered_ledger_grace_ms": 0,
    "journal_zero_chunk_bytes": 4096,
    "compaction_bytes_per_second": 0,
    "compaction_merge_count": 2,
    "major_compaction_live_percent": 0,
    "min_write_quorum": 0,
    "minor_compaction_live_percent": 0,
    "roll_bytes": 0,
    "roll_entries": 0,
    "roll_interval_ms": 0,
    "scrub_interval_ms": 0,
    "surplus_check_interval_ms": 0,
    "logs_gc_interval_ms": 0,
    "bytes_per_second": 0,
    "open_ledger_grace_ms": 0,
    "ledgers_check_interval_ms": 0,
    "replicas_check_interval_ms": 0,
    "lost_bookie_delay_ms": 0,
    "speculative_read_timeout_ms": 0,
    "write_cache_size_bytes": 4096,
}


@pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: kind.__name__)
def test_a_number_below_its_minimum_is_refused_and_the_minimum_is_not(kind: type[Settings]) -> None:
    needed = NEEDED[kind]
    numbers = [field.name for field in dataclasses.fields(kind) if type(field.default) is int]

    for name in set(numbers) - {"port", "http_port", "socket_port", "rpc_port", "retry_ms_max"}:
        least = MINIMA_OTHER_THAN_ONE.get(name, 1)
        with pytest.raises(
            ValueError,
            match=rf"^{name} must be (at least {least}|{least}\.\.\d+); {name}={least - 1}$",
        ):
            kind(**{**needed, name: least - 1})
        assert getattr(kind(**{**needed, name: least}), name) == least


def test_a_longest_pause_is_not_below_the_shortest() -> None:
    with pytest.raises(ValueError, match=r"^retry_ms_max must not be below retry_ms_min$"):
        AutoRecoverySettings(retry_ms_min=2, retry_ms_max=1)
    assert AutoRecoverySettings(retry_ms_min=1, retry_ms_max=1).retry_ms_max == 1


def test_all_defects_of_a_value_are_named_at_once() -> None:
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Oven(Settings):
        temperature: int = setting(180, maximum=250)
        program: str = setting("bake", one_of=("bake", "grill"))
        is_open: bool = False

        def defects(self) -> list[str]:
            return ["close it first"] if self.is_open else []

    assert Oven(temperature=250, program="grill").is_open is False
    with pytest.raises(ValueError) as caught:
        Oven(temperature=300, program="fry", is_open=True)
    assert str(caught.value) == (
        "temperature must be 1..250; temperature=300; "
        "program must be one of bake, grill; program=fry; close it first"
    )
