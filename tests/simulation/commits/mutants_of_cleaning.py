"""Mutants of sweeps, aborts, collections and truncation: clauses of the protocol, broken one by one.

The clauses are those of the log layer's modules ``sweep``, ``collect``, ``nodes`` and ``change``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from typing import Any

from metadata.errors import BookKeeperError, MetadataUnavailableError
from metadata.store import Delete, Operation, StoreConflict
from spark_bookkeeper.log import collect, sweep
from spark_bookkeeper.log.change import HeadChange
from spark_bookkeeper.log.collect import Collector
from spark_bookkeeper.log.commit import CommitSummary
from spark_bookkeeper.log.epoch import StoredTxn, TaskMessage, TokenChild, TokenState
from spark_bookkeeper.log.model import Garbage
from spark_bookkeeper.log.nodes import HeadAt, LogNodes, TokenAt
from spark_bookkeeper.log.paths import job_name
from spark_bookkeeper.log.serde import encode_token
from spark_bookkeeper.log.sweep import Sweeper, SweepReport
from spark_bookkeeper.log.transitions import Transition
from tests.simulation.commits.mutants_of_commits import planted
from tests.simulation.rules.patching import Patch

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
        nodes = LogNodes(self.store, self.paths, named.epoch.log_id, log)
        number = named.epoch.number
        try:
            children = await nodes.token_children(number)
            await self._remove_children(nodes, number, children, set(children), report)
        except (BookKeeperError, StoreConflict):
            return report
        return report

    patch.method(Sweeper, "abort", abort)


@planted("abort_of_the_job", "an abort ends every epoch of its job", "R4")
def _abort_of_the_job(patch: Patch) -> None:
    abort = Sweeper.abort

    async def all_epochs(
        self: Sweeper, messages: Sequence[TaskMessage | None], *, log: str
    ) -> SweepReport:
        named = next((message for message in messages if message is not None), None)
        if named is not None:
            nodes = LogNodes(self.store, self.paths, named.epoch.log_id, log)
            with suppress(BookKeeperError, StoreConflict):
                for epoch in await nodes.job_epochs(job_name(named.job)):
                    await nodes.kill(epoch, self.clock_ms())
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

    patch.method(LogNodes, "kill", kill)


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

    patch.method(LogNodes, "kill", sure)


@planted("gc_kills_early", "a collection ends every LIVE token it finds", "R4")
def _gc_kills_early(patch: Patch) -> None:
    is_due = Collector._is_due

    def impatient(
        self: Collector,
        found: TokenAt,
        jobs: Collection[str],
        stored: dict[str, StoredTxn],
        now_ms: int,
    ) -> bool:
        is_live = found.token.state is TokenState.LIVE
        return is_live or is_due(self, found, jobs, stored, now_ms)

    patch.method(Collector, "_is_due", impatient)


@planted("gc_spares_live", "a collection never ends a LIVE token", "X5")
def _gc_spares_live(patch: Patch) -> None:
    is_due = Collector._is_due

    def patient(
        self: Collector,
        found: TokenAt,
        jobs: Collection[str],
        stored: dict[str, StoredTxn],
        now_ms: int,
    ) -> bool:
        is_live = found.token.state is TokenState.LIVE
        return not is_live and is_due(self, found, jobs, stored, now_ms)

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
    patch.method(LogNodes, "kill", spare)
    patch.method(Sweeper, "sweep_epoch", sweep_epoch)


@planted(
    "sweep_of_committed_unread",
    "a sweep deletes under COMMITTED what its messages do not name",
    "X7",
)
def _sweep_of_committed_unread(patch: Patch) -> None:
    async def nothing(*asked: Any, **how: Any) -> set[int]:
        return set()

    patch.function(sweep.referenced, nothing)


@planted(
    "garbage_not_looked_at", "only what the log names is spared, not what its garbage does", "X7"
)
def _garbage_not_looked_at(patch: Patch) -> None:
    async def nothing(*asked: Any, **how: Any) -> set[int]:
        return set()

    patch.function(sweep._named_by_garbage, nothing)


@planted(
    "garbage_read_before_head", "a range that moves to the garbage meanwhile is seen nowhere", "X7"
)
def _garbage_read_before_head(patch: Patch) -> None:
    referenced = sweep.referenced

    async def reversed_(
        nodes: LogNodes, ledger_ids: Collection[int], *, besides: int | None = None
    ) -> set[int]:
        epochs = await nodes.garbage_epochs()
        earlier = copy(nodes)

        async def as_read() -> list[int]:
            return epochs

        earlier.garbage_epochs = as_read  # type: ignore[method-assign]
        return await referenced(earlier, ledger_ids, besides=besides)

    patch.function(referenced, reversed_)


@planted("child_before_ledger", "a ledger is forgotten before it is deleted", "R5")
def _child_before_ledger(patch: Patch) -> None:
    remove = Sweeper._remove_children

    async def hasty(
        self: Sweeper,
        nodes: LogNodes,
        epoch: int,
        children: Sequence[TokenChild],
        doomed: Collection[TokenChild],
        report: SweepReport,
    ) -> bool:
        for child in children:
            await sweep.removed(nodes.store, nodes.tree.token_child(epoch, child))
        return await remove(self, nodes, epoch, children, doomed, report)

    patch.method(Sweeper, "_remove_children", hasty)


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

    async def alone(
        self: Sweeper, nodes: LogNodes, summary: CommitSummary, report: SweepReport
    ) -> None:
        async def none(job: str) -> list[int]:
            return []

        nodes.job_epochs = none  # type: ignore[method-assign]
        await after(self, nodes, summary, report)

    patch.method(Sweeper, "_after_commit", alone)


# -- garbage and chunks ------------------------------------------------------------------------------


@planted("garbage_never_kept", "garbage goes at once, with readers still at it", "X7")
def _garbage_never_kept(patch: Patch) -> None:
    patch.method(Collector, "_is_expired", lambda self, garbage: True)


@planted("shared_garbage", "garbage takes a ledger that other garbage names", "X7")
def _shared_garbage(patch: Patch) -> None:
    referenced = sweep.referenced

    async def selfish(
        nodes: LogNodes, ledger_ids: Collection[int], *, besides: int | None = None
    ) -> set[int]:
        async def none() -> list[int]:
            return []

        if besides is not None:
            nodes = copy(nodes)
            nodes.garbage_epochs = none  # type: ignore[method-assign]
        return await referenced(nodes, ledger_ids, besides=besides)

    patch.function(referenced, selfish)


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
                await sweep.removed(nodes.store, nodes.tree.garbage_entry(epoch))
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
    chunks, referenced = Collector._chunks, sweep.referenced_chunks

    async def reversed_(self: Collector, nodes: LogNodes, *rest: Any) -> None:
        _EARLIER.set(await referenced(nodes))
        await chunks(self, nodes, *rest)

    async def as_read(nodes: LogNodes) -> set[str]:
        return _EARLIER.get()

    patch.method(Collector, "_chunks", reversed_)
    patch.function(referenced, as_read)


_EARLIER: ContextVar[set[str]] = ContextVar("_EARLIER")


@planted("chunks_of_garbage_forgotten", "only the head keeps chunks, not garbage", "X7")
def _chunks_of_garbage_forgotten(patch: Patch) -> None:
    async def of_head(nodes: LogNodes) -> set[str]:
        head = (await nodes.head()).head
        levels = await nodes.levels_below(head.chunks)
        return {ref.name for level in levels for ref in level}

    patch.function(sweep.referenced_chunks, of_head)


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

    patch.method(HeadChange, "apply", thorough)


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
