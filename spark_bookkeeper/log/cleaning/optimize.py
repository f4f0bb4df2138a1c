"""Rewrites ranges of many small ledgers into few large ones: same rows, same numbers, fewer ledgers.

One *instalment* is planned, rewritten and committed at a time, under one token. Nobody else is excluded
meanwhile: appends, overwrites, truncations and other optimizers go on, and a group whose ranges are not
in the log any more as they were planned is given up. In this order:

1. plan: groups of neighbouring ranges, and a token, LIVE for ``OPTIMIZE_TIMEOUT_MS`` at most;
2. rewrite: each group by a task, into ledgers under the token; without all of its rows it has failed;
3. commit: chunks first, then one multi guarded by the head's version - the head with the groups
   exchanged, the token COMMITTED, the ranges taken out in the garbage;
4. sweep: ledgers that were written and not installed are deleted, the token with them.

A crash anywhere leaves a token that collection ends by its age, with all that is under it. What a lost
reply came to, the token says. The ledgers taken out are garbage like an overwrite's: reads that were
planned before go on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.store.operations import StoreConflict
from spark_bookkeeper.log.cleaning.references import find_referenced
from spark_bookkeeper.log.cleaning.sweep import (
    Sweeper,
    SweepReport,
    leaving_rest,
)
from spark_bookkeeper.log.commits.change import change_operations
from spark_bookkeeper.log.commits.jobs import Claim
from spark_bookkeeper.log.errors import CommitRefusedError, CommitUnknownError
from spark_bookkeeper.log.format.epoch import Epoch, Token, TokenState
from spark_bookkeeper.log.format.model import ChunkRef, LedgerRange, LogHead
from spark_bookkeeper.log.nodes.reads import READS_MAX, ChunkMissingError, LogNodes
from spark_bookkeeper.log.rules.chunks import FOLD, ChunkNames
from spark_bookkeeper.log.rules.grouping import GroupLimits, groups_of
from spark_bookkeeper.log.rules.rewriting import Replacement, Rewriting

OPTIMIZE_JOB = "optimize"
"""What the token of an instalment says it is for."""
OPTIMIZE_TIMEOUT_MS = 4 * 3_600_000
"""Age at which an instalment nobody finished is given up; its debris is large, so not 7 days."""
INSTALMENT_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""Payload bytes of one instalment: minutes of work, at most an hour."""
INSTALMENT_RANGES_MAX = 50_000
INSTALMENT_GROUPS_MAX = 2_000
"""Groups of one instalment: a commit looks at each of them at every try, and its garbage names each."""
NO_END = 1 << 63
"""More rows than a log has."""
COMMIT_ATTEMPTS_MAX = 30
PLAN_ATTEMPTS_MAX = 16
CHUNK_WRITES_MAX = 16

Group = tuple[LedgerRange, ...]


@dataclass(frozen=True, slots=True)
class Instalment:
    """What is rewritten under one token; picklable, for its tasks run elsewhere."""

    epoch: Epoch
    groups: tuple[Group, ...]
    next_row: int
    """Where the plan of the next one goes on."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a task made of one group."""

    group: int
    """Index in the instalment."""
    made: tuple[LedgerRange, ...]
    """The same rows in row order, each range a closed ledger under the instalment's token."""


@dataclass(slots=True)
class Optimized:
    """What one instalment came to."""

    groups: int = 0
    """Groups that are exchanged now."""
    given_up: int = 0
    """Groups whose ranges were not as planned any more, or whose task failed."""
    ranges_before: int = 0
    ranges_after: int = 0
    rows: int = 0
    size_bytes: int = 0
    """Payload bytes of the rewritten ranges."""
    swept: SweepReport = field(default_factory=SweepReport)


