"""A dead bookie stops no new ledger: its place is held, and taken in when it is back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, BookieServiceInfo, Endpoint
from bookkeeper_metadata.model import Fragment
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.admin.replication import describe_short_ledgers
from spark_bookkeeper.ledger import context
from spark_bookkeeper.ledger.errors import (
    NotEnoughBookiesError,
)
from spark_bookkeeper.ledger.protocol.replication import away_members, held_members
from tests.doubles.cluster import ROOT, InProcessCluster
from tests.doubles.stores import Script, ScriptedStore
from tests.doubles.waits import pass_turns, until
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.scene import read_all

AWAY, *HERE = "b0:1", "b1:1", "b2:1"


@pytest.mark.cluster(bookies=3)
async def test_a_ledger_is_created_without_a_bookie_that_is_away(cluster: InProcessCluster) -> None:
    await cluster.take_away(AWAY)
    client = cluster.client()

    async with await client.create_ledger() as writer:
        for number in range(5):
            await writer.append(b"%d" % number)
        (fragment,) = writer.metadata.fragments
        assert set(fragment.ensemble) == {AWAY, *HERE}
        ledger_id = writer.ledger_id

    assert AWAY not in cluster.copies(ledger_id, 0)
    metadata = await client.ledger_metadata(ledger_id)
    assert held_members(metadata) == (AWAY,)
    assert writer.bookies_missed == {AWAY}
    assert away_members(metadata, metadata.fragments[0], HERE) == (AWAY,)
    await cluster.bring_back(AWAY)
    assert await describe_short_ledgers(client, [ledger_id, 999]) == [
        {"ledger_id": ledger_id, "away": [], "held": [AWAY]}
    ]
    assert await read_all(await client.open_ledger(ledger_id)) == [b"%d" % n for n in range(5)]


@pytest.mark.cluster(bookies=3)
async def test_a_bookie_that_comes_back_while_it_is_looked_for_is_not_taken_for_unknown(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    readonly = BookieRegistry.readonly

    async def comes_back_meanwhile(registry: BookieRegistry) -> dict[str, BookieServiceInfo]:
        await cluster.bring_back(AWAY)
        return await readonly(registry)

    await cluster.take_away(AWAY)
    monkeypatch.setattr(BookieRegistry, "readonly", comes_back_meanwhile)

    async with await cluster.client().create_ledger() as writer:
        assert set(writer.metadata.fragments[0].ensemble) == {AWAY, *HERE}
        assert held_members(writer.metadata) == ()


@pytest.mark.cluster(bookies=3)
async def test_bookies_that_fail_a_writer_are_known_to_it_as_missed(
    cluster: InProcessCluster,
) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append(b"0")
    assert writer.bookies_missed == frozenset()
    await cluster.take_away(AWAY)

    await writer.append(b"1")
    await until(lambda: writer.bookies_missed == {AWAY})
    await writer.close()

    # Its failure leaves no mark: the metadata tells of it only while it is away.
    assert held_members(writer.metadata) == ()
    assert writer.metadata.custom_metadata == {}
    (short,) = await describe_short_ledgers(cluster.client(2), [writer.ledger_id])
    assert (short["away"], short["held"]) == ([AWAY], [])


@pytest.mark.cluster(bookies=3)
async def test_bookies_that_are_away_are_listed_when_asked_for(cluster: InProcessCluster) -> None:
    await cluster.take_away(AWAY)
    client = cluster.client()

    assert [each.bookie_id for each in await client.bookies()] == HERE
    known = await client.bookies(with_away=True)
    assert [(each.bookie_id, each.is_away, each.writable) for each in known] == [
        (AWAY, True, False),
        (HERE[0], False, True),
        (HERE[1], False, True),
    ]


@pytest.mark.cluster(bookies=3, ensemble_change_retry_ms=1)
async def test_a_bookie_that_is_back_is_taken_in_and_the_rest_is_read_without_it(
    cluster: InProcessCluster,
) -> None:
    await cluster.take_away(AWAY)
    writer = await cluster.client().create_ledger()
    for number in range(3):
        await writer.append(b"%d" % number)
    before = writer.metadata.last_fragment.ensemble
    await cluster.bring_back(AWAY)

    await until(lambda: not writer._state.failed_bookies)
    await writer.append(b"3")
    await writer.close()

    assert writer.metadata.fragments == (Fragment(0, before), Fragment(3, before))
    await until(lambda: set(cluster.copies(writer.ledger_id, 3)) == {AWAY, *HERE})
    # With another one gone everything is there all the same: the one that was away denies only
    # what it never had.
    cluster.set_faults(HERE[0], is_dead=True)
    reader = await cluster.client(2).open_ledger(writer.ledger_id)
    assert await read_all(reader) == [b"0", b"1", b"2", b"3"]


@pytest.mark.cluster(bookies=3)
async def test_a_recovery_loses_nothing_to_the_denials_of_a_held_bookie(
    cluster: InProcessCluster,
) -> None:
    """It comes back with empty hands, and one that has everything is away."""
    await cluster.take_away(AWAY)
    writer = await cluster.client().create_ledger()
    for number in range(4):
        await writer.append(b"%d" % number)
    await cluster.bring_back(AWAY)
    cluster.set_faults(HERE[1], is_dead=True)

    reader = await cluster.client(2).open_ledger(writer.ledger_id, recovery=True)

    assert await read_all(reader) == [b"0", b"1", b"2", b"3"]


@pytest.mark.cluster(bookies=4)
async def test_a_ledger_is_striped_over_fewer_before_a_place_is_held(
    cluster: InProcessCluster,
) -> None:
    await cluster.take_away(AWAY)

    async with await cluster.client().create_ledger(ensemble_size=4, write_quorum=2) as writer:
        assert set(writer.metadata.last_fragment.ensemble) == {*HERE, "b3:1"}
        assert writer.metadata.ensemble_size == 3


@pytest.mark.cluster(bookies=3)
async def test_an_ensemble_larger_than_the_cluster_is_lowered_with_one_warning(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """`ensembleSize=9` on three bookies: nobody was told that nothing is striped."""
    client = cluster.client()

    for _ in range(3):
        async with await client.create_ledger(ensemble_size=9) as writer:
            assert writer.metadata.ensemble_size == 3
    async with await client.create_ledger():
        pass

    (line,) = [line for line in caplog.messages if "fewer bookies" in line]
    assert line.endswith("ensemble_size=9 used=3")


@pytest.mark.parametrize("min_write_quorum", [0, 1])
@pytest.mark.cluster(bookies=3)
async def test_what_cannot_be_acknowledged_is_not_created(
    cluster: InProcessCluster, min_write_quorum: int
) -> None:
    await cluster.take_away(AWAY)
    await cluster.take_away(HERE[0])

    with pytest.raises(NotEnoughBookiesError, match=r"needed=2 .*away=b0:1,b1:1"):
        await cluster.client(min_write_quorum=min_write_quorum).create_ledger()
    assert [each async for each in cluster.client().list_ledgers()] == []


@pytest.mark.cluster(bookies=3)
async def test_more_copies_may_be_asked_for_than_acknowledge(cluster: InProcessCluster) -> None:
    await cluster.take_away(AWAY)

    with pytest.raises(NotEnoughBookiesError, match="needed=3"):
        await cluster.client(min_write_quorum=3).create_ledger()


@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=60_000)
async def test_a_new_ledger_waits_for_bookies_that_are_known(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.take_away(AWAY)
    await cluster.take_away(HERE[0])
    creating = asyncio.create_task(cluster.client().create_ledger())
    await until(lambda: "waiting for bookies" in caplog.text)
    await pass_turns(20)
    assert not creating.done()

    await cluster.bring_back(AWAY)

    async with await creating as writer:
        assert await writer.append(b"0") == 0
    assert caplog.text.count("waiting for bookies") == 1


@pytest.mark.parametrize("has_begun_to_watch", [False, True])
@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=60_000)
async def test_a_new_ledger_that_waits_for_bookies_outlasts_the_metadata_service(
    cluster: InProcessCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    has_begun_to_watch: bool,
) -> None:
    """As a writer does that lost its bookies: the machine they run on takes both away."""
    monkeypatch.setattr(context, "_LOOK_FOR_BOOKIES_AGAIN_S", 0.01)
    for bookie_id in (AWAY, HERE[0]):
        await cluster.take_away(bookie_id)
    script = Script()

    def fault(operation: str, path: str) -> Fault | None:
        is_waiting = "waiting for bookies" in caplog.text and not has_begun_to_watch
        return script(operation, path) or (Fault.LOST_REQUEST if is_waiting else None)

    store = ScriptedStore(cluster.store.tree, fault=fault)
    creating = asyncio.create_task(cluster.client(store=store).create_ledger())
    await until(lambda: "waiting for bookies" in caplog.text)
    if has_begun_to_watch:
        await until(lambda: len(script.paths("watch_children")) == 2)
        store.fault = lambda operation, path: script(operation, path) or Fault.LOST_REQUEST
    asked = len(script.seen)
    await until(lambda: len(script.seen) > asked + 3)
    assert not creating.done()

    await cluster.bring_back(HERE[0])
    store.fault = None

    assert (await creating).bookies_missed == {AWAY}


@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=3_600_000)
async def test_a_bookie_that_is_back_before_it_is_watched_for_is_not_missed(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of that the watch would never tell."""
    watch = BookieRegistry.watch

    async def comes_back_first(registry: BookieRegistry, *args: Any) -> Any:
        await cluster.bring_back(AWAY)
        return await watch(registry, *args)

    await cluster.take_away(AWAY)
    await cluster.take_away(HERE[0])
    monkeypatch.setattr(BookieRegistry, "watch", comes_back_first)
    monkeypatch.setattr(context, "_LOOK_FOR_BOOKIES_AGAIN_S", 3_600)

    async with asyncio.timeout(seconds(20)):
        writer = await cluster.client().create_ledger()
    await writer.close()


