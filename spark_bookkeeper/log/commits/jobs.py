"""Who may write under a log: plans draw epochs, task attempts claim them.

A plan draws an epoch with one sequential create: the *token*, LIVE until it is COMMITTED or DEAD.
A task attempt claims before it writes, and creates its ledger in one multi with a child of the
token and a check that the token is LIVE; so every ledger ever created is under a token, and once a
token is not LIVE the ledgers under it are final. A claim of a higher epoch ends the lower ones of
its job: their tokens go DEAD, their ledgers are fenced in the background, never waited for.

Never created here: a token by a task, or a token under a name that existed before. Never fenced
here: a live attempt by one of its own epoch that has not closed its own ledger (speculation would
fail healthy tasks).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bookkeeper_metadata.errors import MetadataUnavailableError, NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import both, each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.operations import (
    Check,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    StoreConflict,
)
from spark_bookkeeper.log.errors import EpochFencedError, LogHasWriterError, NoSuchLogError
from spark_bookkeeper.log.format.epoch import (
    Epoch,
    Job,
    PlannedSchema,
    SeenTable,
    Token,
    TokenChild,
    TokenState,
    evolved_schema_id,
)
from spark_bookkeeper.log.format.serde import encode_token_child
from spark_bookkeeper.log.nodes.paths import job_name
from spark_bookkeeper.log.nodes.reads import LIVE_TOKEN_VERSION, HeadAt, LogNodes
from spark_bookkeeper.log.nodes.site import LogSite
from spark_bookkeeper.log.rules.commit import TxnStatus, txn_status

PLAN_ATTEMPTS_MAX = 5
"""Tokens drawn for one plan while replies get lost; each lost one expires unused."""
CLAIM_ATTEMPTS_MAX = 8
"""How often a claim's index node is tried; sweeps may remove its parent in between."""
FENCE_CONCURRENCY_MAX = 8
"""Ledgers of superseded attempts fenced at a time by one task."""
_TRIED_AGAIN = (NodeExistsError, NoNodeError, MetadataUnavailableError)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one task attempt to create ledgers, as long as its token is LIVE."""

    nodes: LogNodes
    epoch: Epoch
    partition: int
    task_attempt_id: int

    def extra_operations(self, ledger_id: int) -> list[Operation]:
        """Operations that go into the very multi that creates the metadata of ledger ``ledger_id``.

        A new ledger id is drawn after a lost reply that cannot be resolved.
        """
        child = TokenChild(self.partition, self.task_attempt_id, ledger_id)
        tree = self.nodes.tree
        return [
            Check(tree.token(self.epoch.number), LIVE_TOKEN_VERSION),
            Create(tree.token_child(self.epoch.number, child), encode_token_child(child)),
        ]

    @contextmanager
    def explain_refusals(self) -> Iterator[None]:
        """For the block that creates a ledger with :meth:`extra_operations`.

        Raises:
            EpochFencedError: the token is not LIVE any more; no ledger was created.
        """
        try:
            yield
        except StoreConflict as conflict:
            # Both operations are at or below the token: a refusal elsewhere is not about the claim.
            if not conflict.path.startswith(self.nodes.tree.token(self.epoch.number)):
                raise
            raise EpochFencedError(
                self.epoch.log, self.epoch.number, "its token is not live any more"
            ) from conflict


class Jobs:
    """Plans and claims of the logs of one cluster. Owns the background fencing it starts."""

    def __init__(self, site: LogSite) -> None:
        self._site = site
        self._store = site.store
        self._background: set[asyncio.Task[None]] = set()

    async def plan(
        self,
        log_id: int,
        log: str,
        *,
        job: Job | None = None,
        is_overwrite: bool = False,
        schema: PlannedSchema | None = None,
        found: HeadAt | None = None,
    ) -> Epoch:
        """Draw the epoch of one planned write; ``job`` where it is known already.

        ``schema`` is what the rows will have; ``None``: the log's newest. ``found`` is the head that
        the write was planned by, read after a ``sync``; ``None``: it is read now. An overwrite
        replaces the rows that head shows, and no others.

        Raises:
            NoSuchLogError: there is no such log.
            LogHasWriterError: its last ledger is open.
            MetadataUnavailableError: the store kept silent; tokens left behind expire unused.
        """
        nodes = self._site.nodes(log_id, log)
        if found is None:
            await nodes.sync()
            # A session that lags would show an overwrite an old table, and its commit would conflict
            # with what its user has long seen.
            found = await nodes.head()
        if found.head.open_ledger is not None:
            raise LogHasWriterError(log, found.head.open_ledger.ledger_id)
        now_ms, wish = self._site.clock_ms(), self._site.retention
        planned = schema or PlannedSchema(found.head.schema_id)
        token = Token(
            job="" if job is None else job_name(job),
            txn=None if job is None else job.txn,
            created_ms=now_ms,
            schema=planned.evolved or b"",
            timeout_ms=None if wish is None else wish.job_timeout_ms,
        )
        number = await self._draw(nodes, token)
        is_evolved = planned.evolved is not None
        return Epoch(
            log_id,
            log,
            number,
            now_ms,
            evolved_schema_id(number) if is_evolved else planned.schema_id,
            SeenTable.of(found.head) if is_overwrite else None,
            planned.schema_id if is_evolved else None,
        )

    async def claim(
        self, epoch: Epoch, job: Job, *, partition: int, task_attempt_id: int
    ) -> Claim | None:
        """Claim for one task attempt; ``None``: the job's transaction is stored, write nothing.

        Raises:
            EpochFencedError: a newer plan of the job took over, or this one ended.
            NoSuchLogError: the log is gone.
        """
        nodes = self._site.nodes(epoch.log_id, epoch.log)
        name = job_name(job)
        # Announced before the others are listed: of two epochs that claim at the same time the one
        # that announces itself later sees the other.
        stored, _ = await both(nodes.txn_of(job.txn), self._announce(nodes, name, epoch))
        # Whether it is a replay or an error is for the commit to say, which reads it again. A stale
        # answer here only costs the work of writing what will not be needed.
        if txn_status(job.txn, None if stored is None else stored.txn) is not TxnStatus.NEW:
            return None
        # Both at once, for the multi that creates the ledger checks the token again.
        siblings, refusal = await asyncio.gather(
            nodes.job_epochs(name), self._require_live(nodes, epoch), return_exceptions=True
        )
        if isinstance(siblings, BaseException):
            raise siblings
        if siblings and siblings[-1] > epoch.number:
            raise EpochFencedError(
                epoch.log, epoch.number, f"epoch {siblings[-1]} of the same job took over"
            )
        for lower in siblings:
            # The token first: only once it has ended is the list of ledgers to fence complete.
            if lower < epoch.number and await nodes.kill(lower, self._site.clock_ms()) is not None:
                self._fence_in_background(nodes, lower)
        if refusal is not None:
            raise refusal
        return Claim(nodes, epoch, partition, task_attempt_id)

    async def fence_predecessors(self, claim: Claim) -> None:
        """Fence what earlier attempts of the claim's partition and epoch left open.

        Called once the attempt's own ledger is closed. The caller bounds the wait: what is not
        fenced by then the sweep will.
        """
        children = await claim.nodes.token_children(claim.epoch.number)
        earlier = [
            child.ledger_id
            for child in children
            # Not the later ones: a zombie that finishes late must not end the attempt that Spark
            # has started in its place.
            if child.partition == claim.partition and child.task_attempt_id < claim.task_attempt_id
        ]
        await each(self._fence_or_warn, earlier, concurrency_max=FENCE_CONCURRENCY_MAX)

    async def _draw(self, nodes: LogNodes, token: Token) -> int:
        for attempt in range(1, PLAN_ATTEMPTS_MAX + 1):
            try:
                return await nodes.draw_epoch(token)
            except MetadataUnavailableError:
                # A token of unknown number may exist now. It is never used, and expires.
                if attempt == PLAN_ATTEMPTS_MAX:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _announce(self, nodes: LogNodes, job: str, epoch: Epoch) -> None:
        """Make the job's index node of this epoch; making it again is harmless."""
        path = nodes.tree.job_epoch(job, epoch.number)
        with_job = [Create(nodes.tree.job(job), b""), Create(path, b"")]
        lost: BaseException | None = None
        for _ in range(CLAIM_ATTEMPTS_MAX):
            # At once, and one of them is refused: only a job's first claim has its node to make, too.
            outcomes = await asyncio.gather(
                self._store.multi(with_job), self._store.create(path, b""), return_exceptions=True
            )
            of_both, of_own = outcomes
            # Made by another task of this epoch, or by an earlier try whose reply was lost.
            if of_both is None or of_own is None or isinstance(of_own, NodeExistsError):
                return
            if isinstance(of_both, NoNodeError):
                raise NoSuchLogError(nodes.log) from of_both
            for outcome in outcomes:
                if outcome is not None and not isinstance(outcome, _TRIED_AGAIN):
                    raise outcome
            lost = of_own
        raise MetadataUnavailableError(self._store.service, f"claim got no reply {path}") from lost

    async def _require_live(self, nodes: LogNodes, epoch: Epoch) -> None:
        found = await nodes.find_token(epoch.number)
        # A stale LIVE does no harm: the multi that creates the ledger checks the token again.
        if found is None or found.token.state is not TokenState.LIVE:
            state = "gone" if found is None else found.token.state.name
            raise EpochFencedError(epoch.log, epoch.number, f"its token is {state}")

    def _fence_in_background(self, nodes: LogNodes, epoch: int) -> None:
        async def fence_all() -> None:
            try:
                children = await nodes.token_children(epoch)
            except BookKeeperError as cause:
                # Not tried again: fenced or not, nothing under a token that ended becomes visible.
                _log.warning("superseded epoch not fenced. epoch=%d cause=%s", epoch, cause)
                return
            ledger_ids = [child.ledger_id for child in children]
            await each(self._fence_or_warn, ledger_ids, concurrency_max=FENCE_CONCURRENCY_MAX)

        task = asyncio.get_running_loop().create_task(fence_all(), name=f"fence-epoch-{epoch}")
        # The loop itself keeps tasks by weak references only, and might lose this one while it
        # runs.
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _fence_or_warn(self, ledger_id: int) -> None:
        """Fence one ledger. That only stops a superseded attempt sooner, so a failure is just logged."""
        try:
            await self._site.fence(ledger_id)
        except NoSuchLedgerError:
            return
        except BookKeeperError as cause:
            _log.warning("superseded ledger not fenced. ledger_id=%d cause=%s", ledger_id, cause)
