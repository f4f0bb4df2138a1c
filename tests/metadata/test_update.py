"""The update loop ends knowing what happened, whoever else writes and whatever gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from bookkeeper_metadata.model import LedgerMetadata, LedgerState, Stop, Versioned
from bookkeeper_metadata.serde import encode_metadata
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.update import (
    READ_BACK_ATTEMPTS_MAX,
    UPDATE_ATTEMPTS_MAX,
    LedgerNode,
    update_metadata,
)
from tests.metadata.samples import open_ledger

PATH = "/l"
OTHER = open_ledger(custom_metadata={"by": b"another"}, writer_token=77)


class Scene:
    """A ledger in memory, an operation log, and a script of what happens at which operation."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.store.tree.create(PATH, encode_metadata(open_ledger(writer_token=5)))
        self.node = LedgerNode(self.store, PATH, 7)
        self.operations: list[str] = []
        self.script: dict[tuple[str, int], Callable[[], Fault | None]] = {}
        self.store.fault = self._fault

    def at(self, operation: str, nth: int, act: Callable[[], Fault | None]) -> None:
        """At the ``nth`` (from 1) ``operation``, before it is applied."""
        self.script[operation, nth] = act

    def another_writes(self, version: int, metadata: LedgerMetadata = OTHER) -> None:
        self.store.tree.put(PATH, encode_metadata(metadata), version)

    async def update(
        self,
        transform: Callable[
            [LedgerMetadata], LedgerMetadata | Stop[str]
        ] = LedgerMetadata.in_recovery,
        known: Versioned | None = None,
    ) -> Versioned | Stop[str]:
        return await update_metadata(self.node, transform, random=Random(1), known=known)

    def _fault(self, operation: str, path: str) -> Fault | None:
        self.operations.append(operation)
        act = self.script.get((operation, self.operations.count(operation)))
        return act() if act is not None else None


def run(scenario: Callable[[Scene], asyncio.Future[None] | object]) -> None:
    async def main() -> None:
        result = scenario(Scene())
        assert asyncio.iscoroutine(result)
        await result

    asyncio.run(main())


def test_an_update_stamps_a_fresh_token_and_moves_one_version() -> None:
    async def scenario(scene: Scene) -> None:
        result = await scene.update()
        assert isinstance(result, Versioned)
        assert (result.version, result.metadata.state) == (1, LedgerState.IN_RECOVERY)
        assert result.metadata.writer_token not in (0, 5)
        assert await scene.node.read() == result

    run(scenario)


def test_nothing_is_written_when_nothing_would_change_or_the_transform_stops() -> None:
    async def scenario(scene: Scene) -> None:
        scene.another_writes(0, open_ledger(state=LedgerState.IN_RECOVERY, writer_token=3))
        joined = await scene.update()
        stopped = await scene.update(lambda metadata: Stop(metadata.state.name))
        assert isinstance(joined, Versioned)
        assert joined.version == 1
        assert stopped == Stop("IN_RECOVERY")
        assert "put" not in scene.operations

    run(scenario)


@pytest.mark.conformance("W25")
def test_stale_knowledge_is_replaced_and_decided_anew() -> None:
    async def scenario(scene: Scene) -> None:
        known = await scene.node.read()
        scene.another_writes(0)
        result = await scene.update(known=known)
        assert isinstance(result, Versioned)
        assert result.version == 2
        assert result.metadata.custom_metadata == OTHER.custom_metadata

    run(scenario)


def test_a_lost_request_is_sent_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.at("put", 1, lambda: Fault.LOST_REQUEST)
        result = await scene.update()
        assert isinstance(result, Versioned)
        assert result.version == 1
        assert scene.operations.count("put") == 2

    run(scenario)


def test_a_lost_reply_is_recognized_as_our_own_success() -> None:
    async def scenario(scene: Scene) -> None:
        scene.at("put", 1, lambda: Fault.LOST_REPLY)
        scene.at("sync", 1, lambda: Fault.LOST_REPLY)
        scene.at("get", 2, lambda: Fault.LOST_REPLY)
        result = await scene.update()
        assert isinstance(result, Versioned)
        assert result.version == 1
        assert scene.operations.count("put") == 1

    run(scenario)


def test_a_change_that_is_not_idempotent_happens_once_though_its_reply_is_lost() -> None:
    async def scenario(scene: Scene) -> None:
        scene.at("put", 1, lambda: Fault.LOST_REPLY)
        result = await scene.update(
            lambda now: replace(
                now, custom_metadata={"n": now.custom_metadata.get("n", b"") + b"1"}
            )
        )
        assert isinstance(result, Versioned)
        assert result.metadata.custom_metadata == {"n": b"1"}
        assert await scene.node.read() == result

    run(scenario)


