"""Reading beyond the LAC: what is there is returned, and only what surely is not is called absent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.client.read_stream import unreachable
from bookie_server.wire.messages import IdRange, ReadReply, ReadRequest, Status
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.ledger.errors import EntryUnreadableError, NoSuchEntryError
from spark_bookkeeper.ledger.read_handle import ReadHandle
from tests.doubles.bookies import FaultyClient
from tests.doubles.stores import StandingStill
from tests.spark_bookkeeper.ledger.scene import Scene, numbers
from tests.spark_bookkeeper.ledger.tails import QUORUMS


async def read_until_error(
    reader: ReadHandle, first: int, last: int
) -> tuple[list[int], BookKeeperError | None]:
    ids: list[int] = []
    try:
        async for entry in reader.read_unconfirmed(first, last):
            ids.append(entry.entry_id)
    except BookKeeperError as error:
        return ids, error
    return ids, None


@pytest.mark.conformance("D5")
@pytest.mark.parametrize("quorums", QUORUMS, ids=str)
@pytest.mark.cluster(bookies=5)
async def test_entries_beyond_the_lac_are_read_and_tell_of_it(scene: Scene) -> None:
    reader = await scene.client.open_ledger(scene.ledger_id)
    for number in range(30):
        await scene.writer.append(b"%d" % number)
    assert reader.last_add_confirmed == -1

    ids, error = await read_until_error(reader, 0, 29)
    assert (ids, error) == (list(range(30)), None)
    assert reader.last_add_confirmed == 28  # what entry 29 says; nobody said more

    ids, error = await read_until_error(reader, 25, 60)
    assert ids == [25, 26, 27, 28, 29]
    assert isinstance(error, NoSuchEntryError)
    assert (error.entry_id, error.last_add_confirmed) == (30, 28)
    await scene.writer.close()


@pytest.mark.parametrize("quorums", QUORUMS, ids=str)
@pytest.mark.parametrize("gap", range(9))
@pytest.mark.parametrize("is_denied", [True, False])
@pytest.mark.cluster(bookies=5)
async def test_nothing_behind_a_gap_is_returned(scene: Scene, gap: int, is_denied: bool) -> None:
    """Striped entries are stored by different bookies, so those behind one that is missing come too."""

    def without(reply: ReadReply) -> ReadReply:
        runs = [part for run in reply.runs for part in run.without(lambda each: each == gap)]
        asked = any(gap in run.entry_ids for run in reply.runs)
        denial = (IdRange(gap, gap, Status.NO_ENTRY),) if asked and is_denied else ()
        return replace(reply, runs=tuple(runs), missing=reply.missing + denial)

    await scene.writer.append_many([b"x"] * 9)
    await scene.settle_adds()
    reader = await scene.client.open_ledger(scene.ledger_id)
    scene.cluster.set_faults(alter_read=without)

    ids, error = await read_until_error(reader, 0, 8)

    assert ids == list(range(gap))
    assert isinstance(error, NoSuchEntryError if is_denied else EntryUnreadableError)
    assert error.entry_id == gap
    scene.cluster.set_faults(alter_read=None)
    await scene.writer.close()


@pytest.mark.parametrize("quorums", QUORUMS, ids=str)
@pytest.mark.parametrize("silent", ["UNKNOWN", "UNREACHABLE", "says nothing"])
@pytest.mark.cluster(bookies=5)
async def test_absence_takes_the_word_of_the_whole_write_set(
    scene: Scene, quorums: tuple[int, int, int], silent: str
) -> None:
    e, w, _ = quorums
    await scene.writer.append_many([b"x"] * 5)
    reader = await scene.client.open_ledger(scene.ledger_id)
    position = (5 + w - 1) % e  # the last of entry 5's write set
    doubtful = scene.faults[position]
    if silent == "says nothing":
        doubtful.alter_read = lambda reply: type(reply)((), (), -1)
    else:
        doubtful.read_status = Status[silent]

    ids, error = await read_until_error(reader, 5, 5)

    assert ids == []
    assert isinstance(error, EntryUnreadableError)
    doubtful.read_status = Status.NO_LEDGER
    doubtful.alter_read = None
    assert isinstance((await read_until_error(reader, 5, 5))[1], NoSuchEntryError)
    await scene.writer.close()


@pytest.mark.parametrize("how", ["asks for the LAC", "reads what is there"])
@pytest.mark.cluster(bookies=6)
async def test_a_reader_whose_session_lags_denies_nothing_that_moved(
    scene: Scene, how: str
) -> None:
    """Its metadata names the bookies that were replaced; these are alive, and truly have no such entry."""
    await scene.writer.append_many([b"x"] * 3)
    session = StandingStill(scene.cluster.store.tree)
    reader = await scene.cluster.client(2, session).open_ledger(scene.ledger_id)
    await session.stop()
    replaced = scene.fail(0, 1, 2)
    for _ in range(5):
        await scene.writer.append(b"y")
    assert not set(replaced) & set(scene.ensemble)
    scene.cluster.set_faults(*replaced, is_dead=False)

    if how == "asks for the LAC":
        assert await reader.read_last_add_confirmed() >= 6
    else:
        assert await read_until_error(reader, 5, 5) == ([5], None)
    await scene.writer.close()


@pytest.mark.parametrize("status", [Status.NO_ENTRY, Status.NO_LEDGER])
async def test_a_confirmed_entry_is_never_called_absent(scene: Scene, status: Status) -> None:
    await scene.writer.append_many([b"x"] * 5)
    await scene.writer.append(b"tells of them")
    reader = await scene.client.open_ledger(scene.ledger_id)
    assert reader.last_add_confirmed == 4
    scene.cluster.set_faults(read_status=status)

    assert isinstance((await read_until_error(reader, 3, 3))[1], EntryUnreadableError)
    assert isinstance((await read_until_error(reader, 5, 5))[1], NoSuchEntryError)
    scene.cluster.set_faults(read_status=None)
    await scene.writer.close()


async def test_a_closed_ledger_ends_where_its_metadata_says(scene: Scene) -> None:
    reader = await scene.client.open_ledger(scene.ledger_id)  # while it is open
    await scene.writer.append_many([b"x"] * 5)
    await scene.writer.close()
    scene.fail(0, read_status=Status.UNKNOWN)

    ids, error = await read_until_error(reader, 0, 9)

    assert ids == [0, 1, 2, 3, 4]
    assert isinstance(error, NoSuchEntryError)
    assert (error.entry_id, error.last_add_confirmed) == (5, 4)
    assert isinstance((await read_until_error(reader, -1, 0))[1], NoSuchEntryError)


@pytest.mark.cluster(bookies=6)
async def test_a_read_follows_an_ensemble_change_it_did_not_know_of(scene: Scene) -> None:
    await scene.writer.append_many([b"x"] * 5)
    reader = await scene.client.open_ledger(scene.ledger_id)
    scene.cluster.set_faults(*scene.ensemble, write_status=Status.READ_ONLY)
    await scene.writer.append_many([b"y"] * 5)
    assert len(scene.writer.metadata.fragments) == 2
    assert len(reader.metadata.fragments) == 1

    assert (await read_until_error(reader, 3, 9))[0] == [3, 4, 5, 6, 7, 8, 9]
    await scene.writer.close()


@pytest.mark.parametrize("quorums", [(3, 2, 1)], ids=str)
@pytest.mark.parametrize("turn", [0, 1])
async def test_a_denial_of_entries_is_none_of_those_between_them_that_others_have(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """Of a striped ledger: the second bookie denies 0 and 3, and says nothing of 1, of which it may have the only copy."""
    reader = await scene.open()  # which knows of no entry that is confirmed
    reader._turn = turn
    await scene.writer.append_many(numbers(6))
    _, second, third = scene.ensemble
    denied, silent = {(second, 0), (third, 1)}, {(second, 1)}
    read = FaultyClient.read

    async def altered(client: FaultyClient, request: ReadRequest) -> ReadReply:
        place = client.bookie_id, request.first_entry % 3
        if place in denied:
            ids = IdRange(request.first_entry, request.last_entry, Status.NO_ENTRY)
            return ReadReply((), (ids,), -1)
        return unreachable(request) if place in silent else await read(client, request)

    monkeypatch.setattr(FaultyClient, "read", altered)

    with pytest.raises(EntryUnreadableError, match="entry_id=1 "):
        _ = [entry async for entry in reader.read_unconfirmed(0, 5)]