class Optimizer:
    """Plans and commits instalments of one cluster's logs; the rows are its caller's work."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper
        self._site = sweeper.site

    async def groups(
        self, log_id: int, log: str, limits: GroupLimits, from_row: int = 0, until_row: int = NO_END
    ) -> tuple[list[Group], int]:
        """What an instalment from ``from_row`` to before ``until_row`` would rewrite, and where the next one goes on.

        Raises:
            NoSuchLogError: the log is gone.
            MetadataUnavailableError: the store did not answer, or the log changed at every look.
        """
        nodes = self._site.nodes(log_id, log)
        for _ in range(PLAN_ATTEMPTS_MAX):
            await nodes.sync()
            try:
                head = (await nodes.head()).head
                return await _groups(nodes, head, limits, from_row, until_row)
            except ChunkMissingError:
                continue
        raise MetadataUnavailableError(nodes.store.service, f"log {log} changes at every read")

    async def plan(
        self, log_id: int, log: str, limits: GroupLimits, from_row: int = 0, until_row: int = NO_END
    ) -> Instalment | None:
        """The next instalment, with its token drawn; ``None``: nothing is worth rewriting.

        Raises: as :meth:`groups`.
        """
        groups, next_row = await self.groups(log_id, log, limits, from_row, until_row)
        if not groups:
            return None
        now_ms = self._site.clock_ms()
        token = Token(job=OPTIMIZE_JOB, created_ms=now_ms, timeout_ms=OPTIMIZE_TIMEOUT_MS)
        number = await self._site.nodes(log_id, log).draw_epoch(token)
        return Instalment(Epoch(log_id, log, number, now_ms), tuple(groups), next_row)

    async def others(self, log_id: int, log: str) -> list[int]:
        """Epochs of instalments that are under way; to wait for them is advice, not needed."""
        nodes = self._site.nodes(log_id, log)
        epochs = await nodes.epochs()
        found = await each(nodes.token, epochs, concurrency_max=READS_MAX)
        return [
            epoch
            for epoch, at in zip(epochs, found, strict=True)
            if at and at.token.job == OPTIMIZE_JOB and at.token.state is TokenState.LIVE
        ]

    def claim(self, instalment: Instalment, group: int, attempt: int) -> Claim:
        """The right of one attempt at one group to create ledgers."""
        epoch = instalment.epoch
        return Claim(self._site.nodes(epoch.log_id, epoch.log), epoch, group, attempt)

    async def commit(self, instalment: Instalment, rewritten: Sequence[Rewritten]) -> Optimized:
        """Exchange what was rewritten, and sweep; groups without a message have failed.

        Raises:
            CommitRefusedError: the instalment was given up, by age or by an operator.
            CommitUnknownError: it may have happened, and that cannot be found out any more.
            MetadataConflictError: other writers won every time; nothing was changed.
            NoSuchLogError: the log is gone.
        """
        epoch = instalment.epoch
        nodes = self._site.nodes(epoch.log_id, epoch.log)
        ordered = sorted(rewritten, key=lambda each: each.group)
        replacements = [Replacement(instalment.groups[one.group], one.made) for one in ordered]
        result = Optimized(given_up=len(instalment.groups))
        rewriting = Rewriting(replacements, ChunkNames(epoch.number))
        installed = await self._exchange(nodes, epoch, rewriting) if replacements else None
        if installed is None:
            await self.give_up(instalment, result.swept)
            return result
        _count(result, [replacements[at] for at in installed])
        visible = {item.ledger_id for at in installed for item in replacements[at].made}
        with leaving_rest("sweep", epoch.log, epoch.number):
            # What was installed, not all that was written: groups that were given up leave ledgers.
            await self._sweeper.sweep_epoch(nodes, epoch.number, result.swept, visible=visible)
        return result

    async def give_up(self, instalment: Instalment, report: SweepReport) -> None:
        """End an instalment that is not to be committed, and delete what was written for it."""
        epoch = instalment.epoch
        nodes = self._site.nodes(epoch.log_id, epoch.log)
        with leaving_rest("giving up", epoch.log, epoch.number):
            # The token first, and only if that succeeds its ledgers: a commit may still win.
            if await nodes.kill(epoch.number, self._site.clock_ms()) is TokenState.DEAD:
                report.tokens_killed.append(epoch.number)
                await self._sweeper.sweep_epoch(nodes, epoch.number, report)

    async def _exchange(
        self, nodes: LogNodes, epoch: Epoch, rewriting: Rewriting
    ) -> frozenset[int] | None:
        """Indexes of the replacements that were installed; ``None``: none can be any more."""
        is_unknown = False
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            if attempt:
                await self._site.pause(attempt)
            try:
                await nodes.sync()
                if attempt and await self._is_settled(nodes, epoch):
                    return await _installed(nodes, rewriting)
                found = await nodes.head()
                exchanged = await rewriting.exchange(found.head, nodes.chunk, self._site.clock_ms())
                # With the fate of an earlier multi unknown, these may be its own changes.
                if exchanged is None and is_unknown:
                    continue
                if exchanged is None:
                    return None
                await each(
                    lambda chunk: nodes.store.create(nodes.tree.chunk(chunk[0].name), chunk[1]),
                    exchanged.transition.chunks,
                    concurrency_max=CHUNK_WRITES_MAX,
                )
                rewriting.keep()
            except (StoreConflict, ChunkMissingError, MetadataUnavailableError):
                continue  # Nothing but unreferenced chunks was sent.
            transition = exchanged.transition.kept_for(self._site.garbage_retention_ms)
            token = Token(
                state=TokenState.COMMITTED,
                job=OPTIMIZE_JOB,
                created_ms=epoch.planned_ms,
                changed_ms=self._site.clock_ms(),
            )
            try:
                await nodes.store.multi(
                    change_operations(nodes.tree, epoch.number, found, transition, token)
                )
                return exchanged.installed
            except StoreConflict:
                continue
            except MetadataUnavailableError:
                is_unknown = True
        return await self._settle(nodes, epoch, rewriting)

    async def _settle(self, nodes: LogNodes, epoch: Epoch, rewriting: Rewriting) -> frozenset[int]:
        """End an instalment that was tried often enough; what is installed, if one try did it."""
        try:
            state = await nodes.kill(epoch.number, self._site.clock_ms())
        except MetadataUnavailableError as lost:
            raise CommitUnknownError(
                epoch.log, epoch.number, "the metadata service stopped answering"
            ) from lost
        if state is TokenState.COMMITTED:
            return await _installed(nodes, rewriting)
        with leaving_rest("giving up", epoch.log, epoch.number):
            await self._sweeper.sweep_epoch(nodes, epoch.number, SweepReport())
        raise MetadataConflictError(
            f"log {epoch.log}", f"other writers won {COMMIT_ATTEMPTS_MAX} times"
        )

    async def _is_settled(self, nodes: LogNodes, epoch: Epoch) -> bool:
        """Whether an earlier attempt's multi has happened; the caller has synced.

        Raises:
            CommitRefusedError: it never will.
        """
        found = await nodes.token(epoch.number)
        if found is not None and found.token.state is TokenState.LIVE:
            return False
        if found is not None and found.token.state is TokenState.COMMITTED:
            return True
        # A token that was committed stays for days, so one that is gone was given up.
        raise CommitRefusedError(
            epoch.log, epoch.number, "its rewriting was given up by a clean-up"
        )


async def _installed(nodes: LogNodes, rewriting: Rewriting) -> frozenset[int]:
    """Which replacements the log holds, where a lost reply left open which attempt's."""
    ledgers = {item.ledger_id for one in rewriting.replacements for item in one.made}
    named = await find_referenced(nodes, ledgers)
    return frozenset(
        at
        for at, one in enumerate(rewriting.replacements)
        if named.issuperset(item.ledger_id for item in one.made)
    )


