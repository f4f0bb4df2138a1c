"""What a scrape of a bookie shows: exact numbers of a bookie in this process, and disks that do not answer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bookie_server.bookie import Bookie
from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.observing.exposition import BookieExposition
from bookie_server.wire.messages import (
    BookieInfo,
    LongPoll,
    ReadLacRequest,
    ReadRequest,
    Status,
)
from tests.bookie_server.test_service import serving
from tests.doubles.records import KEY, encoded_section, write
from tests.doubles.storage import running_bookie


def scrape(bookie: Bookie) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(BookieExposition(bookie, BookieInfo("b:1"), bookie._settings))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        sample.name
        + "".join(f"{{{value}}}" for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


async def test_what_was_refused_is_no_byte_and_a_poll_is_no_latency(tmp_path: Path) -> None:
    async with serving(tmp_path, GrpcBookieClient) as (bookie, client, _):
        assert await write(client, encoded_section([b"x" * 100] * 3)) is Status.OK
        size = 3 * (100 + 40)  # with their headers and digests
        await client.read_lac(
            ReadLacRequest(
                7, long_poll=LongPoll(previous_lac=-1, timeout_ms=5, size_bytes_max=4_096)
            )
        )
        reply = await client.read_lac(ReadLacRequest(7))
        assert reply.status is Status.OK
        await client.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=2))
        await client.read(ReadRequest(ledger_id=7, first_entry=5, last_entry=5))
        fence = ReadRequest(
            ledger_id=7, first_entry=0, last_entry=0, is_fencing=True, master_key=KEY
        )
        await client.read(fence)
        assert await write(client, encoded_section([b"y"] * 2, 3)) is Status.FENCED

        found = scrape(bookie)

    assert found["bookie_write_entries_total"] == 3
    assert found["bookie_WRITE_BYTES"] == size
    assert found["bookkeeper_server_ADD_ENTRY_latency_count{true}"] == 1
    assert found["bookkeeper_server_ADD_ENTRY_latency_count{false}"] == 1
    assert found["bookkeeper_server_ADD_ENTRY_latency_sum{true}"] < 10_000
    assert found["bookkeeper_server_ADD_ENTRY_REJECTED{FENCED}"] == 1
    assert found["bookkeeper_server_ADD_ENTRY_REJECTED{READ_ONLY}"] == 0
    assert found["bookkeeper_server_READ_ENTRY_latency_count{true}"] == 2
    assert found["bookkeeper_server_READ_ENTRY_REJECTED{NO_ENTRY}"] == 1
    assert found["bookkeeper_server_READ_LAC_latency_count{true}"] == 1
    # The poll's proof is no record of it; see ReadLacReply.
    assert size + size // 3 <= found["bookie_READ_BYTES"] <= 3 * size
    journal = found["bookie_journal_JOURNAL_WRITE_BYTES{0}"]
    assert journal == bookie.storage.journals[0].written_bytes
    assert size < journal <= 4 * 4_096 * found["bookie_journal_JOURNAL_SYNC_latency_count{0}"]


async def test_limbo_is_counted_from_the_start(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as before:
        before.storage.contents.set_limbo([3, 4])
        before.storage.checkpoint_now()
    async with running_bookie(tmp_path) as bookie:
        assert scrape(bookie)["bookie_ledgers_in_limbo"] == 2


async def test_a_disk_that_is_gone_takes_no_other_number_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_bookie(tmp_path) as bookie:
        journal, ledgers = (
            *bookie._settings.journal_directories,
            *bookie._settings.ledger_directories,
        )
        well = scrape(bookie)
        asked = os.statvfs(ledgers)
        shutil.move(ledgers, f"{ledgers}-away")
        try:
            ill = scrape(bookie)
        finally:
            shutil.move(f"{ledgers}-away", ledgers)

    assert well[f"bookie_directory_failed{{{ledgers}}}"] == 0
    assert well[f"bookie_disk_total_bytes{{{ledgers}}}"] == asked.f_blocks * asked.f_frsize
    assert well[f"bookie_disk_free_bytes{{{ledgers}}}"] < asked.f_blocks * asked.f_frsize
    assert ill[f"bookie_directory_failed{{{ledgers}}}"] == 1
    assert ill[f"bookie_directory_failed{{{journal}}}"] == 0
    assert f"bookie_disk_free_bytes{{{ledgers}}}" not in ill
    assert ill["bookie_ledgers_count"] == well["bookie_ledgers_count"]
