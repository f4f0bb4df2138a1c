"""Ledgers of which so many bookies may have lost entries that only an operator can say where they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.wire.messages import IdRange, ReadReply, Status
from bookie_server.wire.stripe import EVERY_ID
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.pace import LoopPace
from spark_bookkeeper.ledger.errors import (
    LedgerRecoveryError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.protocol.doubt import Doubt, Holding
from tests.doubles.records import add, section
from tests.spark_bookkeeper.ledger.scene import Scene, numbers, read_all

BY_TWO = pytest.mark.parametrize("quorums", [(3, 3, 2)], ids=["3-3-2"])
STRIPED = pytest.mark.parametrize("quorums", [(4, 2, 2)], ids=["4-2-2"])


async def write(scene: Scene, count: int) -> None:
    """Entries on all of their bookies, by a writer that is heard of no more."""
    await scene.writer.append_many(numbers(count))
    await scene.settle_adds()


async def wipe(scene: Scene, *positions: int) -> None:
    """These bookies lose everything, and know that they have."""
    for position in positions:
        await scene.cluster.wipe(scene.ensemble[position])


async def refused(scene: Scene) -> str:
    """Why a recovery cannot end."""
    with pytest.raises(LedgerRecoveryError) as failure:
        await scene.client.open_ledger(scene.ledger_id, recovery=True)
    assert not (await scene.metadata()).is_closed
    return str(failure.value)


async def assert_shut_out(scene: Scene) -> None:
    with pytest.raises(BookKeeperError):
        await scene.writer.append(b"late")


@BY_TWO
async def test_where_one_bookie_has_everything_nothing_is_lost(scene: Scene) -> None:
    await write(scene, 10)
    await wipe(scene, 0, 1)
    await refused(scene)

    closed = await scene.client.recover_with_losses(scene.ledger_id)

    assert closed.is_closed
    assert closed.last_entry == 9
    reader = await scene.client.open_ledger(scene.ledger_id)
    assert await read_all(reader) == numbers(10)
    await assert_shut_out(scene)


@BY_TWO
async def test_what_every_bookie_has_lost_is_given_up(scene: Scene) -> None:
    await write(scene, 10)
    await wipe(scene, 0, 1, 2)
    await refused(scene)

    assert (await scene.client.recover_with_losses(scene.ledger_id)).last_entry == -1
    await assert_shut_out(scene)


@BY_TWO
async def test_what_is_proved_to_be_confirmed_is_kept_though_a_part_of_it_is_lost(
    scene: Scene,
) -> None:
    """An entry that is left knows how far the ledger had been confirmed when it was written."""
    for payload in numbers(6):
        await scene.writer.append(payload)
    await scene.settle_adds()
    await wipe(scene, 0, 1)
    third = scene.cluster.bookies[scene.ensemble[2]].storage
    third.checkpoint_now()
    third.checkpoints._indexes[0].forget_rows(scene.ledger_id, [2])
    third.contents.set_limbo([scene.ledger_id])
    doubt = await scene.client.doubt_of_ledger(scene.ledger_id)
    assert {each.status for each in doubt.holdings} == {Status.LIMBO}
    assert (doubt.last_entry, doubt.last_add_confirmed) == (5, 4)

    assert (await scene.client.recover_with_losses(scene.ledger_id)).last_entry == 5

    reader = await scene.client.open_ledger(scene.ledger_id)
    assert [bytes(each.payload) async for each in reader.read(3, 5)] == numbers(6)[3:]


@BY_TWO
async def test_a_claim_proves_nothing(scene: Scene) -> None:
    """Re-replication may put the LAC of the whole ledger into a copy; the entry's being there does not show it."""
    await wipe(scene, 0, 1)
    third = scene.cluster.bookies[scene.ensemble[2]]
    third.storage.contents.set_limbo([scene.ledger_id])
    copy = section([b"x"], 5, ledger_id=scene.ledger_id, lac=9)
    assert await add(third, replace(copy, is_recovery=True)) is Status.OK

    doubt = await scene.client.doubt_of_ledger(scene.ledger_id)

    assert (doubt.last_entry, doubt.last_add_confirmed) == (5, -1)
    assert (await scene.client.recover_with_losses(scene.ledger_id)).last_entry == -1


