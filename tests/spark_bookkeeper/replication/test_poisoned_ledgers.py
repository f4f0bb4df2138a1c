"""Ledgers that somebody made by hand to harm: who may create ledgers may not keep others from being healed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from bookie_server.wire.messages import EntryList, Status
from bookkeeper_metadata.model import ENTRY_ID_MAX, Fragment, LedgerMetadata, LedgerState
from bookkeeper_metadata.paths import PeriodicCheck
from bookkeeper_metadata.underreplication import Mark, Underreplication
from spark_bookkeeper.replication import auditor, copying
from spark_bookkeeper.replication.checking import CopyChecks, LedgerWalk, Walked
from tests.doubles.bookies import FaultyClient
from tests.doubles.records import encode_copy, records, write
from tests.doubles.waits import until_read
from tests.spark_bookkeeper.ledger.scene import Scene
from tests.spark_bookkeeper.replication.test_auditor import auditor_of, running, until_marked
from tests.spark_bookkeeper.replication.test_checking import leave_out
from tests.spark_bookkeeper.replication.test_mending import assert_whole
from tests.spark_bookkeeper.replication.test_mending import write as fill
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


async def test_a_bookie_that_always_says_to_have_more_behind_it_is_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_out(scene, 1)
    endless = await poison(scene, *scene.ensemble, last_entry=2**62)
    list_page = FaultyClient.list_page

    async def of_one(self: FaultyClient, ledger_id: int, first_entry: int) -> EntryList:
        if ledger_id == endless and self.bookie_id == scene.ensemble[0]:
            return EntryList(Status.OK, next_entry=first_entry + 16)
        return await list_page(self, ledger_id, first_entry)

    monkeypatch.setattr(FaultyClient, "list_page", of_one)
    monkeypatch.setattr(copying, "_VAIN_MAX", 10)
    for ledger_id in (endless, scene.ledger_id):
        await marks_of(scene).mark(ledger_id, [scene.ensemble[1]], now_ms=7)
    assert await asyncio.wait_for(worker_of(scene).look(), AT_ONCE_S) == 1
    await assert_whole(scene)


@pytest.mark.parametrize("is_one_away", [False, True])
async def test_what_lies_behind_a_gap_is_copied_all_the_same(
    scene: Scene, is_one_away: bool
) -> None:
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
    scene.cluster.set_faults(scene.ensemble[2], is_dead=is_one_away)
    await asyncio.wait_for(worker_of(scene).look(), AT_ONCE_S)

    listed = await cluster.client(scene.ensemble[1]).list_entries(holey)
    assert [(part.first_entry, part.last_entry) for part in listed.held] == [(0, 1), (far, far + 2)]
    assert await marked(scene) == [holey], "what is in the middle is missing still"


@pytest.mark.parametrize(
    "page",
    [
        lambda first: EntryList(Status.OK, next_entry=first + 16 if first < 2_000 else 0),
        lambda _: EntryList(Status.UNKNOWN),
    ],
    ids=["of nothing, and another one behind it", "that says nothing"],
)
async def test_what_no_list_names_is_copied_all_the_same(
    scene: Scene, page: Callable[[int], EntryList], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a bookie of Apache's lists that has no lists, or cannot read what it has: all behind the gap was left out."""
    holey = await poison(scene, *scene.ensemble, last_entry=2_000)
    cluster, source, target = scene.cluster.client(7).cluster, *scene.ensemble[:2]
    await cluster.prepare(scene.ensemble)
    for entry_id in range(1_000, 2_001, 100):
        copy = encode_copy(holey, records([b"x"], entry_id, ledger_id=holey))
        assert await write(cluster.client(source), copy) is Status.OK
    await marks_of(scene).mark(holey, [target], now_ms=7)
    list_page = FaultyClient.list_page

    async def of_the_source(self: FaultyClient, ledger_id: int, first_entry: int) -> EntryList:
        if self.bookie_id == source:
            return page(first_entry)
        return await list_page(self, ledger_id, first_entry)

    monkeypatch.setattr(FaultyClient, "list_page", of_the_source)
    await asyncio.wait_for(worker_of(scene).look(), AT_ONCE_S)

    listed = await cluster.client(target).list_entries(holey)
    assert [part.first_entry for part in listed.held] == [*range(1_000, 2_001, 100)]
    assert await marked(scene) == [holey]


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


