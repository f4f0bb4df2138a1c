"""Mutants of sweeps, collections and changes outside Spark: clauses of the protocol, broken one by one.

The clauses are those of the log layer's modules ``sweep``, ``nodes``, ``collect`` and ``change``.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_bookkeeper.log.cleaning import collect, references
from spark_bookkeeper.log.cleaning.collect import Collector
from spark_bookkeeper.log.cleaning.sweep import Sweeper, SweepReport
from spark_bookkeeper.log.commits.change import HeadChange
from spark_bookkeeper.log.format.epoch import TaskMessage
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.simulation.kit.patching import Mutants, Patch

MUTANTS = Mutants()
planted = MUTANTS.planted

# -- ending tokens -----------------------------------------------------------------------------------

_CLEANS = (
    "children = await nodes.token_children(number)\n"
    "await self.remove_children(nodes, number, children, set(children), report)\n"
)
planted("abort_without_killing", "an abort cleans under a token that is LIVE", "R2").edit(
    Sweeper.abort, {"if await nodes.kill": f"{_CLEANS}if await nodes.kill"}
)

_KILLS = (
    "for epoch in await nodes.job_epochs(job_name(named.job)):\n"
    "    await nodes.kill(epoch, named.epoch.planned_ms)\n"
)
planted("abort_of_the_job", "an abort ends every epoch of its job", "R4").edit(
    Sweeper.abort, {"if await nodes.kill": f"{_KILLS}if await nodes.kill"}
)


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


planted("kill_unguarded", "setting a token DEAD does not care what it is", "R4").edit(
    LogNodes.kill,
    {
        "if found is None or found.token.state is not TokenState.LIVE:": "if found is None:",
        "LIVE_TOKEN_VERSION": "found.version",
    },
)

planted(
    "kill_believed_done", "setting a token DEAD counts as done though no reply came", "R3"
).edit(LogNodes.kill, {"if attempt == KILL_ATTEMPTS_MAX:\nraise": "return TokenState.DEAD"})

planted("gc_kills_early", "a collection ends every LIVE token it finds", "R4").edit(
    Collector._is_due, {"state is TokenState.DEAD": "state is not TokenState.COMMITTED"}
)

planted("gc_spares_live", "a collection never ends a LIVE token", "X5").edit(
    Collector._is_due,
    {"if any(_is_stored(txn, stored) for txn in txns):\nreturn True": "return False"},
)

# -- what goes with an epoch -------------------------------------------------------------------------

planted("sweep_under_live", "a sweep cleans under whatever token it finds", "R2").edit(
    LogNodes.kill, {"dead = ": "return found.token.state\ndead = "}
).edit(Sweeper.sweep_epoch, {"if state is TokenState.LIVE and not is_dry_run:": "if False:"})

planted(
    "sweep_of_committed_unread",
    "a sweep deletes under COMMITTED what its messages do not name",
    "X7",
).edit(Sweeper.sweep_epoch, {"if state is TokenState.COMMITTED and doomed:": "if False:"})

planted(
    "garbage_not_looked_at", "only what the log names is spared, not what its garbage does", "X7"
).edit(references._find_named_by_garbage, {"garbage = await ": "return set()\ngarbage = await "})

_HEAD, _EPOCHS = "head = (await nodes.head()).head", "await nodes.garbage_epochs()"
planted(
    "garbage_read_before_head", "a range that moves to the garbage meanwhile is seen nowhere", "X7"
).edit(
    references.find_referenced,
    {f"in {_EPOCHS}:": "in epochs:", _HEAD: f"epochs = {_EPOCHS}\n{_HEAD}"},
)

_FORGETS_CHILD = "await delete_node(nodes.store, nodes.tree.token_child(epoch, child))\n"
planted("child_before_ledger", "a ledger is forgotten before it is deleted", "R5").edit(
    Sweeper.remove_children, {"if child in doomed": f"{_FORGETS_CHILD}if child in doomed"}
)

planted("failed_delete_forgotten", "a ledger that could not be deleted is forgotten", "R5").edit(
    Sweeper.remove_ledger, {"return False": "return True"}
)

planted("own_epoch_only", "a sweep leaves the job's other epochs alone", "R11").edit(
    Sweeper._after_commit, {"in await nodes.job_epochs(job):": "in ():"}
)

# -- garbage and chunks ------------------------------------------------------------------------------


@planted("garbage_never_kept", "garbage goes at once, with readers still at it", "X7")
def _garbage_never_kept(patch: Patch) -> None:
    patch.constant(Collector, "_due_ms", 0)


planted("shared_garbage", "garbage takes a ledger that other garbage names", "X7").edit(
    references.find_referenced, {"if epoch != besides:": "if besides is None:"}
)

planted(
    "garbage_forgotten_alone", "garbage leaves a ledger to other garbage that may be gone", "R5"
).edit(collect._forget_garbage, {"for other in others]": "for other in ()]"})

_FORGETS_GARBAGE = "await delete_node(nodes.store, nodes.tree.garbage_entry(epoch))\n"
planted("garbage_before_ledgers", "a garbage entry goes before its ledgers do", "R5").edit(
    Collector._garbage, {"others = [": f"{_FORGETS_GARBAGE}others = ["}
)

planted(
    "chunk_under_live", "a chunk goes though its epoch may still commit", "R2", "X7", "X6"
).edit(Collector._chunks, {"found is None or found.token.state is not TokenState.LIVE": "True"})

_READS = "kept = await referenced_chunks(nodes)\n"
planted("chunks_read_before_tokens", "references are read before the tokens are", "X7").edit(
    Collector._chunks, {f"{_READS}doomed": "doomed", "names = ": f"{_READS}names = "}
)

planted("chunks_of_garbage_forgotten", "only the head keeps chunks, not garbage", "X7").edit(
    references.referenced_chunks, {"epochs = await nodes.garbage_epochs()": "epochs = []"}
)

# -- changes of the head outside Spark ---------------------------------------------------------------

_FORGETS_TXNS = (
    "for name in await self._nodes.store.children(self._nodes.tree.txns) or []:\n"
    "    if transition.garbage is not None:\n"
    "        await self._nodes.store.delete(f'{self._nodes.tree.txns}/{name}')\n"
)
planted(
    "txn_forgotten_by_truncation", "a truncation forgets who committed what it drops", "X1"
).edit(HeadChange.apply, {"await self.write": f"{_FORGETS_TXNS}await self.write"})


@planted("change_without_token", "a change of the head does not take its token along", "R10")
def _change_without_token(patch: Patch) -> None:
    make = HeadChange.operations
    patch.method(
        HeadChange,
        "operations",
        lambda *asked: [part for part in make(*asked) if "/tokens/" not in part.path],
    )


_LATE = "await self._nodes.sync()\nfound = await self._nodes.head()\n"
planted(
    "change_without_head_version",
    "a change of the head is built upon one and guarded by another",
    "R8",
).edit(HeadChange.apply, {"await self.write": f"{_LATE}await self.write"})