@STRIPED
async def test_it_ends_at_a_hole_and_says_what_lies_behind(scene: Scene) -> None:
    """Entry 1 was on the bookies 1 and 2 alone; that it was confirmed nobody can prove."""
    await write(scene, 4)
    await wipe(scene, 1, 2)

    doubt = await scene.client.doubt_of_ledger(scene.ledger_id)
    closed = await scene.client.recover_with_losses(scene.ledger_id)

    assert doubt.last_entry == 3
    assert closed.last_entry == 0
    assert doubt.given_up_in(scene.ensemble) == {1: (), 2: ()}


@BY_TWO
async def test_while_a_bookie_is_silent_nothing_is_given_up(scene: Scene) -> None:
    """It may have what the others have lost."""
    await write(scene, 10)
    await wipe(scene, 0, 1)
    (silent,) = scene.fail(2)

    with pytest.raises(LedgerRecoveryError, match=silent):
        await scene.client.recover_with_losses(scene.ledger_id)

    assert not (await scene.metadata()).is_closed
    scene.cluster.set_faults(silent, is_dead=False)
    assert (await scene.client.recover_with_losses(scene.ledger_id)).last_entry == 9


@BY_TWO
async def test_a_bookie_that_falls_silent_behind_its_list_ends_the_attempt(scene: Scene) -> None:
    await write(scene, 10)
    await wipe(scene, 0, 1)
    scene.cluster.set_faults(scene.ensemble[2], read_status=Status.UNREACHABLE)

    with pytest.raises(LedgerRecoveryError):
        await scene.client.recover_with_losses(scene.ledger_id)
    assert not (await scene.metadata()).is_closed


@BY_TWO
async def test_what_cannot_be_read_where_it_is_is_not_given_up(scene: Scene) -> None:
    """The third bookie is not in limbo: what it does not know now it may know again."""
    await write(scene, 10)
    await wipe(scene, 0, 1)
    scene.cluster.set_faults(scene.ensemble[2], read_status=Status.UNKNOWN)

    with pytest.raises(LedgerRecoveryError):
        await scene.client.recover_with_losses(scene.ledger_id)
    assert not (await scene.metadata()).is_closed


@BY_TWO
async def test_what_a_sound_bookie_neither_gives_nor_denies_is_not_given_up(scene: Scene) -> None:
    await write(scene, 10)
    await wipe(scene, 0, 1)
    scene.faults[2].alter_read = lambda reply: replace(
        reply, missing=tuple(replace(each, status=Status.UNKNOWN) for each in reply.missing)
    )

    with pytest.raises(LedgerRecoveryError):
        await scene.client.recover_with_losses(scene.ledger_id)


@BY_TWO
async def test_a_ledger_that_can_be_recovered_loses_nothing(scene: Scene) -> None:
    await write(scene, 10)
    await wipe(scene, 0)

    assert (await scene.client.recover_with_losses(scene.ledger_id)).last_entry == 9
    assert (await scene.client.recover_with_losses(scene.ledger_id)).last_entry == 9, "again"


@BY_TWO
async def test_another_ones_ledger_is_left_alone(scene: Scene) -> None:
    with pytest.raises(UnauthorizedError):
        await scene.client.recover_with_losses(scene.ledger_id, password=b"wrong")
    assert (await scene.metadata()).state.name == "OPEN"


@BY_TWO
async def test_what_a_bookie_lists_and_cannot_give_now_is_not_given_up(scene: Scene) -> None:
    """It is in limbo, and its disk has a bad moment between the list and the reads."""
    await write(scene, 10)
    await wipe(scene, 0, 1)
    third = scene.cluster.bookies[scene.ensemble[2]]
    third.storage.contents.set_limbo([scene.ledger_id])
    scene.faults[2].alter_read = only_the_last

    with pytest.raises(LedgerRecoveryError):
        await scene.client.recover_with_losses(scene.ledger_id)

    assert not (await scene.metadata()).is_closed
    scene.faults[2].alter_read = None
    assert (await scene.client.recover_with_losses(scene.ledger_id)).last_entry == 9


