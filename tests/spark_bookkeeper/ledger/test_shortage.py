"""A writer short of bookies: for whom it waits, whom it tries meanwhile, and whom it leaves alone."""

from __future__ import annotations

import asyncio

import pytest

from bookie_server.wire.messages import Status
from spark_bookkeeper.ledger.errors import (
    LedgerClosedError,
    LedgerFencedError,
    NotEnoughBookiesError,
)
from tests.doubles.cluster import InProcessCluster
from tests.doubles.waits import pass_turns, until
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import ACK_BY_ALL, Scene, read_all

AWAY, *HERE = "b0:1", "b1:1", "b2:1"


@pytest.mark.cluster(
    bookies=3, bookie_wait_timeout_ms=60_000, ensemble_change_retry_ms=1, bookie_quarantine_ms=1
)
async def test_a_writer_that_lost_its_ack_quorum_goes_on_when_a_bookie_is_back(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append(b"0")
    for bookie_id in (AWAY, HERE[0]):
        await cluster.take_away(bookie_id)
    pending = [writer.append_async(b"%d" % number) for number in range(1, 4)]
    await until(lambda: "waiting for bookies" in caplog.text)
    pending.append(writer.append_async(b"4"))
    await pass_turns(50)
    assert not any(each.done() for each in pending)

    await cluster.bring_back(HERE[0])

    assert [await each for each in pending] == [1, 2, 3, 4]
    await writer.close()
    reader = await cluster.client(2).open_ledger(writer.ledger_id)
    assert await read_all(reader) == [b"%d" % number for number in range(5)]
    assert writer._shortage._timer is None


@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=20, ensemble_change_retry_ms=1)
async def test_a_writer_waits_for_its_ack_quorum_only_so_long(cluster: InProcessCluster) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append(b"0")
    for bookie_id in (AWAY, HERE[0]):
        await cluster.take_away(bookie_id)

    with pytest.raises(NotEnoughBookiesError, match="ends at entry 0"):
        await writer.append(b"1")


@pytest.mark.cluster(
    bookies=3, bookie_wait_timeout_ms=60_000, ensemble_change_retry_ms=1, bookie_quarantine_ms=1
)
async def test_a_writer_that_waits_is_fenced_all_the_same(cluster: InProcessCluster) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append(b"0")
    for bookie_id in (AWAY, HERE[0]):
        await cluster.take_away(bookie_id)
    waiting = writer.append_async(b"1")
    await until(lambda: writer._shortage._timer is not None)
    for bookie_id in (AWAY, HERE[0]):
        await cluster.bring_back(bookie_id)
    await cluster.client(2).open_ledger(writer.ledger_id, recovery=True)

    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        await waiting
    assert writer._shortage._timer is None


@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=600_000, ensemble_change_retry_ms=300_000)
async def test_a_writer_short_of_bookies_goes_on_as_soon_as_one_is_registered_again(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It waited for the end of the quarantine of the one that had failed it: half a minute."""
    writer = await cluster.client().create_ledger()
    await writer.append(b"0")
    for bookie_id in (AWAY, HERE[0]):
        await cluster.take_away(bookie_id)
    waiting = writer.append_async(b"1")
    await until(lambda: "waiting for bookies" in caplog.text)
    await pass_turns(20)

    await cluster.bring_back(HERE[0])

    async with asyncio.timeout(seconds(10)):
        assert await waiting == 1


@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=600_000, ensemble_change_retry_ms=10)
async def test_a_writer_short_of_bookies_tries_those_it_suspects_while_they_are_registered(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Restarted before their sessions expired: no registration tells of their return."""
    writer = await cluster.client().create_ledger()
    await writer.append(b"0")
    cluster.set_faults(AWAY, HERE[0], is_dead=True)
    waiting = writer.append_async(b"1")
    await until(lambda: "waiting for bookies" in caplog.text)
    await pass_turns(20)
    fragments = len(writer.metadata.fragments)

    cluster.set_faults(AWAY, HERE[0], is_dead=False)

    async with asyncio.timeout(seconds(10)):
        assert await waiting == 1
    # Tried again and again meanwhile, which changes the metadata once.
    assert fragments <= 2
    assert caplog.text.count("waiting for bookies") == 1
    await writer.close()
    assert await read_all(await cluster.client(2).open_ledger(writer.ledger_id)) == [b"0", b"1"]


# Far above the pause between tries: on a busy machine one that begins anew would end as well.
@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=1_000, ensemble_change_retry_ms=1)
async def test_trying_suspects_in_vain_lengthens_no_wait(cluster: InProcessCluster) -> None:
    """Each try takes the shortage away until it fails."""
    writer = await cluster.client().create_ledger()
    await writer.append(b"0")
    cluster.set_faults(AWAY, HERE[0], is_dead=True)

    with pytest.raises(NotEnoughBookiesError, match="ends at entry 0"):
        async with asyncio.timeout(seconds(10)):
            await writer.append(b"1")