def test_a_lost_reply_whose_change_was_overwritten_is_decided_anew() -> None:
    async def scenario(scene: Scene) -> None:
        scene.at("put", 1, lambda: Fault.LOST_REPLY)
        scene.at("sync", 1, lambda: scene.another_writes(1))
        result = await scene.update()
        assert isinstance(result, Versioned)
        assert result.version == 3
        assert result.metadata.custom_metadata == OTHER.custom_metadata

    run(scenario)


def test_a_lost_request_behind_which_another_won_is_no_success_of_ours() -> None:
    async def scenario(scene: Scene) -> None:
        def other_first() -> Fault:
            scene.another_writes(0)
            return Fault.LOST_REPLY

        scene.at("put", 1, other_first)
        result = await scene.update(
            lambda now: Stop("beaten") if now.custom_metadata else now.in_recovery()
        )
        assert result == Stop("beaten")
        assert (await scene.node.read()).version == 1

    run(scenario)


def test_silence_after_a_lost_reply_is_reported_as_unknown() -> None:
    async def scenario(scene: Scene) -> None:
        scene.at("put", 1, lambda: Fault.LOST_REPLY)
        for nth in range(1, READ_BACK_ATTEMPTS_MAX + 1):
            scene.at("sync", nth, lambda: Fault.LOST_REQUEST)
        with pytest.raises(MetadataUnavailableError) as error:
            await scene.update()
        assert not error.value.definite
        assert (await scene.node.read()).version == 1

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "error"),
    [(None, MetadataConflictError), (Fault.LOST_REPLY, MetadataUnavailableError)],
)
def test_losing_every_race_is_definite_only_if_no_outcome_was_ever_in_doubt(
    first: Fault | None, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(scene: Scene) -> None:
        monkeypatch.setattr("bookkeeper_metadata.foundation.backoff.BACKOFF_MS_MAX", 1)

        def beaten() -> Fault | None:
            scene.another_writes(_version(scene))
            return None

        for nth in range(1, UPDATE_ATTEMPTS_MAX + 1):
            scene.at("put", nth, beaten)
        if first is not None:
            scene.at("put", 1, lambda: first)
            scene.at("sync", 1, beaten)
        with pytest.raises(error):
            await scene.update()

    run(scenario)


def _version(scene: Scene) -> int:
    node = scene.store.tree.node(PATH)
    assert node is not None
    return node.version


def test_a_ledger_deleted_meanwhile_is_reported_as_gone() -> None:
    async def scenario(scene: Scene) -> None:
        known = await scene.node.read()

        def delete() -> None:
            scene.store.tree.delete(PATH, None)

        scene.at("put", 1, delete)
        with pytest.raises(NoSuchLedgerError):
            await scene.update(known=known)

    run(scenario)


def test_metadata_that_cannot_be_understood_is_left_as_it_is() -> None:
    async def scenario(scene: Scene) -> None:
        scene.store.tree.put(PATH, b"garbage", 0)
        with pytest.raises(MetadataCorruptError):
            await scene.update()
        assert "put" not in scene.operations

    run(scenario)


@pytest.mark.conformance("W25")
def test_concurrent_updates_all_happen_once() -> None:
    async def scenario(scene: Scene) -> None:
        async def count(seed: int) -> None:
            def add(now: LedgerMetadata) -> LedgerMetadata:
                count = int(now.custom_metadata.get("n", b"0")) + 1
                return replace(now, custom_metadata={"n": str(count).encode()})

            await update_metadata(scene.node, add, random=Random(seed))

        await asyncio.gather(*(count(seed) for seed in range(4)))
        found = await scene.node.read()
        assert (found.metadata.custom_metadata["n"], found.version) == (b"4", 4)

    run(scenario)


async def test_a_creation_time_nobody_recorded_is_the_nodes_own() -> None:
    store = MemoryStore()
    store.tree._clock_ms = lambda: 4711
    store.tree.create(PATH, encode_metadata(open_ledger()))
    store.tree.create("/m", encode_metadata(open_ledger(created_ms=3)))
    assert (await LedgerNode(store, PATH, 7).read()).metadata.created_ms == 4711
    assert (await LedgerNode(store, "/m", 8).read()).metadata.created_ms == 3


def test_the_first_attempt_does_not_wait() -> None:
    class Refusing(Random):
        def randint(self, a: int, b: int) -> int:
            raise AssertionError("drew a delay for the first attempt")

    asyncio.run(back_off(0, Refusing()))