async def _groups(
    nodes: LogNodes, head: LogHead, limits: GroupLimits, from_row: int, until_row: int
) -> tuple[list[Group], int]:
    limits = limits.within(head.retention)
    found: list[Group] = []
    size_bytes = ranges = 0
    async for family in _families(nodes, head, from_row):
        if family and family[0].first_row >= until_row:
            break
        # What an instalment before has looked at stays; behind it groups begin anew.
        behind = [
            item for item in family if from_row <= item.first_row and item.next_row <= until_row
        ]
        for group in groups_of(behind, limits):
            size_bytes += sum(item.size_bytes for item in group)
            ranges += len(group)
            found.append(group)
            is_full = len(found) == INSTALMENT_GROUPS_MAX or ranges >= INSTALMENT_RANGES_MAX
            if is_full or size_bytes >= INSTALMENT_BYTES_MAX:
                return found, group[-1].next_row
    return found, head.next_row


async def _families(
    nodes: LogNodes, head: LogHead, from_row: int
) -> AsyncIterator[Sequence[LedgerRange]]:
    """Neighbouring ranges, in row order, that one parent lists: groups are made among them."""
    leaves = [ref for ref in head.chunks if ref.level == 0]
    for ref in head.chunks:
        if ref.level > 0 and ref.next_row > from_row:
            async for family in _families_below(nodes, ref, from_row):
                yield family
    # As they will move below an index together.
    for at in range(0, len(leaves), FOLD):
        if leaves[at : at + FOLD][-1].next_row > from_row:
            yield await nodes.ranges_below(leaves[at : at + FOLD], columns=())
    yield head.ranges


async def _families_below(
    nodes: LogNodes, ref: ChunkRef, from_row: int
) -> AsyncIterator[Sequence[LedgerRange]]:
    if ref.level == 1:
        yield await nodes.ranges_below([ref], columns=())
        return
    for below in (await nodes.chunk(ref)).chunks:
        if below.next_row > from_row:
            async for family in _families_below(nodes, below, from_row):
                yield family


def _count(result: Optimized, installed: Sequence[Replacement]) -> None:
    result.groups = len(installed)
    result.given_up -= len(installed)
    for one in installed:
        result.ranges_before += len(one.planned)
        result.ranges_after += len(one.made)
        result.rows += one.next_row - one.first_row
        result.size_bytes += sum(item.size_bytes for item in one.made)
