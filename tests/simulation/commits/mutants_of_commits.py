"""Mutants of plans, claims and commits: clauses of the protocol, broken one by one.

The clauses are those of the log layer's modules ``jobs``, ``commit`` and ``rules.commit``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.operations import BadVersionError, NodeExistsError, Operation
from spark_bookkeeper.log.commits import commit
from spark_bookkeeper.log.commits.commit import Committer
from spark_bookkeeper.log.commits.jobs import Claim, Jobs
from spark_bookkeeper.log.format.epoch import Epoch, Token
from spark_bookkeeper.log.format.serde import encode_token
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.rules import commit as commit_rules
from tests.simulation.kit.patching import Mutants, Patch

MUTANTS = Mutants()
planted = MUTANTS.planted

_LATER: deque[asyncio.Task[None]] = deque(maxlen=1_000)
"""Kept from the garbage collector while they run."""

# -- claims ------------------------------------------------------------------------------------------

planted("claim_unguarded", "a ledger is created without a look at the token", "R1").edit(
    Claim.extra_operations, {"Check(tree.token(self.epoch.number), LIVE_TOKEN_VERSION),": ""}
)

_CHILD = "Create(tree.token_child(self.epoch.number, child), encode_token_child(child)),"
planted(
    "ledger_not_registered", "a ledger is created with no child of its token", "R5", "X5", "R1"
).edit(Claim.extra_operations, {_CHILD: ""})


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


planted("higher_epoch_ignored", "an old plan's task goes on beside a new plan's", "R6").edit(
    Jobs.claim, {"if siblings and siblings[-1] > epoch.number:": "if False:"}
)

planted("sibling_fenced", "a claim fences what its own epoch has open", "R3").edit(
    Jobs.claim, {"return Claim": "self._fence_in_background(nodes, epoch.number)\nreturn Claim"}
)

_CLAIM = "Claim(nodes, epoch, partition, task_attempt_id)"
planted(
    "predecessor_fenced_first", "an attempt fences before it has closed its own ledger", "R3"
).edit(
    Jobs.claim, {f"return {_CLAIM}": f"await self.fence_predecessors({_CLAIM})\nreturn {_CLAIM}"}
)

planted(
    "any_sibling_fenced", "a retry fences all attempts of its partition, later ones too", "R3"
).edit(Jobs.fence_predecessors, {"and child.task_attempt_id < claim.task_attempt_id": ""})

planted(
    "lower_epoch_not_ended", "a new plan fences the old one's ledgers and leaves its token", "R3"
).edit(Jobs.claim, {"nodes.kill(lower, self._site.clock_ms())": "nodes.token(lower)"})

# -- the multi: its operations are of the head, the token, the transaction, the garbage ----------------

_SHORT = "del operations[1]\nreturn operations"
planted("token_not_in_multi", "a commit leaves its token LIVE", "X3", "R10").edit(
    commit._operations, {"return operations": _SHORT}
)

_SHORT_IF_EMPTY = "if not request.written:\n    del operations[1]\nreturn operations"
planted("token_not_in_empty_multi", "a batch without rows leaves its token LIVE", "R10").edit(
    commit._operations, {"return operations": _SHORT_IF_EMPTY}
)


@planted("txn_not_in_multi", "the transaction is stored by a second request", "X1")
def _txn_not_in_multi(patch: Patch) -> None:
    make = commit._operations

    def apart(nodes: LogNodes, *rest: Any) -> list[Operation]:
        operations = make(nodes, *rest)
        stored = [part for part in operations if "/txn/" in part.path]
        _LATER.append(asyncio.ensure_future(_store_later(nodes, stored)))
        return [part for part in operations if part not in stored]

    async def _store_later(nodes: LogNodes, operations: list[Operation]) -> None:
        try:
            await asyncio.sleep(0.02)
            await nodes.store.multi(operations)
        except (MetadataUnavailableError, BadVersionError, NodeExistsError):
            return

    patch.function(make, apart)


_NO_GARBAGE = "return [part for part in operations if '/garbage/' not in part.path]"
planted("garbage_not_in_multi", "what an overwrite drops is written down afterwards", "R5").edit(
    commit._operations, {"return operations": _NO_GARBAGE}
)

_LATE = "await nodes.sync()\nfound = await nodes.head()\n"
planted(
    "head_version_read_late", "the head is guarded by a version read after it was changed", "R8"
).edit(Committer._prepare, {"operations = ": f"{_LATE}operations = "})

_HEAD = "found = await nodes.head()\n"
planted("txn_read_before_head", "the transaction is read before the head", "X1").edit(
    Committer._prepare, {_HEAD: "", "if _require_txn(": f"{_HEAD}if _require_txn("}
)

_HAVE = "if await nodes.store.get(nodes.tree.chunk(ref.name)) is not None:\n    return\nawait"
planted("chunk_names_reused", "a retry takes its first try's chunks for its own", "X6", "X2").edit(
    Committer._prepare, {"attempted.names": "ChunkNames(attempted.names.epoch)"}
).edit(Committer._write_chunk, {"await": _HAVE})

# -- verdicts ----------------------------------------------------------------------------------------

planted("txn_equal_only", "only the very batch stored last counts as committed", "X1").edit(
    commit_rules.txn_status, {"stored.version < txn.version": "stored.version != txn.version"}
)

planted(
    "txn_of_another_query", "an application id used by another query skips its rows", "X8"
).edit(commit_rules.txn_status, {"TxnStatus.REUSED": "TxnStatus.STORED"})

planted(
    "already_committed_unexplained", "a skipped task is believed without its transaction", "X1"
).edit(commit_rules.commit_status, {"return TxnStatus.REGRESSED": "return status"})

planted("missing_messages", "a commit goes ahead with the messages it has", "X2", "X3").edit(
    commit_rules.agree, {"len(present) < len(messages) or not present": "not present"}
)

planted(
    "overwrite_blind", "an overwrite does not care what was committed since its plan", "R7"
).edit(commit_rules.head_status, {"HeadStatus.CONFLICT": "HeadStatus.FREE"})

planted(
    "writer_outside_ignored", "Spark appends although a writer holds the last ledger", "P", "X6"
).edit(commit_rules.head_status, {"HeadStatus.HAS_WRITER": "HeadStatus.FREE"})

planted(
    "newer_schema_taken", "a write that adds columns goes by a newer schema without them", "X9"
).edit(commit._evolve_head, {"if not covers(newest, own):": "if False:"})

planted(
    "newer_schema_replaced", "a write that adds columns makes its own schema the newest", "X9"
).edit(commit._evolve_head, {"if head.schema_id == epoch.evolved_from:": "if True:"})

# -- what became of it -------------------------------------------------------------------------------

planted("token_not_read_again", "a retry does not ask what its first try came to", "X8").edit(
    Committer._find_outcome, {"found = await": "return None\nfound = await"}
)

_UNSYNCED = {"await nodes.sync()\n": ""}
planted("commit_without_sync", "a commit asks a follower that lags", "X8").edit(
    Committer._run, _UNSYNCED
).edit(Committer._plan_multi, _UNSYNCED)

planted("dead_tried_again", "a commit whose token is DEAD tries on", "R9").edit(
    Committer._find_outcome, {"if found.token.state is TokenState.DEAD:": "if False:"}
)

_SETTLED = "await self._settled_without_token(nodes, request)"
planted("gone_is_committed", "a token that is gone counts as committed", "X8").edit(
    Committer._find_outcome, {_SETTLED: "CommitOutcome.COMMITTED"}
)

planted("gone_is_refused", "a token that is gone counts as never committed", "X8").edit(
    Committer._settled_without_token, {"CommitUnknownError": "CommitRefusedError"}
)

planted("conflict_with_itself", "a refusal after a lost reply is believed at once", "X8").edit(
    Committer._plan_multi, {"if attempted.is_unknown:": "if False:"}
)