@pytest.mark.cluster(bookies=2, bookie_wait_timeout_ms=60_000)
async def test_bookies_that_never_were_are_not_waited_for(cluster: InProcessCluster) -> None:
    with pytest.raises(NotEnoughBookiesError, match="needed=3"):
        await cluster.client().create_ledger()


@pytest.mark.cluster(bookies=3)
async def test_a_bookie_that_was_forgotten_holds_no_place(cluster: InProcessCluster) -> None:
    await cluster.take_away(AWAY)
    await cluster.cookies.delete(AWAY)

    with pytest.raises(NotEnoughBookiesError, match="needed=3"):
        await cluster.client().create_ledger()


@pytest.mark.cluster(bookies=3)
async def test_a_bookie_that_speaks_no_protocol_of_ours_holds_no_place(
    cluster: InProcessCluster,
) -> None:
    """It is there, and never will take an entry."""
    await cluster.take_away(AWAY)
    foreign = BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, "h", 1, "carrier-pigeon"),))
    await BookieRegistry(cluster.store, ROOT).register(AWAY, foreign, readonly=False)

    with pytest.raises(NotEnoughBookiesError, match="needed=3"):
        await cluster.client().create_ledger()


@pytest.mark.parametrize("has_cookie", [True, False])
@pytest.mark.cluster(bookies=3)
async def test_a_bookie_that_is_read_only_holds_a_place(
    cluster: InProcessCluster, has_cookie: bool
) -> None:
    """It belongs to the cluster, whoever wrote its cookie, if anybody did."""
    await cluster.take_away(AWAY)
    if not has_cookie:
        await cluster.cookies.delete(AWAY)
    await BookieRegistry(cluster.store, ROOT).register(AWAY, BookieServiceInfo(), readonly=True)

    async with await cluster.client().create_ledger() as writer:
        assert await writer.append(b"0") == 0
        assert set(writer.metadata.last_fragment.ensemble) == {AWAY, *HERE}
    assert AWAY not in cluster.copies(writer.ledger_id, 0)