@pytest.mark.parametrize("count", [5, 6])
@pytest.mark.cluster(
    bookies=7, bookie_wait_timeout_ms=1_000, ensemble_change_retry_ms=1, bookie_quarantine_ms=1
)
async def test_trying_others_in_vain_lengthens_no_wait(
    count: int, cluster: InProcessCluster
) -> None:
    """Registered and silent, as with disks that hang: there was always one left to try, so it was never short."""
    writer = await cluster.client().create_ledger()
    writer._trials._timeout_s = 0.5  # as it is, it is no less than three adds may take
    await writer.append(b"0")
    ensemble = writer.metadata.last_fragment.ensemble
    others = [each for each in cluster.faults if each not in ensemble]
    cluster.set_faults(*[*ensemble[1:], *others][:count], is_dead=True)

    if count == 5:
        assert await writer.append(b"1") == 1
        return
    with pytest.raises(NotEnoughBookiesError, match="ends at entry 0"):
        async with asyncio.timeout(seconds(20)):
            await writer.append(b"1")


@pytest.mark.cluster(bookies=3, ensemble_change_retry_ms=10, bookie_quarantine_ms=1)
async def test_a_writer_at_rest_goes_on_whatever_returns(cluster: InProcessCluster) -> None:
    """Its third bookie was away, as in a rolling restart: it ended when that was back, for it had waited long."""
    writer = await cluster.client().create_ledger()
    third = writer.metadata.last_fragment.ensemble[2]
    await cluster.take_away(third)
    await writer.append(b"0")
    await until(lambda: third in writer.bookies_missed)
    writer._trials._timeout_s = 0.0

    await cluster.bring_back(third)

    await until(lambda: not writer.bookies_missed)
    assert await writer.append(b"1") == 1


@pytest.mark.cluster(bookies=3, ensemble_change_retry_ms=1)
async def test_a_writer_with_its_ack_quorum_leaves_suspects_alone(
    cluster: InProcessCluster,
) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append(b"0")
    cluster.set_faults(AWAY, is_dead=True)
    await writer.append(b"1")
    await until(lambda: writer.bookies_missed == {AWAY})
    sent = len(cluster.faults[AWAY].writes_seen)

    await asyncio.sleep(0.05)
    await writer.append(b"2")

    assert len(cluster.faults[AWAY].writes_seen) == sent


@pytest.mark.cluster(bookies=4, bookie_wait_timeout_ms=600_000)
@ACK_BY_ALL
async def test_bookies_that_refuse_at_once_do_not_take_turns_for_ever(scene: Scene) -> None:
    """Two of four that fail every add: each took the other's place, with a change of the metadata."""
    await scene.writer.append(b"0")
    outside = set(scene.cluster.bookies) - set(scene.ensemble)
    refusing = [*outside, scene.ensemble[1]]
    scene.cluster.set_faults(*refusing, write_status=Status.UNKNOWN)
    waiting = scene.writer.append_async(b"1")

    await until(lambda: scene.writer._state.shortage is not None)
    await pass_turns(200)

    assert sum(len(scene.cluster.faults[each].writes_seen) for each in refusing) <= 6
    scene.cluster.set_faults(write_status=None)
    scene.writer._run(scene.writer._state.retry_change())
    assert await waiting == 1


@pytest.mark.cluster(bookies=4, bookie_wait_timeout_ms=600_000)
async def test_nor_where_the_writer_could_do_without_them(scene: Scene) -> None:
    await scene.writer.append(b"0")
    outside = set(scene.cluster.bookies) - set(scene.ensemble)
    refusing = [*outside, scene.ensemble[1]]
    scene.cluster.set_faults(*refusing, write_status=Status.UNKNOWN)

    for number in range(1, 40):
        assert await scene.writer.append(b"%d" % number) == number
        await pass_turns(5)

    assert sum(len(scene.cluster.faults[each].writes_seen) for each in refusing) <= 6
    assert len(scene.writer.metadata.fragments) <= 5


@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=600_000, ensemble_change_retry_ms=300_000)
async def test_a_rolling_restart_keeps_no_writer_waiting(scene: Scene) -> None:
    """The one before is back when the next goes, and its quarantine lasts longer than that."""
    async with asyncio.timeout(seconds(20)):
        for number, bookie_id in enumerate(scene.ensemble):
            scene.cluster.set_faults(is_dead=False)
            scene.cluster.set_faults(bookie_id, is_dead=True)
            assert await scene.writer.append(b"%d" % number) == number
            await until(lambda: not scene.writer._state.is_changing)
        await scene.writer.close()

    assert await scene.read() == [b"%d" % number for number in range(3)]