async def test_a_check_that_passed_over_a_ledger_is_due_still(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await leave_out(scene, 1)

    async def fails(*_: object) -> set[str]:
        raise RuntimeError("a defect")

    monkeypatch.setattr(CopyChecks, "by_lists", fails)
    done = marks_of(scene).last_check_ms
    async with running(auditor_of(scene.cluster)):
        await until_read(lambda: done(PeriodicCheck.ALL_LEDGERS), lambda ms: ms == 7)
    assert await done(PeriodicCheck.REPLICAS) is None
    assert "a ledger is passed over" in caplog.text


async def test_walks_side_by_side_count_what_they_pass_over_by_themselves(scene: Scene) -> None:
    """An audit that began beside a check forgot what the check had passed over, and the other way round."""
    await fill(scene, 9)
    context = scene.cluster.client(7).cluster
    walk = LedgerWalk(context, marks_of(scene), lambda: 7)
    has_failed, has_walked = asyncio.Event(), asyncio.Event()

    async def fails(*_: object) -> set[str]:
        has_failed.set()
        await has_walked.wait()
        raise RuntimeError("a defect")

    async def finds_nothing(*_: object) -> set[str]:
        return set()

    first = asyncio.create_task(walk.mark_lacking(fails))
    await has_failed.wait()
    assert await walk.mark_lacking(finds_nothing) == Walked(0)
    has_walked.set()
    assert await first == Walked(0, passed_over=1)
    assert await walk.mark_lacking(finds_nothing) == Walked(0)


async def test_an_audit_that_passed_over_a_ledger_is_made_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as made, and the lost bookie's ledgers waited for a day."""
    monkeypatch.setattr(auditor, "_AGAIN_S", 0.01)
    await fill(scene, 9)
    mark, tries = Underreplication.mark, 0

    async def fails_at_first(self: Underreplication, *what: Any, **how: Any) -> Mark:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise RuntimeError("a defect that passes")
        return await mark(self, *what, **how)

    monkeypatch.setattr(Underreplication, "mark", fails_at_first)
    async with running(auditor_of(scene.cluster, lost_bookie_delay_ms=0)):
        await scene.cluster.take_away(scene.ensemble[0])
        await until_marked(scene, scene.ledger_id)
    assert tries >= 3


async def test_a_bookie_id_that_no_bookie_can_have_is_not_written_into_a_mark(scene: Scene) -> None:
    """A mark that nobody could read stood for ever, and the ledger was not mended either."""
    await fill(scene, 9)
    for name in ("b" * 70_000, "\n" * 200):
        await marks_of(scene).mark(scene.ledger_id, [name, scene.ensemble[0]], now_ms=7)

    found = await marks_of(scene).read(scene.ledger_id)
    assert found is not None
    assert found.bookie_ids == (scene.ensemble[0],)
    await worker_of(scene).look()
    assert await marked(scene) == []


async def test_a_fragment_that_ends_at_the_largest_id_is_mended(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """What lies behind it was asked for, and is no number that can be asked for."""
    metadata = LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        fragments=(Fragment(0, scene.ensemble), Fragment(ENTRY_ID_MAX - 3, scene.ensemble)),
        state=LedgerState.CLOSED,
        last_entry=ENTRY_ID_MAX,
        length=9,
    )
    ledger_id, _ = await scene.cluster.client(7).cluster.ledgers.create(metadata)
    await marks_of(scene).mark(ledger_id, [scene.ensemble[0]], now_ms=7)
    worker = worker_of(scene)
    await asyncio.wait_for(worker.look(), AT_ONCE_S)
    assert [record.exc_info for record in caplog.records if record.exc_info] == []


async def test_a_mark_of_very_many_bookies_is_read_again(scene: Scene) -> None:
    await fill(scene, 9)
    names = [f"bookie-{at:04d}.bookies.production.svc.cluster.local:3181" for at in range(1_200)]
    await marks_of(scene).mark(scene.ledger_id, names, now_ms=7)
    await marks_of(scene).mark(scene.ledger_id, ["another:1"], now_ms=7)

    found = await marks_of(scene).read(scene.ledger_id)
    assert found is not None
    assert set(found.bookie_ids) < set(names)
    assert await worker_of(scene).look() == 1
