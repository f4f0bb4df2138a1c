"""LogWriter: its ledger is recovered by somebody who does not want the log, and it goes on in another."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import ClientClosedError
from spark_bookkeeper.ledger.errors import LedgerRecoveryError
from spark_bookkeeper.ledger.protocol.transitions import marked_in_recovery
from spark_bookkeeper.log.errors import LogFencedError
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.nodes.reads import HeadAt
from spark_bookkeeper.log.writing.appends import Batch
from spark_bookkeeper.log.writing.leader import Leader, Patience
from spark_bookkeeper.log.writing.parts import Part
from spark_bookkeeper.log.writing.tail import Tenure
from spark_bookkeeper.log.writing.writer import LogWriter
from tests.doubles.waits import LIMIT_S, pass_turns, until
from tests.spark_bookkeeper.log.tail_world import TailWorld, values

SOON = {"recovered_ledger_grace_ms": 1}


@pytest.fixture
async def writer(tail: TailWorld) -> LogWriter:
    return await tail.client.writer(**SOON)


async def check(tail: TailWorld, payloads: list[bytes], positions: list[Position]) -> None:
    """Each once, in order, where its writer was told."""
    assert await tail.rows() == payloads
    assert [position.row for position in positions] == list(range(len(payloads)))
    ranges = {each.ledger_id: each for each in (await tail.head()).ranges}
    for position in positions:
        place = ranges[position.ledger_id]
        assert position.row == place.first_row + position.entry_id


async def test_what_is_in_flight_comes_once_and_in_order(
    tail: TailWorld, writer: LogWriter
) -> None:
    payloads, first = values(0, 60), writer.ledger_id
    appends = [writer.append_async(payload) for payload in payloads]
    await appends[20]

    await tail.another().fence(first)
    positions = [await append for append in appends]

    assert 20 < sum(position.ledger_id == first for position in positions) < 60
    await writer.close()
    await check(tail, payloads, positions)


async def test_a_batch_that_a_recovery_cuts_is_one_batch_to_its_caller(
    tail: TailWorld, writer: LogWriter
) -> None:
    first = writer.ledger_id
    some = await writer.append_many(values(0, 3))
    appending = asyncio.ensure_future(writer.append_many(values(3, 40)))
    await until(lambda: len(tail.bookies.ledgers[first].payloads) >= 20)

    await tail.another().fence(first)
    positions = [*some, *await appending]

    assert {position.ledger_id for position in positions} == {first, writer.ledger_id}
    await writer.close()
    await check(tail, values(0, 43), positions)


async def test_what_a_recovery_found_that_was_not_acknowledged_is_acknowledged_where_it_is(
    tail: TailWorld, writer: LogWriter
) -> None:
    first = writer.ledger_id
    positions = [await writer.append(b"v-0")]
    # It is stored, and the writer has no answer yet.
    append = writer.append_async(b"v-1")
    writer._ledger.appender._acknowledge = lambda _: None  # type: ignore[attr-defined]
    await until(lambda: len(tail.bookies.ledgers[first].payloads) == 2)
    await tail.another().fence(first)
    last = writer.append_async(b"v-2")

    positions += [await append, await last]

    assert [position.ledger_id == first for position in positions] == [True, True, False]
    await writer.close()
    await check(tail, values(0, 3), positions)


async def test_an_idle_writer_notices_by_its_next_append(
    tail: TailWorld, writer: LogWriter
) -> None:
    positions = [await writer.append(b"v-0")]
    for number in range(1, 4):
        await tail.another().fence(writer.ledger_id)
        positions.append(await writer.append(b"v-%d" % number))

    await writer.close()
    await check(tail, values(0, 4), positions)


async def test_a_close_behind_a_recovery_leaves_the_log_to_whoever_comes(
    tail: TailWorld, writer: LogWriter
) -> None:
    appends = [writer.append_async(payload) for payload in values(0, 30)]
    await appends[5]
    await tail.another().fence(writer.ledger_id)

    await writer.close()

    assert (await tail.head()).open_ledger is None
    await check(tail, values(0, 30), [await append for append in appends])


async def test_a_roll_behind_a_recovery_goes_on(tail: TailWorld) -> None:
    writer = await tail.client.writer(roll_entries=10, **SOON)
    appends = [writer.append_async(payload) for payload in values(0, 35)]
    for at in (3, 14, 27):
        await appends[at]
        await tail.another().fence(writer.ledger_id)
    positions = [await append for append in appends]

    await writer.close()
    await check(tail, values(0, 35), positions)


@pytest.mark.slow
async def test_whoever_recovers_whenever_nothing_is_lost_doubled_or_out_of_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred schedules: recoveries under appends, rolls, flushes and a close."""
    seen: Counter[str] = Counter()
    settle_at = Part.settle_at

    def counted(part: Part, entry_count: int) -> Batch | None:
        before = part.ledger.acknowledged
        rest = settle_at(part, entry_count)
        seen["kept"] += part.ledger.acknowledged - before
        seen["sent again"] += rest is not None
        return rest

    monkeypatch.setattr(Part, "settle_at", counted)
    monkeypatch.setattr(Leader, "_sleep", lambda _leader, _seconds: pass_turns(1))
    for seed in range(100):
        random, tail = Random(seed), await TailWorld.with_log(seed)
        writer = await tail.client.writer(roll_entries=random.choice((0, 7, 40)), **SOON)
        payloads = values(0, 60)
        appends: list[asyncio.Future[Position]] = []
        others: list[asyncio.Future[None]] = []
        for payload in payloads:
            appends.append(writer.append_async(payload))
            if random.random() < 0.05:
                others.append(asyncio.ensure_future(tail.another().fence(writer.ledger_id)))
            if random.random() < 0.05:
                others.append(asyncio.ensure_future(writer.flush()))
            await pass_turns(random.randrange(8))
        async with asyncio.timeout(LIMIT_S):
            await writer.close()
            await asyncio.gather(*others)
            await check(tail, payloads, await asyncio.gather(*appends))
        assert writer._held_bytes == 0
        assert (await tail.head()).open_ledger is None
    assert seen["kept"] >= 20, seen
    assert seen["sent again"] >= 100, seen