def only_the_last(reply: ReadReply) -> ReadReply:
    """Let the look at what the bookie has succeed, which asks for one entry, and nothing else."""
    is_one = sum(map(len, reply.runs)) == 1
    return reply if is_one else ReadReply((), (IdRange(0, 1 << 40, Status.UNKNOWN),), -1)


@BY_TWO
async def test_a_bookie_that_cannot_read_some_of_what_it_has_is_none_that_has_lost_it(
    scene: Scene,
) -> None:
    await write(scene, 10)
    await wipe(scene, 0, 1)
    name = scene.ensemble[2]
    third = scene.cluster.bookies[name]
    third.storage.checkpoint_now()
    third.storage.contents.set_limbo([scene.ledger_id])
    (log,) = scene.cluster.place_of(name).rglob("*.log")
    whole = log.read_bytes()
    log.write_bytes(b"\xff" * len(whole))

    with pytest.raises(LedgerRecoveryError, match=name):
        await scene.client.recover_with_losses(scene.ledger_id)

    # A scrub finds it, and from then on it is left out of the list: it may be readable again.
    await third.verifier.verify(scene.ledger_id, 0, 9, EVERY_ID)
    doubt = await scene.client.doubt_of_ledger(scene.ledger_id)
    assert [each.bookie_id for each in doubt.silent] == [name]
    log.write_bytes(whole)
    await third.verifier.look_again(scene.ledger_id, LoopPace(0))
    assert (await scene.client.recover_with_losses(scene.ledger_id)).last_entry == 9


@BY_TWO
@pytest.mark.cluster(bookies=4)
async def test_a_ledger_whose_length_is_lost_with_an_entry_is_ended(scene: Scene) -> None:
    """One bookie is dead for good, the ensemble has changed for it, and then the others lose their disks."""
    await write(scene, 10)
    (dead,) = scene.fail(0)
    await scene.writer.append(b"x")
    await scene.settle_adds()
    assert len((await scene.metadata()).fragments) == 2
    await wipe(scene, 0, 1, 2)
    with pytest.raises(LedgerRecoveryError, match=dead):
        await scene.client.recover_with_losses(scene.ledger_id)
    assert not (await scene.metadata()).is_closed
    # Another one takes its id, with nothing on its disks.
    await scene.cluster.wipe(dead)
    scene.cluster.set_faults(dead, is_dead=False)

    closed = await scene.client.recover_with_losses(scene.ledger_id)

    assert (closed.last_entry, closed.length) == (9, 0)


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.DELETED, Status.UNREACHABLE])
def test_only_a_bookie_that_says_what_it_has_is_not_silent(status: Status) -> None:
    holdings = (Holding("a", Status.LIMBO), Holding("b", status), Holding("c", Status.OK))

    assert [each.bookie_id for each in Doubt(holdings).silent] == ["b"]


@BY_TWO
@pytest.mark.cluster(bookies=4)
async def test_entries_of_another_bookie_are_not_given_up(scene: Scene) -> None:
    """The metadata may be a restored copy, and what the ledger has moved to bookies that it does not name."""
    await write(scene, 10)
    other = next(each for each in scene.cluster.bookies if each not in scene.ensemble)
    copies = section(numbers(10), ledger_id=scene.ledger_id)
    assert await add(scene.cluster.bookies[other], replace(copies, is_recovery=True)) is Status.OK
    await wipe(scene, 0, 1, 2)

    with pytest.raises(LedgerRecoveryError, match=f"restored copy.*{other}: 9"):
        await scene.client.recover_with_losses(scene.ledger_id)

    assert not (await scene.metadata()).is_closed
