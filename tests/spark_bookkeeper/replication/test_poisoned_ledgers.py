"""Ledgers that somebody made by hand to harm: who may create ledgers may not keep others from being healed."""

from __future__ import annotations

import asyncio
import time

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.model import Fragment, LedgerMetadata, LedgerState
from bookkeeper_metadata.paths import PeriodicCheck
from spark_bookkeeper.replication.checking import CopyChecks
from tests.doubles.records import encode_copy, records, write
from tests.doubles.waits import until_read
from tests.spark_bookkeeper.ledger.scene import Scene
from tests.spark_bookkeeper.replication.test_auditor import auditor_of, running, until_marked
from tests.spark_bookkeeper.replication.test_checking import leave_out
from tests.spark_bookkeeper.replication.test_mending import assert_whole
from tests.spark_bookkeeper.replication.test_worker import marked, marks_of, worker_of

AT_ONCE_S = 60
"""Far less than it would take, and more than a busy machine does."""


async def poison(scene: Scene, *ensemble: str, last_entry: int = 3) -> int:
    """A closed ledger that nobody has written."""
    size = len(ensemble)
    metadata = LedgerMetadata(
        ensemble_size=size,
        write_quorum=size,
        ack_quorum=size,
        fragments=(Fragment(0, ensemble),),
        state=LedgerState.CLOSED,
        last_entry=last_entry,
        length=9,
    )
    ledger_id, _ = await scene.cluster.client(7).cluster.ledgers.create(metadata)
    return ledger_id


async def test_an_end_that_nobody_ever_reaches_keeps_no_other_ledger_waiting(scene: Scene) -> None:
    """One ledger of 2^62 entries, of which there is none, held the worker for ever."""
    await leave_out(scene, 1)
    endless = await poison(scene, *scene.ensemble, last_entry=2**62)
    async with running(auditor_of(scene.cluster)):
        await until_marked(scene, scene.ledger_id, endless)

    begun_s = time.monotonic()
    assert await asyncio.wait_for(worker_of(scene).look(), AT_ONCE_S) == 1

    await assert_whole(scene)
    assert await marked(scene) == [endless]
    assert time.monotonic() - begun_s < AT_ONCE_S


async def test_what_lies_behind_a_gap_is_copied_all_the_same(scene: Scene) -> None:
    """Nobody has what is in the middle, far more than is looked for at a time; others have what lies behind it."""
    far = 2**40
    holey = await poison(scene, *scene.ensemble, last_entry=far + 2)
    cluster, ids = scene.cluster.client(7).cluster, (0, 1, far, far + 1, far + 2)
    await cluster.prepare(scene.ensemble)
    for bookie_id in (scene.ensemble[0], scene.ensemble[2]):
        for entry_id in ids:
            copy = encode_copy(holey, records([b"x"], entry_id, ledger_id=holey))
            assert await write(cluster.client(bookie_id), copy) is Status.OK

    async with running(auditor_of(scene.cluster)):
        await until_marked(scene, holey)
    await asyncio.wait_for(worker_of(scene).look(), AT_ONCE_S)

    listed = await cluster.client(scene.ensemble[1]).list_entries(holey)
    assert [(part.first_entry, part.last_entry) for part in listed.held] == [(0, 1), (far, far + 2)]
    assert await marked(scene) == [holey], "what is in the middle is missing still"


@pytest.mark.parametrize("address", ["h:" + "9" * 4_400, "h:70000", "a" * 70 + ".b:3181", "h:٣١٨١"])
async def test_an_address_that_nobody_can_have_ends_no_audit(scene: Scene, address: str) -> None:
    """It ended the auditor, which was started again and met it again."""
    await leave_out(scene, 1)
    poisoned = await poison(scene, address)
    checks = CopyChecks(scene.cluster.client(7).cluster)
    metadata = (await scene.cluster.client(7).cluster.ledgers.read(poisoned)).metadata
    assert await checks.by_lists(poisoned, metadata) == {address}, (
        "it belongs to the cluster no more"
    )

    async with running(auditor_of(scene.cluster)):
        done = marks_of(scene).last_check_ms
        await until_read(lambda: done(PeriodicCheck.ALL_LEDGERS), lambda ms: ms == 7)
    assert scene.ledger_id in await marked(scene)
    await asyncio.wait_for(worker_of(scene).look(), AT_ONCE_S)
    await assert_whole(scene)


async def test_a_defect_that_one_ledger_shows_ends_nothing_for_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_out(scene, 1)
    strange = await poison(scene, *scene.ensemble)
    by_lists = CopyChecks.by_lists

    async def fails(self: CopyChecks, ledger_id: int, metadata: LedgerMetadata) -> set[str]:
        if ledger_id == strange:
            raise RuntimeError("a defect")
        return await by_lists(self, ledger_id, metadata)

    monkeypatch.setattr(CopyChecks, "by_lists", fails)
    async with running(auditor_of(scene.cluster)):
        await until_marked(scene, scene.ledger_id, strange)
    worker = worker_of(scene)
    mend = worker._mender.mend

    async def mend_others(ledger_id: int) -> object:
        if ledger_id == strange:
            raise RuntimeError("a defect")
        return await mend(ledger_id)

    monkeypatch.setattr(worker._mender, "mend", mend_others)
    assert await worker.look() == 1
    assert await marked(scene) == [strange]
    assert worker._measures.failed_tries == 1
