"""Mutants of commits: clauses of the protocol, broken one by one.

The clauses are those of the log layer's modules: ``commit`` and ``commit_rules``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.operations import BadVersionError, NodeExistsError, Operation, Put
from spark_bookkeeper.log.commits import commit
from spark_bookkeeper.log.commits.commit import CommitOutcome, Committer
from spark_bookkeeper.log.errors import CommitRefusedError, CommitUnknownError
from spark_bookkeeper.log.format.epoch import Epoch, StoredTxn, TaskMessage, TokenState, Txn
from spark_bookkeeper.log.nodes.reads import LogNodes, TxnAt
from spark_bookkeeper.log.rules import commit as commit_rules
from spark_bookkeeper.log.rules.commit import CommitRequest, HeadStatus, TxnStatus
from spark_bookkeeper.log.rules.transitions import ChunkNames
from tests.simulation.kit.loop import OWNER
from tests.simulation.kit.patching import Mutants, Patch

MUTANTS = Mutants()
planted = MUTANTS.planted


_LATER: deque[asyncio.Task[None]] = deque(maxlen=1_000)
"""Kept from the garbage collector while they run."""


def kind_running() -> str:
    """What the process that runs now is there for."""
    owner = OWNER.get()
    return "" if owner is None else owner.name.partition(" ")[0]


def _without(operations: Sequence[Operation], name: str) -> list[Operation]:
    return [part for part in operations if f"/{name}" not in part.path]


# -- the multi ---------------------------------------------------------------------------------------


@planted("token_not_in_multi", "a commit leaves its token LIVE", "X3", "R10")
def _token_not_in_multi(patch: Patch) -> None:
    make = commit._operations
    patch.function(make, lambda nodes, *rest: _without(make(nodes, *rest), "tokens/"))


@planted("token_not_in_empty_multi", "a batch without rows leaves its token LIVE", "R10")
def _token_not_in_empty_multi(patch: Patch) -> None:
    make = commit._operations

    def short(nodes: LogNodes, request: CommitRequest, *rest: Any) -> list[Operation]:
        operations = make(nodes, request, *rest)
        return operations if request.written else _without(operations, "tokens/")

    patch.function(make, short)


@planted("txn_not_in_multi", "the transaction is stored by a second request", "X1")
def _txn_not_in_multi(patch: Patch) -> None:
    make = commit._operations

    def apart(nodes: LogNodes, *rest: Any) -> list[Operation]:
        operations = make(nodes, *rest)
        stored = [part for part in operations if "/txn/" in part.path]
        _LATER.append(asyncio.ensure_future(_store_later(nodes, stored)))
        return _without(operations, "txn/")

    async def _store_later(nodes: LogNodes, operations: list[Operation]) -> None:
        try:
            await asyncio.sleep(0.02)
            await nodes.store.multi(operations)
        except (MetadataUnavailableError, BadVersionError, NodeExistsError):
            return

    patch.function(make, apart)


@planted("garbage_not_in_multi", "what an overwrite drops is written down afterwards", "R5")
def _garbage_not_in_multi(patch: Patch) -> None:
    make = commit._operations
    patch.function(make, lambda nodes, *rest: _without(make(nodes, *rest), "garbage/"))


@planted(
    "head_version_read_late", "the head is guarded by a version read after it was changed", "R8"
)
def _head_version_read_late(patch: Patch) -> None:
    prepare = Committer._prepare

    async def late(self: Committer, nodes: LogNodes, *rest: Any) -> list[Operation] | None:
        operations = await prepare(self, nodes, *rest)
        if operations is None or not isinstance(operations[0], Put):
            return operations
        await nodes.sync()
        newest = await nodes.head()
        return [replace(operations[0], expected_version=newest.version), *operations[1:]]

    patch.method(Committer, "_prepare", late)


@planted("txn_read_before_head", "the transaction is read before the head", "X1")
def _txn_read_before_head(patch: Patch) -> None:
    prepare = Committer._prepare

    async def reversed_(
        self: Committer, nodes: LogNodes, request: CommitRequest, attempted: Any
    ) -> list[Operation] | None:
        txn = request.job.txn
        if txn is None:
            return await prepare(self, nodes, request, attempted)
        stored, earlier = await nodes.txn(txn.app_id), copy(nodes)

        async def as_read(app_id: str) -> TxnAt | None:
            return stored

        earlier.txn = as_read  # type: ignore[method-assign]
        return await prepare(self, earlier, request, attempted)

    patch.method(Committer, "_prepare", reversed_)


@planted("chunk_names_reused", "a retry takes its first try's chunks for its own", "X6", "X2")
def _chunk_names_reused(patch: Patch) -> None:
    prepare, write = Committer._prepare, Committer._write_chunk

    async def again(
        self: Committer, nodes: LogNodes, request: CommitRequest, attempted: Any
    ) -> list[Operation] | None:
        first = replace(attempted, names=ChunkNames(attempted.names.epoch))
        return await prepare(self, nodes, request, first)

    async def write_or_have(self: Committer, nodes: LogNodes, chunk: Any) -> None:
        try:
            await write(self, nodes, chunk)
        except NodeExistsError:
            return

    patch.method(Committer, "_prepare", again)
    patch.method(Committer, "_write_chunk", write_or_have)


# -- verdicts ----------------------------------------------------------------------------------------


@planted("txn_equal_only", "only the very batch stored last counts as committed", "X1")
def _txn_equal_only(patch: Patch) -> None:
    def judge(txn: Txn | None, stored: StoredTxn | None) -> TxnStatus:
        if txn is None or stored is None or stored.version != txn.version:
            return TxnStatus.NEW
        if txn.is_stream or stored.query_id == txn.query_id:
            return TxnStatus.STORED
        return TxnStatus.REUSED

    patch.function(commit_rules.txn_status, judge, source="40b454b3")


@planted("txn_of_another_query", "an application id used by another query skips its rows", "X8")
def _txn_of_another_query(patch: Patch) -> None:
    judge = commit_rules.txn_status

    def blind(txn: Txn | None, stored: StoredTxn | None) -> TxnStatus:
        verdict = judge(txn, stored)
        return TxnStatus.STORED if verdict is TxnStatus.REUSED else verdict

    patch.function(judge, blind)


@planted(
    "already_committed_unexplained", "a skipped task is believed without its transaction", "X1"
)
def _already_committed_unexplained(patch: Patch) -> None:
    patch.function(
        commit_rules.commit_status,
        lambda request, stored: commit_rules.txn_status(request.job.txn, stored),
        source="0df41068",
    )


@planted("missing_messages", "a commit goes ahead with the messages it has", "X2", "X3")
def _missing_messages(patch: Patch) -> None:
    agree = commit_rules.agree

    def lenient(messages: Sequence[TaskMessage | None], log: str) -> CommitRequest:
        present = [message for message in messages if message is not None]
        return agree(present or messages, log)

    patch.function(agree, lenient)


@planted("overwrite_blind", "an overwrite does not care what was committed since its plan", "R7")
def _overwrite_blind(patch: Patch) -> None:
    judge = commit_rules.head_status

    def blind(epoch: Epoch, head: Any, version: int) -> HeadStatus:
        return judge(replace(epoch, is_overwrite=False), head, version)

    patch.function(judge, blind)


@planted(
    "writer_outside_ignored", "Spark appends although a writer holds the last ledger", "P", "X6"
)
def _writer_outside_ignored(patch: Patch) -> None:
    patch.function(
        commit_rules.head_status, lambda epoch, head, version: HeadStatus.FREE, source="c4ba8621"
    )


@planted(
    "newer_schema_taken", "a write that adds columns goes by a newer schema without them", "X9"
)
def _newer_schema_taken(patch: Patch) -> None:
    evolved = commit._evolve_head

    async def careless(nodes: LogNodes, epoch: Epoch, head: Any, covers: Any) -> Any:
        return await evolved(nodes, epoch, head, lambda newer, older: True)

    patch.function(evolved, careless)


@planted("newer_schema_replaced", "a write that adds columns makes its own schema the newest", "X9")
def _newer_schema_replaced(patch: Patch) -> None:
    evolved = commit._evolve_head

    async def careless(nodes: LogNodes, epoch: Epoch, head: Any, covers: Any) -> Any:
        return await evolved(nodes, replace(epoch, evolved_from=head.schema_id), head, covers)

    patch.function(evolved, careless)


# -- what became of it -------------------------------------------------------------------------------


@planted("token_not_read_again", "a retry does not ask what its first try came to", "X8")
def _token_not_read_again(patch: Patch) -> None:
    async def never(self: Committer, nodes: LogNodes, request: CommitRequest) -> None:
        return None

    patch.method(Committer, "_find_outcome", never, source="3f7e7580")


@planted("commit_without_sync", "a commit asks a follower that lags", "X8")
def _commit_without_sync(patch: Patch) -> None:
    sync = LogNodes.sync

    async def hasty(self: LogNodes) -> None:
        if kind_running() != "commit":
            await sync(self)

    patch.method(LogNodes, "sync", hasty)


@planted("dead_tried_again", "a commit whose token is DEAD tries on", "R9")
def _dead_tried_again(patch: Patch) -> None:
    settled = Committer._find_outcome

    async def stubborn(
        self: Committer, nodes: LogNodes, request: CommitRequest
    ) -> CommitOutcome | None:
        found = await nodes.token(request.epoch.number)
        if found is not None and found.token.state is TokenState.DEAD:
            return None
        return await settled(self, nodes, request)

    patch.method(Committer, "_find_outcome", stubborn)


@planted("gone_is_committed", "a token that is gone counts as committed", "X8")
def _gone_is_committed(patch: Patch) -> None:
    async def sure(self: Committer, nodes: LogNodes, request: CommitRequest) -> CommitOutcome:
        return CommitOutcome.COMMITTED

    patch.method(Committer, "_settled_without_token", sure, source="918f3eff")


@planted("gone_is_refused", "a token that is gone counts as never committed", "X8")
def _gone_is_refused(patch: Patch) -> None:
    settled = Committer._settled_without_token

    async def sure(self: Committer, nodes: LogNodes, request: CommitRequest) -> CommitOutcome:
        try:
            return await settled(self, nodes, request)
        except CommitUnknownError as unknown:
            raise CommitRefusedError(
                request.epoch.log, request.epoch.number, "its token is gone"
            ) from unknown

    patch.method(Committer, "_settled_without_token", sure)


@planted("conflict_with_itself", "a refusal after a lost reply is believed at once", "X8")
def _conflict_with_itself(patch: Patch) -> None:
    prepared = Committer._plan_multi

    async def at_once(
        self: Committer, nodes: LogNodes, request: CommitRequest, attempted: Any
    ) -> list[Operation] | CommitOutcome:
        return await prepared(self, nodes, request, replace(attempted, is_unknown=False))

    patch.method(Committer, "_plan_multi", at_once)