async def test_a_close_that_meets_a_recovery_leaves_no_append_behind() -> None:
    for seed in range(30):
        tail = await TailWorld.with_log(seed)
        writer = await tail.client.writer(**SOON)
        appends = [writer.append_async(payload) for payload in values(0, 10)]
        await appends[3]

        closing = asyncio.ensure_future(writer.close())
        await pass_turns(seed % 7)
        await tail.another().fence(writer.ledger_id)
        await closing

        await check(tail, values(0, 10), [await append for append in appends])
        assert (await tail.head()).open_ledger is None


async def test_a_close_with_nothing_in_flight_waits_for_no_grace_and_makes_no_ledger(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer(recovered_ledger_grace_ms=60_000)
    await writer.append(b"v-0")
    ledger_ids = await tail.ledger_ids()
    # A recovery that has only begun.
    await tail.another().update(writer.ledger_id, marked_in_recovery)

    await writer.close()

    assert await tail.ledger_ids() == ledger_ids
    assert (await tail.head()).open_ledger is None


async def test_a_head_that_cannot_be_read_ends_nobody(
    tail: TailWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await tail.client.writer(recovered_ledger_grace_ms=50)
    await writer.append(b"v-0")
    await tail.another().fence(writer.ledger_id)
    nodes, reads = writer._leader._tail.nodes, 0
    head = nodes.head

    async def fails_at_first() -> HeadAt:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise MetadataUnavailableError("127.0.0.1:2181", "away")
        return await head()

    monkeypatch.setattr(nodes, "head", fails_at_first)

    assert (await writer.append(b"v-1")).row == 1
    assert reads > 1


async def test_a_head_that_lags_is_read_again_behind_a_sync(
    tail: TailWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await tail.nodes().head()
    writer = await tail.client.writer(recovered_ledger_grace_ms=50)
    await writer.append(b"v-0")
    await tail.another().fence(writer.ledger_id)
    nodes, is_synced = writer._leader._tail.nodes, False
    head, sync = nodes.head, nodes.sync

    async def lagging() -> HeadAt:
        return await head() if is_synced else old

    async def catch_up() -> None:
        nonlocal is_synced
        is_synced = True
        await sync()

    monkeypatch.setattr(nodes, "head", lagging)
    monkeypatch.setattr(nodes, "sync", catch_up)

    assert (await writer.append(b"v-1")).row == 1
    assert is_synced


async def test_a_recovery_that_fails_is_tried_again(
    tail: TailWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(_: Leader, seconds: float) -> None:
        pauses.append(seconds)
        tail.bookies.is_undecidable = len(pauses) < 4

    writer = await tail.client.writer(**SOON)
    await writer.append(b"v-0")
    tail.bookies.is_undecidable = True
    with pytest.raises(LedgerRecoveryError):
        await tail.another().fence(writer.ledger_id)
    tail.bookies.ledgers[writer.ledger_id].is_fenced = True
    monkeypatch.setattr(Leader, "_sleep", sleep)

    assert (await writer.append(b"v-1")).row == 1
    assert pauses[1:] == [1.0, 2.0, 4.0]


async def test_a_recovery_that_lost_what_was_acknowledged_ends_the_writer_with_an_error(
    tail: TailWorld, writer: LogWriter
) -> None:
    for payload in values(0, 3):
        await writer.append(payload)
    # As if its bookies had come back empty.
    del tail.bookies.ledgers[writer.ledger_id].payloads[1:]
    await tail.another().fence(writer.ledger_id)

    with pytest.raises(LedgerRecoveryError, match="3 were acknowledged"):
        await asyncio.wait_for(writer.append(b"v-3"), LIMIT_S)


async def test_a_client_that_goes_away_in_the_grace_makes_no_ledger(tail: TailWorld) -> None:
    writer = await tail.client.writer(recovered_ledger_grace_ms=100)
    await writer.append(b"v-0")
    await tail.another().fence(writer.ledger_id)
    ledger_ids, waiting = await tail.ledger_ids(), writer.append_async(b"lost")
    await asyncio.sleep(0.03)

    writer.abandon(ClientClosedError("client"))

    with pytest.raises(ClientClosedError):
        await waiting
    await asyncio.sleep(0.2)
    assert await tail.ledger_ids() == ledger_ids


async def test_each_fence_has_a_longer_grace_and_a_roll_has_none(
    tail: TailWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    graces: list[float] = []
    regain = Leader.regain

    async def noted(leader: Leader, grace_s: float) -> Tenure:
        graces.append(grace_s)
        return await regain(leader, grace_s)

    monkeypatch.setattr(Leader, "regain", noted)
    writer = await tail.client.writer(roll_entries=5, **SOON)
    for _ in range(3):
        await writer.append_many(values(0, 12))
        await tail.another().fence(writer.ledger_id)
    await writer.append_many(values(0, 20))
    await writer.close()

    assert graces == [0.001, 0.002, 0.004]


async def test_one_who_takes_the_log_over_in_time_has_it(tail: TailWorld) -> None:
    writer = await tail.client.writer(recovered_ledger_grace_ms=60_000)
    await writer.append(b"v-0")
    await tail.another().fence(writer.ledger_id)
    waiting = writer.append_async(b"lost")
    await asyncio.sleep(0.05)

    async with await tail.another().writer() as second:
        with pytest.raises(LogFencedError):
            await waiting
        with pytest.raises(LogFencedError):
            await writer.close()
        await second.append(b"v-1")
    assert await tail.rows() == values(0, 2)


async def test_without_a_grace_it_ends(tail: TailWorld) -> None:
    writer = await tail.client.writer(recovered_ledger_grace_ms=0)
    await writer.append(b"v-0")
    await tail.another().fence(writer.ledger_id)

    with pytest.raises(LogFencedError):
        await writer.append(b"lost")

    assert await tail.rows() == [b"v-0"]


async def test_what_is_sent_again_is_held_until_it_is_stored(
    tail: TailWorld, writer: LogWriter
) -> None:
    released: list[int] = []
    writer.on_release = released.append
    appends = [writer.append_async(payload) for payload in values(0, 50)]
    await appends[10]
    await tail.another().fence(writer.ledger_id)
    await asyncio.gather(*appends)
    await writer.close()

    assert sum(released) == sum(map(len, values(0, 50)))
    assert writer._held_bytes == 0


async def test_what_is_sent_again_counts_as_held_while_bookies_do_not_answer(
    tail: TailWorld, writer: LogWriter
) -> None:
    first = writer.ledger_id
    appends = [writer.append_async(payload) for payload in values(0, 30)]
    await appends[5]
    tail.bookies.is_answering.clear()
    await tail.another().fence(first)
    tail.bookies.is_answering.set()
    await until(lambda: writer._is_fenced)
    tail.bookies.is_answering.clear()
    await until(lambda: writer.ledger_id != first)

    waiting = sum(not append.done() for append in appends)
    assert 0 < waiting < 25
    assert writer._held_bytes == sum(map(len, values(30 - waiting, waiting)))
    tail.bookies.is_answering.set()
    await asyncio.gather(*appends)
    assert writer._held_bytes == 0


def test_patience_grows_while_it_happens_again_and_again() -> None:
    patience = Patience(2_000)

    graces = [patience.next_s(now) for now in (0, 10, 20, 30, 40, 50, 60, 1_000, 1_010)]

    assert graces == [2, 4, 8, 16, 32, 60, 60, 2, 4]
    patient = Patience(300_000)
    assert [patient.next_s(now) for now in (0, 400, 800)] == [300, 300, 300]
