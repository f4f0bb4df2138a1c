"""The update loop ends knowing what happened, whoever else writes and whatever gets lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from bookkeeper_metadata.errors import (
    MetadataConflictError,
    MetadataCorruptError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.foundation.backoff import back_off
from bookkeeper_metadata.model import LedgerMetadata, LedgerState, Stop, Transform, Versioned
from bookkeeper_metadata.serde import encode_metadata
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.update import (
    READ_BACK_ATTEMPTS_MAX,
    UPDATE_ATTEMPTS_MAX,
    LedgerNode,
    update_metadata,
)
from tests.doubles.stores import Script
from tests.metadata.samples import open_ledger

PATH = "/l"
OTHER = open_ledger(custom_metadata={"by": b"another"}, writer_token=77)


class Scene:
    """A ledger in memory, and a script of what happens at which operation."""

    def __init__(self) -> None:
        self.script = Script()
        self.store = MemoryStore(fault=self.script)
        self.store.tree.create(PATH, encode_metadata(open_ledger(writer_token=5)))
        self.node = LedgerNode(self.store, PATH, 7)

    def another_writes(self, metadata: LedgerMetadata = OTHER) -> None:
        node = self.store.tree.node(PATH)
        assert node is not None
        self.store.tree.put(PATH, encode_metadata(metadata), node.version)

    async def update(
        self, transform: Transform[str] = LedgerMetadata.in_recovery, known: Versioned | None = None
    ) -> Versioned | Stop[str]:
        return await update_metadata(self.node, transform, random=Random(1), known=known)

    async def updated(self, transform: Transform[str] = LedgerMetadata.in_recovery) -> Versioned:
        """What an update that is not stopped stored or found."""
        result = await self.update(transform)
        assert isinstance(result, Versioned)
        return result


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_an_update_stamps_a_fresh_token_and_moves_one_version(scene: Scene) -> None:
    result = await scene.updated()
    assert (result.version, result.metadata.state) == (1, LedgerState.IN_RECOVERY)
    assert result.metadata.writer_token not in (0, 5)
    assert await scene.node.read() == result


async def test_nothing_is_written_when_nothing_would_change_or_the_transform_stops(
    scene: Scene,
) -> None:
    scene.another_writes(open_ledger(state=LedgerState.IN_RECOVERY, writer_token=3))
    joined = await scene.updated()
    stopped = await scene.update(lambda metadata: Stop(metadata.state.name))
    assert joined.version == 1
    assert stopped == Stop("IN_RECOVERY")
    assert scene.script.paths("put") == []


@pytest.mark.conformance("W25", "M3")
async def test_stale_knowledge_is_replaced_and_decided_anew(scene: Scene) -> None:
    known = await scene.node.read()
    scene.another_writes()
    result = await scene.update(known=known)
    assert isinstance(result, Versioned)
    assert result.version == 2
    assert result.metadata.custom_metadata == OTHER.custom_metadata


async def test_a_lost_request_is_sent_again(scene: Scene) -> None:
    scene.script.lose("put", 1, Fault.LOST_REQUEST)
    result = await scene.updated()
    assert result.version == 1
    assert len(scene.script.paths("put")) == 2


async def test_a_lost_reply_is_recognized_as_our_own_success(scene: Scene) -> None:
    scene.script.lose("put", 1, Fault.LOST_REPLY)
    scene.script.lose("sync", 1, Fault.LOST_REPLY)
    scene.script.lose("get", 2, Fault.LOST_REPLY)
    result = await scene.updated()
    assert result.version == 1
    assert len(scene.script.paths("put")) == 1


async def test_a_change_that_is_not_idempotent_happens_once_though_its_reply_is_lost(
    scene: Scene,
) -> None:
    scene.script.lose("put", 1, Fault.LOST_REPLY)
    result = await scene.updated(
        lambda now: replace(now, custom_metadata={"n": now.custom_metadata.get("n", b"") + b"1"})
    )
    assert result.metadata.custom_metadata == {"n": b"1"}
    assert await scene.node.read() == result


async def test_a_lost_reply_whose_change_was_overwritten_is_decided_anew(scene: Scene) -> None:
    scene.script.lose("put", 1, Fault.LOST_REPLY)
    scene.script.at("sync", 1, scene.another_writes)
    result = await scene.updated()
    assert result.version == 3
    assert result.metadata.custom_metadata == OTHER.custom_metadata


async def test_a_lost_request_behind_which_another_won_is_no_success_of_ours(scene: Scene) -> None:
    def other_first() -> Fault:
        scene.another_writes()
        return Fault.LOST_REPLY

    scene.script.at("put", 1, other_first)
    result = await scene.update(
        lambda now: Stop("beaten") if now.custom_metadata else now.in_recovery()
    )
    assert result == Stop("beaten")
    assert (await scene.node.read()).version == 1


async def test_silence_after_a_lost_reply_is_reported_as_unknown(scene: Scene) -> None:
    scene.script.lose("put", 1, Fault.LOST_REPLY)
    for nth in range(1, READ_BACK_ATTEMPTS_MAX + 1):
        scene.script.lose("sync", nth, Fault.LOST_REQUEST)
    with pytest.raises(MetadataUnavailableError) as error:
        await scene.update()
    assert not error.value.definite
    assert (await scene.node.read()).version == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "error"),
    [(None, MetadataConflictError), (Fault.LOST_REPLY, MetadataUnavailableError)],
)
async def test_losing_every_race_is_definite_only_if_no_outcome_was_ever_in_doubt(
    scene: Scene, first: Fault | None, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookkeeper_metadata.foundation.backoff.BACKOFF_MS_MAX", 1)

    for nth in range(1, UPDATE_ATTEMPTS_MAX + 1):
        scene.script.at("put", nth, scene.another_writes)
    if first is not None:
        scene.script.at("put", 1, lambda: first)
        scene.script.at("sync", 1, scene.another_writes)
    with pytest.raises(error):
        await scene.update()


async def test_a_ledger_deleted_meanwhile_is_reported_as_gone(scene: Scene) -> None:
    known = await scene.node.read()

    scene.script.at("put", 1, lambda: scene.store.tree.delete(PATH, None))
    with pytest.raises(NoSuchLedgerError):
        await scene.update(known=known)


async def test_metadata_that_cannot_be_understood_is_left_as_it_is(scene: Scene) -> None:
    scene.store.tree.put(PATH, b"garbage", 0)
    with pytest.raises(MetadataCorruptError):
        await scene.update()
    assert scene.script.paths("put") == []


@pytest.mark.conformance("W25")
async def test_concurrent_updates_all_happen_once(scene: Scene) -> None:
    async def count(seed: int) -> None:
        def add(now: LedgerMetadata) -> LedgerMetadata:
            count = int(now.custom_metadata.get("n", b"0")) + 1
            return replace(now, custom_metadata={"n": str(count).encode()})

        await update_metadata(scene.node, add, random=Random(seed))

    await asyncio.gather(*(count(seed) for seed in range(4)))
    found = await scene.node.read()
    assert (found.metadata.custom_metadata["n"], found.version) == (b"4", 4)


async def test_a_creation_time_nobody_recorded_is_the_nodes_own() -> None:
    store = MemoryStore()
    store.tree._clock_ms = lambda: 4711
    store.tree.create(PATH, encode_metadata(open_ledger()))
    store.tree.create("/m", encode_metadata(open_ledger(created_ms=3)))
    assert (await LedgerNode(store, PATH, 7).read()).metadata.created_ms == 4711
    assert (await LedgerNode(store, "/m", 8).read()).metadata.created_ms == 3


async def test_the_first_attempt_does_not_wait() -> None:
    class Refusing(Random):
        def randint(self, a: int, b: int) -> int:
            raise AssertionError("drew a delay for the first attempt")

    await back_off(0, Refusing())
