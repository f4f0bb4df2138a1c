"""Mutants of sweeps and aborts: clauses of the protocol, broken one by one.

The clauses are those of the log layer's modules ``sweep``, ``nodes`` and ``collect``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.operations import StoreConflict
from spark_bookkeeper.log.cleaning import sweep
from spark_bookkeeper.log.cleaning.collect import Collector
from spark_bookkeeper.log.cleaning.sweep import Sweeper, SweepReport
from spark_bookkeeper.log.format.epoch import TaskMessage, TokenChild, TokenState
from spark_bookkeeper.log.format.serde import encode_token
from spark_bookkeeper.log.nodes.deletes import delete_node
from spark_bookkeeper.log.nodes.paths import job_name
from spark_bookkeeper.log.nodes.reads import LogNodes, TokenAt
from tests.simulation.kit.patching import Mutants, Patch

MUTANTS = Mutants()
planted = MUTANTS.planted

# -- ending tokens -----------------------------------------------------------------------------------


@planted("abort_without_killing", "an abort cleans under a token that is LIVE", "R2")
def _abort_without_killing(patch: Patch) -> None:
    async def abort(
        self: Sweeper, messages: Sequence[TaskMessage | None], *, log: str
    ) -> SweepReport:
        report = SweepReport()
        named = next((message for message in messages if message is not None), None)
        if named is None:
            return report
        nodes = self.site.nodes(named.epoch.log_id, log)
        number = named.epoch.number
        try:
            children = await nodes.token_children(number)
            await self.remove_children(nodes, number, children, set(children), report)
        except (BookKeeperError, StoreConflict):
            return report
        return report

    patch.method(Sweeper, "abort", abort, source="45d648e3")


@planted("abort_of_the_job", "an abort ends every epoch of its job", "R4")
def _abort_of_the_job(patch: Patch) -> None:
    abort = Sweeper.abort

    async def all_epochs(
        self: Sweeper, messages: Sequence[TaskMessage | None], *, log: str
    ) -> SweepReport:
        named = next((message for message in messages if message is not None), None)
        if named is not None:
            nodes = self.site.nodes(named.epoch.log_id, log)
            with suppress(BookKeeperError, StoreConflict):
                for epoch in await nodes.job_epochs(job_name(named.job)):
                    await nodes.kill(epoch, self.site.clock_ms())
        return await abort(self, messages, log=log)

    patch.method(Sweeper, "abort", all_epochs)


@planted(
    "abort_believes_it_failed", "an abort takes a commit that happened for one that did not", "X7"
)
def _abort_believes_it_failed(patch: Patch) -> None:
    abort = Sweeper.abort

    async def sure(
        self: Sweeper, messages: Sequence[TaskMessage | None], *, log: str
    ) -> SweepReport:
        report = await abort(self, messages, log=log)
        for message in messages:
            if message is not None and message.written is not None:
                await self.remove_ledger(message.written.ledger_id, report)
        return report

    patch.method(Sweeper, "abort", sure)


@planted("kill_unguarded", "setting a token DEAD does not care what it is", "R4")
def _kill_unguarded(patch: Patch) -> None:
    async def kill(self: LogNodes, epoch: int, now_ms: int) -> TokenState | None:
        found = await self.token(epoch)
        if found is None:
            return None
        dead = replace(found.token, state=TokenState.DEAD, changed_ms=now_ms)
        try:
            await self.store.put(self.tree.token(epoch), encode_token(dead), found.version)
        except StoreConflict:
            return found.token.state
        return TokenState.DEAD

    patch.method(LogNodes, "kill", kill, source="ffe5fdd5")


@planted("kill_believed_done", "setting a token DEAD counts as done though no reply came", "R3")
def _kill_believed_done(patch: Patch) -> None:
    kill = LogNodes.kill

    async def sure(self: LogNodes, epoch: int, now_ms: int) -> TokenState | None:
        found = await self.token(epoch)
        if found is None or found.token.state is not TokenState.LIVE:
            return await kill(self, epoch, now_ms)
        dead = replace(found.token, state=TokenState.DEAD, changed_ms=now_ms)
        with suppress(StoreConflict, MetadataUnavailableError):
            await self.store.put(self.tree.token(epoch), encode_token(dead), found.version)
        return TokenState.DEAD

    patch.method(LogNodes, "kill", sure, source="ffe5fdd5")


@planted("gc_kills_early", "a collection ends every LIVE token it finds", "R4")
def _gc_kills_early(patch: Patch) -> None:
    is_due = Collector._is_due

    def impatient(self: Collector, found: TokenAt, *rest: Any) -> bool:
        is_live = found.token.state is TokenState.LIVE
        return is_live or is_due(self, found, *rest)

    patch.method(Collector, "_is_due", impatient)


@planted("gc_spares_live", "a collection never ends a LIVE token", "X5")
def _gc_spares_live(patch: Patch) -> None:
    is_due = Collector._is_due

    def patient(self: Collector, found: TokenAt, *rest: Any) -> bool:
        is_live = found.token.state is TokenState.LIVE
        return not is_live and is_due(self, found, *rest)

    patch.method(Collector, "_is_due", patient)


# -- what goes with an epoch -------------------------------------------------------------------------


@planted("sweep_under_live", "a sweep cleans under whatever token it finds", "R2")
def _sweep_under_live(patch: Patch) -> None:
    async def spare(self: LogNodes, epoch: int, now_ms: int) -> TokenState | None:
        found = await self.token(epoch)
        return None if found is None else found.token.state

    token = LogNodes.token

    async def sweep_epoch(
        self: Sweeper, nodes: LogNodes, epoch: int, *rest: Any, **how: Any
    ) -> None:
        async def as_dead(asked: int) -> TokenAt | None:
            found = await token(nodes, asked)
            if found is None or found.token.state is not TokenState.LIVE:
                return found
            return replace(found, token=replace(found.token, state=TokenState.DEAD))

        blind = copy(nodes)
        blind.token = as_dead  # type: ignore[method-assign, assignment]
        await original(self, blind, epoch, *rest, **how)

    original = Sweeper.sweep_epoch
    patch.method(LogNodes, "kill", spare, source="ffe5fdd5")
    patch.method(Sweeper, "sweep_epoch", sweep_epoch)


@planted(
    "sweep_of_committed_unread",
    "a sweep deletes under COMMITTED what its messages do not name",
    "X7",
)
def _sweep_of_committed_unread(patch: Patch) -> None:
    async def nothing(*asked: Any, **how: Any) -> set[int]:
        return set()

    patch.function(sweep.find_referenced, nothing, source="50163e92")


@planted(
    "garbage_not_looked_at", "only what the log names is spared, not what its garbage does", "X7"
)
def _garbage_not_looked_at(patch: Patch) -> None:
    async def nothing(*asked: Any, **how: Any) -> set[int]:
        return set()

    patch.function(sweep._find_named_by_garbage, nothing, source="92d50ae9")


@planted(
    "garbage_read_before_head", "a range that moves to the garbage meanwhile is seen nowhere", "X7"
)
def _garbage_read_before_head(patch: Patch) -> None:
    find_referenced = sweep.find_referenced

    async def reversed_(
        nodes: LogNodes, ledger_ids: Collection[int], *, besides: int | None = None
    ) -> set[int]:
        epochs = await nodes.garbage_epochs()
        earlier = copy(nodes)

        async def as_read() -> list[int]:
            return epochs

        earlier.garbage_epochs = as_read  # type: ignore[method-assign]
        return await find_referenced(earlier, ledger_ids, besides=besides)

    patch.function(find_referenced, reversed_)


@planted("child_before_ledger", "a ledger is forgotten before it is deleted", "R5")
def _child_before_ledger(patch: Patch) -> None:
    remove = Sweeper.remove_children

    async def hasty(
        self: Sweeper, nodes: LogNodes, epoch: int, children: Sequence[TokenChild], *rest: Any
    ) -> bool:
        for child in children:
            await delete_node(nodes.store, nodes.tree.token_child(epoch, child))
        return await remove(self, nodes, epoch, children, *rest)

    patch.method(Sweeper, "remove_children", hasty)


@planted("failed_delete_forgotten", "a ledger that could not be deleted is forgotten", "R5")
def _failed_delete_forgotten(patch: Patch) -> None:
    remove = Sweeper.remove_ledger

    async def optimistic(self: Sweeper, *asked: Any, **how: Any) -> bool:
        await remove(self, *asked, **how)
        return True

    patch.method(Sweeper, "remove_ledger", optimistic)


@planted("own_epoch_only", "a sweep leaves the job's other epochs alone", "R11")
def _own_epoch_only(patch: Patch) -> None:
    after = Sweeper._after_commit

    async def alone(self: Sweeper, nodes: LogNodes, *rest: Any) -> None:
        async def none(job: str) -> list[int]:
            return []

        nodes.job_epochs = none  # type: ignore[method-assign]
        await after(self, nodes, *rest)

    patch.method(Sweeper, "_after_commit", alone)
