"""Whatever system call of a bookie fails, and however: what it acknowledged is there at its next start.

A real process on a real disk; the calls fail by ``strace -e inject``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.messages import ReadRequest, Status
from spark_bookkeeper import LocalCluster
from tests.doubles.records import encoded_section, records, write
from tests.integration.injected import InjectedBookie, why_not
from tests.integration.processes import new_bookie_id
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.full]

ENTRIES_MAX = 150
LEDGERS = (7, 8)
WRITES = "pwritev,pwritev2"
"""Python takes the one or the other."""
CALLS = (WRITES, "fdatasync", "rename", "unlink", "openat")
PATIENT = ConnectionSettings(
    add_timeout_ms=120_000, read_timeout_ms=120_000, reconnect_timeout_ms=500
)
"""What a busy machine answers late is no wrong answer; what is not there fails soon."""
SHORTAGES = ("error=EMFILE", "error=ENFILE")
FAULTS = (
    *((call, "signal=KILL") for call in CALLS),
    *((call, "error=EIO") for call in CALLS),
    *((call, "error=ENOSPC") for call in (WRITES, "fdatasync", "openat")),
    *(("openat", fault) for fault in SHORTAGES),
)
MUST_END = {(WRITES, "error=EIO"), ("fdatasync", "error=EIO")}
"""Nothing more may be acknowledged after these. Of the others some end a bookie and some do not."""

cached_reason = cache(why_not)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    if reason := cached_reason():
        pytest.skip(reason)
    with LocalCluster(bookies=1) as running:
        yield running


@pytest.fixture
def bookie(cluster: LocalCluster, tmp_path: Path) -> Iterator[InjectedBookie]:
    bookie_id = new_bookie_id()
    bookie = InjectedBookie(cluster.metadata_service_uri, bookie_id, tmp_path)
    try:
        bookie.start()
        yield bookie
    finally:
        bookie.end()


SIZE = 1200


def entry(ledger_id: int, entry_id: int) -> dict[str, int]:
    """How an entry is packaged."""
    return {"ledger_id": ledger_id, "lac": entry_id - 1, "length_before": SIZE * entry_id}


def payloads(ledger_id: int, entry_id: int) -> list[bytes]:
    return [f"{ledger_id}/{entry_id}:".encode().ljust(SIZE, b".")]


async def add_until_it_ends(bookie: InjectedBookie) -> list[tuple[int, int]]:
    """Add one entry after the other; those that were acknowledged, as (ledger, entry)."""
    client = GrpcBookieClient(bookie.bookie_id, bookie.bookie_id, PATIENT)
    acknowledged: list[tuple[int, int]] = []
    try:
        for entry_id in range(ENTRIES_MAX):
            for ledger_id in LEDGERS:
                how = entry(ledger_id, entry_id)
                sent = encoded_section(payloads(ledger_id, entry_id), entry_id, **how)
                if await write(client, sent) is not Status.OK:
                    return acknowledged
                acknowledged.append((ledger_id, entry_id))
    finally:
        await client.close()
    return acknowledged


async def wrong_answers(
    bookie: InjectedBookie, asked: list[tuple[int, int]]
) -> list[tuple[int, int, object]]:
    """Entries that the bookie does not return as they were sent, and what it says instead."""
    client = GrpcBookieClient(bookie.bookie_id, bookie.bookie_id, PATIENT)
    wrong: list[tuple[int, int, object]] = []
    try:
        for ledger_id, entry_id in asked:
            request = ReadRequest(ledger_id=ledger_id, first_entry=entry_id, last_entry=entry_id)
            reply = await client.read(request)
            how = entry(ledger_id, entry_id)
            sent = records(payloads(ledger_id, entry_id), entry_id, **how)  # type: ignore[arg-type]
            if [bytes(run.record(0)) for run in reply.runs] != [sent]:
                wrong.append((ledger_id, entry_id, reply.missing))
    finally:
        await client.close()
    return wrong


@pytest.mark.parametrize("nth", [1, 7])
@pytest.mark.parametrize(("call", "fault"), FAULTS)
async def test_what_was_acknowledged_before_a_call_failed_is_there_after_a_restart(
    bookie: InjectedBookie, call: str, fault: str, nth: int
) -> None:
    with bookie.injecting(call, fault, nth):
        acknowledged = await add_until_it_ends(bookie)
        if (call, fault) in MUST_END:
            assert await asyncio.to_thread(bookie.process.wait, seconds(60)) == 1, bookie.log
            assert "bookie failed" in bookie.log
            assert bookie.has_struck()
    if fault in SHORTAGES:
        assert bookie.process.poll() is None, bookie.log
        assert len(acknowledged) == ENTRIES_MAX * len(LEDGERS)
    bookie.end()

    bookie.start()

    assert await wrong_answers(bookie, acknowledged) == []


@pytest.mark.parametrize("call", CALLS)
async def test_a_bookie_comes_to_all_the_calls_that_are_made_to_fail(
    bookie: InjectedBookie, call: str
) -> None:
    """Else the tests above would show nothing."""
    with bookie.injecting(call, "delay_enter=1", 1):
        await add_until_it_ends(bookie)

    assert bookie.process.poll() is None
    assert bookie.has_struck()
