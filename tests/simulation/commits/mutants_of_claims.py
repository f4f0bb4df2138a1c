"""Mutants of plans and claims: clauses of the protocol, broken one by one.

The clauses are those of the log layer's module ``jobs``.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from bookkeeper_metadata.store.operations import Check, Create, NodeExistsError, Operation
from spark_bookkeeper.log.commits.jobs import Claim, Jobs
from spark_bookkeeper.log.format.epoch import Epoch, Job, Token, TokenState
from spark_bookkeeper.log.format.serde import encode_token
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.simulation.commits.mutants_of_commits import kind_running
from tests.simulation.kit.patching import Mutants, Patch

MUTANTS = Mutants()
planted = MUTANTS.planted

_CLAIMING: ContextVar[int] = ContextVar("_CLAIMING")
"""The epoch that the running task claims."""


@planted("claim_unguarded", "a ledger is created without a look at the token", "R1")
def _claim_unguarded(patch: Patch) -> None:
    extra_operations = Claim.extra_operations

    def unguarded(self: Claim, ledger_id: int) -> list[Operation]:
        return [part for part in extra_operations(self, ledger_id) if not isinstance(part, Check)]

    patch.method(Claim, "extra_operations", unguarded)


@planted(
    "ledger_not_registered", "a ledger is created with no child of its token", "R5", "X5", "R1"
)
def _ledger_not_registered(patch: Patch) -> None:
    extra_operations = Claim.extra_operations

    def unregistered(self: Claim, ledger_id: int) -> list[Operation]:
        return [part for part in extra_operations(self, ledger_id) if not isinstance(part, Create)]

    patch.method(Claim, "extra_operations", unregistered)


@planted("token_made_again", "a task that finds no token makes it again", "R4", "X1", "X3", "R5")
def _token_made_again(patch: Patch) -> None:
    require = Jobs._require_live

    async def generous(self: Jobs, nodes: LogNodes, epoch: Epoch) -> None:
        if await nodes.token(epoch.number) is None:
            value = encode_token(Token(created_ms=epoch.planned_ms))
            with suppress(NodeExistsError):
                await nodes.store.create(nodes.tree.token(epoch.number), value)
        await require(self, nodes, epoch)

    patch.method(Jobs, "_require_live", generous)


@planted("higher_epoch_ignored", "an old plan's task goes on beside a new plan's", "R6")
def _higher_epoch_ignored(patch: Patch) -> None:
    claim, epochs = Jobs.claim, LogNodes.job_epochs

    async def alone(self: Jobs, epoch: Epoch, job: Job, **which: Any) -> Claim | None:
        _CLAIMING.set(epoch.number)
        return await claim(self, epoch, job, **which)

    async def lower(self: LogNodes, job: str) -> list[int]:
        found = await epochs(self, job)
        return [number for number in found if kind_running() != "task" or number <= _CLAIMING.get()]

    patch.method(Jobs, "claim", alone)
    patch.method(LogNodes, "job_epochs", lower)


@planted("sibling_fenced", "a claim fences what its own epoch has open", "R3")
def _sibling_fenced(patch: Patch) -> None:
    claim = Jobs.claim

    async def jealous(self: Jobs, epoch: Epoch, job: Job, **which: Any) -> Claim | None:
        made = await claim(self, epoch, job, **which)
        if made is not None:
            self._fence_in_background(made.nodes, epoch.number)
        return made

    patch.method(Jobs, "claim", jealous)


@planted("predecessor_fenced_first", "an attempt fences before it has closed its own ledger", "R3")
def _predecessor_fenced_first(patch: Patch) -> None:
    claim = Jobs.claim

    async def early(self: Jobs, epoch: Epoch, job: Job, **which: Any) -> Claim | None:
        made = await claim(self, epoch, job, **which)
        if made is not None:
            await self.fence_predecessors(made)
        return made

    patch.method(Jobs, "claim", early)


@planted("any_sibling_fenced", "a retry fences all attempts of its partition, later ones too", "R3")
def _any_sibling_fenced(patch: Patch) -> None:
    fence = Jobs.fence_predecessors

    async def all_others(self: Jobs, claim: Claim) -> None:
        await fence(self, replace(claim, task_attempt_id=1 << 40))

    patch.method(Jobs, "fence_predecessors", all_others)


@planted(
    "lower_epoch_not_ended", "a new plan fences the old one's ledgers and leaves its token", "R3"
)
def _lower_epoch_not_ended(patch: Patch) -> None:
    kill = LogNodes.kill

    async def spare(self: LogNodes, number: int, now_ms: int) -> TokenState | None:
        if kind_running() != "task":
            return await kill(self, number, now_ms)
        found = await self.token(number)
        return None if found is None else found.token.state

    patch.method(LogNodes, "kill", spare)
