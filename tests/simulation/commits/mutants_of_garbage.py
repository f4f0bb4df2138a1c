"""Mutants of collections and of changes outside Spark: clauses of the protocol, broken one by one.

The clauses are those of the log layer's modules ``collect``, ``sweep`` and ``change``.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from typing import Any

from bookkeeper_metadata.store.operations import Delete, Operation
from spark_bookkeeper.log.cleaning import collect, sweep
from spark_bookkeeper.log.cleaning.collect import Collector
from spark_bookkeeper.log.commits.change import HeadChange
from spark_bookkeeper.log.format.model import Garbage
from spark_bookkeeper.log.nodes.deletes import delete_node
from spark_bookkeeper.log.nodes.reads import HeadAt, LogNodes
from spark_bookkeeper.log.rules.transitions import Transition
from tests.simulation.kit.patching import Mutants, Patch

MUTANTS = Mutants()
planted = MUTANTS.planted

# -- garbage and chunks ------------------------------------------------------------------------------


@planted("garbage_never_kept", "garbage goes at once, with readers still at it", "X7")
def _garbage_never_kept(patch: Patch) -> None:
    patch.constant(Collector, "_is_expired", True)


@planted("shared_garbage", "garbage takes a ledger that other garbage names", "X7")
def _shared_garbage(patch: Patch) -> None:
    find_referenced = sweep.find_referenced

    async def selfish(
        nodes: LogNodes, ledger_ids: Collection[int], *, besides: int | None = None
    ) -> set[int]:
        async def none() -> list[int]:
            return []

        if besides is not None:
            nodes = copy(nodes)
            nodes.garbage_epochs = none  # type: ignore[method-assign]
        return await find_referenced(nodes, ledger_ids, besides=besides)

    patch.function(find_referenced, selfish)


@planted(
    "garbage_forgotten_alone", "garbage leaves a ledger to other garbage that may be gone", "R5"
)
def _garbage_forgotten_alone(patch: Patch) -> None:
    forget = collect._forget_garbage

    async def alone(nodes: LogNodes, epoch: int, others: Collection[int]) -> bool:
        return await forget(nodes, epoch, ())

    patch.function(forget, alone)


@planted("garbage_before_ledgers", "a garbage entry goes before its ledgers do", "R5")
def _garbage_before_ledgers(patch: Patch) -> None:
    ledgers_of = collect._ledgers_of

    async def and_forget(nodes: LogNodes, garbage: Garbage) -> set[int] | None:
        found = await ledgers_of(nodes, garbage)
        for epoch in await nodes.garbage_epochs():
            if await nodes.garbage(epoch) == garbage:
                await delete_node(nodes.store, nodes.tree.garbage_entry(epoch))
        return found

    patch.function(ledgers_of, and_forget)


@planted("chunk_under_live", "a chunk goes though its epoch may still commit", "R2", "X7", "X6")
def _chunk_under_live(patch: Patch) -> None:
    chunks = Collector._chunks

    async def hasty(self: Collector, nodes: LogNodes, *rest: Any) -> None:
        async def gone(epoch: int) -> None:
            return None

        blind = copy(nodes)
        blind.token = gone  # type: ignore[method-assign]
        await chunks(self, blind, *rest)

    patch.method(Collector, "_chunks", hasty)


@planted("chunks_read_before_tokens", "references are read before the tokens are", "X7")
def _chunks_read_before_tokens(patch: Patch) -> None:
    chunks, find_referenced = Collector._chunks, sweep.referenced_chunks

    async def reversed_(self: Collector, nodes: LogNodes, *rest: Any) -> None:
        _EARLIER.set(await find_referenced(nodes))
        await chunks(self, nodes, *rest)

    async def as_read(nodes: LogNodes) -> set[str]:
        return _EARLIER.get()

    patch.method(Collector, "_chunks", reversed_)
    patch.function(find_referenced, as_read, source="75c12860")


_EARLIER: ContextVar[set[str]] = ContextVar("_EARLIER")


@planted("chunks_of_garbage_forgotten", "only the head keeps chunks, not garbage", "X7")
def _chunks_of_garbage_forgotten(patch: Patch) -> None:
    async def of_head(nodes: LogNodes) -> set[str]:
        head = (await nodes.head()).head
        levels = await nodes.levels_below(head.chunks)
        return {ref.name for level in levels for ref in level}

    patch.function(sweep.referenced_chunks, of_head, source="75c12860")


# -- changes of the head outside Spark ---------------------------------------------------------------


@planted("txn_forgotten_by_truncation", "a truncation forgets who committed what it drops", "X1")
def _txn_forgotten_by_truncation(patch: Patch) -> None:
    apply = HeadChange.apply

    async def thorough(self: HeadChange, found: HeadAt, transition: Transition) -> None:
        if transition.garbage is None:
            await apply(self, found, transition)
            return
        nodes = self._nodes
        names = await nodes.store.children(nodes.tree.txns) or []
        await self.write_chunks(transition)
        operations = self.operations(found, transition)
        await nodes.store.multi(
            [*operations, *(Delete(f"{nodes.tree.txns}/{name}", None) for name in names)]
        )

    patch.method(HeadChange, "apply", thorough, source="27f79303")


@planted("change_without_token", "a change of the head does not take its token along", "R10")
def _change_without_token(patch: Patch) -> None:
    make = HeadChange.operations

    def alone(self: HeadChange, found: HeadAt, transition: Transition) -> list[Operation]:
        return [part for part in make(self, found, transition) if "/tokens/" not in part.path]

    patch.method(HeadChange, "operations", alone)


@planted(
    "change_without_head_version",
    "a change of the head is built upon one and guarded by another",
    "R8",
)
def _change_without_head_version(patch: Patch) -> None:
    apply = HeadChange.apply

    async def late(self: HeadChange, found: HeadAt, transition: Transition) -> None:
        await self._nodes.sync()
        newest = await self._nodes.head()
        await apply(self, replace(found, version=newest.version), transition)

    patch.method(HeadChange, "apply", late)