@pytest.mark.cluster(bookies=3, explicit_lac_interval_ms=0)
async def test_a_bookie_that_was_killed_is_sent_nothing_of_the_next_ledgers(
    cluster: InProcessCluster,
) -> None:
    """It stays registered until its session expires, and each ledger waited for it anew."""
    client = cluster.client()
    cluster.set_faults(AWAY, is_dead=True)
    async with await client.create_ledger() as first:
        await first.append(b"0")
        await until(lambda: first.bookies_missed == {AWAY})
    sent = len(cluster.faults[AWAY].writes_seen)

    for _ in range(3):
        async with await client.create_ledger() as writer:
            assert await writer.append(b"0") == 0
            assert held_members(writer.metadata) == (AWAY,)
    assert len(cluster.faults[AWAY].writes_seen) == sent

    cluster.set_faults(AWAY, is_dead=False)
    async with await client.create_ledger() as writer:
        await writer.append(b"0")
        assert held_members(writer.metadata) == ()
    await until(lambda: AWAY in cluster.copies(writer.ledger_id, 0))


@pytest.mark.parametrize("min_write_quorum", [0, 3])
@pytest.mark.cluster(bookies=3, bookie_wait_timeout_ms=60_000)
async def test_suspects_that_are_needed_are_members_though_they_do_not_answer(
    cluster: InProcessCluster, min_write_quorum: int
) -> None:
    """They are registered: better than to fail, or to wait for others that do not exist."""
    client = cluster.client(min_write_quorum=min_write_quorum)
    silent = [AWAY] if min_write_quorum else [AWAY, HERE[0]]
    cluster.set_faults(*silent, is_dead=True)
    for bookie_id in silent:
        client.cluster.quarantine(bookie_id)

    writer = await client.create_ledger()

    assert held_members(writer.metadata) == ()
    cluster.set_faults(*silent, is_dead=False)
    await writer.append(b"0")
    await until(lambda: set(cluster.copies(writer.ledger_id, 0)) == {AWAY, *HERE})


@pytest.mark.cluster(bookies=3)
async def test_only_suspects_are_asked_and_one_that_never_answers_is_not_waited_for(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie that hangs, unlike one that is dead, refuses no connection."""
    asked: list[str] = []
    client = cluster.client()
    connected = client.cluster.connections.client

    def hanging(bookie_id: str) -> object:
        async def info() -> None:
            asked.append(bookie_id)
            await asyncio.Event().wait()

        bookie = connected(bookie_id)
        monkeypatch.setattr(bookie, "info", info)
        return bookie

    monkeypatch.setattr(client.cluster.connections, "client", hanging)
    monkeypatch.setattr(context, "_ASK_SUSPECT_S", 0.01)
    client.cluster.quarantine(AWAY)

    async with asyncio.timeout(seconds(20)):
        writer = await client.create_ledger()

    assert asked == [AWAY]
    assert held_members(writer.metadata) == (AWAY,)
    await writer.close()
