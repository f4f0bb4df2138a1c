"""Directed schedules: situations that chance comes to too seldom, each for the clause it checks.

A schedule says who waits before which operation, what becomes of it, and nothing else; it must pass,
and with the clause broken it must fail (``docs/mutants.md`` says which mutants it notices). Findings
become schedules here, because seeds rot.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from spark_bookkeeper.log.format.epoch import Job, LedgerWritten, TaskMessage
from tests.simulation.commits.history import Actor
from tests.simulation.commits.others import writer
from tests.simulation.commits.registry import JOB_TIMEOUT_HOURS, RETENTION_HOURS, ROWS, directed
from tests.simulation.commits.script import Fate
from tests.simulation.commits.stage import Stage
from tests.simulation.commits.world import LOG

# -- commits -----------------------------------------------------------------------------------------


@directed(
    "an overwrite never conflicts with its own multi: the token is read before a verdict counts"
)
async def own_late_multi(stage: Stage) -> None:
    """Once seeds 1017, 1921 and 2138 of random schedules: the only bug they found."""
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS, is_overwrite=True)
    stage.script.doom(Fate.LATE, "commit A", "multi", "/head")
    committing = stage.begin_commit(write, messages)
    token = await stage.held("commit A", "get", "/tokens/")
    head = await stage.held("commit A", "get", "/head", after=token)
    stage.script.deliver()
    head.release()
    await committing


@directed("after a lost reply the token is read first; gone, and without a txn, nobody can know")
async def token_collected_before_the_retry(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS)
    stage.script.doom(Fate.LOST_REPLY, "commit A", "multi", "/head")
    committing = stage.begin_commit(write, messages)
    token = await stage.held("commit A", "get", "/tokens/")
    stage.leap(JOB_TIMEOUT_HOURS)
    await stage.begin_collection("1")
    token.release()
    await committing


@directed("a commit that was given up by its abort fails as a whole, however late it arrives")
async def late_commit_after_its_abort(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_stream("q", 0), ROWS)
    stage.script.doom(Fate.LATE, "commit A", "multi", "/head")
    committing = stage.begin_commit(write, messages)
    token = await stage.held("commit A", "sync")
    again = await stage.held("commit A", "get", "/tokens/", after=token)
    await write.abort(messages)
    stage.script.deliver()
    again.release()
    await committing


@directed("an already_committed among the messages that txn does not explain is refused")
async def transaction_forgotten_between_tasks(stage: Stage) -> None:
    job = Job.of_stream("q", 0)
    await stage.committed("A", job, ROWS)
    write = await stage.planned("B", job, ROWS)
    skipped = await write.attempt(0, ROWS[:1])
    operator = stage.world.process(Actor("operator", "end"))
    await operator.run(operator.layer.catalog.forget_transaction(LOG, "q"))
    messages: list[TaskMessage | None] = [skipped, await write.attempt(1, ROWS[1:])]
    await stage.commit(write, messages)


@directed("head, then txn: whatever changes txn after the head was read makes the multi fail")
async def transaction_forgotten_and_stored_anew(stage: Stage) -> None:
    await stage.committed("Z", Job.of_stream("q", 0), ROWS)
    write, messages = await stage.written("B", Job.of_stream("q", 1), ROWS)
    committing = stage.begin_commit(write, messages)
    head = await stage.held("commit B", "get", "/head")
    operator = stage.world.process(Actor("operator", "end"))
    await operator.run(operator.layer.catalog.forget_transaction(LOG, "q"))
    # Its node is new and has the version that the forgotten one had.
    await stage.committed("A", Job.of_stream("q", 2), ROWS)
    head.release()
    await committing
    again, replayed = await stage.written("C", Job.of_stream("q", 2), ROWS)
    await stage.commit(again, replayed)


@directed("a commit reads after sync(): a follower that lags does not know the transaction yet")
async def commit_by_a_follower_that_lags(stage: Stage) -> None:
    job = Job.of_stream("q", 0)
    write = await stage.planned("B", job, ROWS)
    worker = write.worker("commit")
    worker.store.freeze()
    await stage.committed("A", job, ROWS)
    messages = [await write.attempt(0, ROWS)]
    await stage.begin_commit(write, messages, worker)


@directed("chunks carry names that no retry uses again", inline_bytes=1)
async def retry_after_a_conflict(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS)
    committing = stage.begin_commit(write, messages)
    sending = await stage.held("commit A", "multi", "/head")
    await stage.committed("B", Job.of_batch("b"), ("s0", "s1", "s2"))
    sending.release()
    await committing


@directed("a log with a writer outside Spark refuses the commit too, not only the plan")
async def writer_comes_after_the_plan(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS)
    leading = stage.begin(writer(stage.world, "W"))
    opening = await stage.held("writer W", "sequence", "/tokens/")
    rolled = await stage.held("writer W", "sequence", "/tokens/", after=opening)
    await stage.commit(write, messages)
    rolled.release()
    await leading


@directed("the head is guarded by the version it was read at", inline_bytes=1)
async def commit_between_head_and_multi(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS)
    committing = stage.begin_commit(write, messages)
    chunk = await stage.held("commit A", "create", "/chunks/")
    await stage.committed("B", Job.of_batch("b"), ("s0", "s1", "s2"))
    chunk.release()
    await committing


@directed("a claim fences the ledgers of lower epochs once their tokens are DEAD, not before")
async def newer_claim_loses_its_kill(stage: Stage) -> None:
    job, rows = Job.of_stream("q", 0), tuple(f"r{number}" for number in range(40))
    older = await stage.planned("A", job, rows)
    writing = stage.begin(older.attempt(0, rows))
    await asyncio.sleep(0.03)
    newer = await stage.planned("B", job, rows)
    stage.script.doom(Fate.LOST_REQUEST, "task B", "put", "/tokens/")
    await newer.attempt(0, rows)
    await writing


@directed("a claim that its abort took back stops nobody, though a late task announces it again")
async def claim_taken_back_and_made_again(stage: Stage) -> None:
    """Once a false alarm of R6: the ledger appears beside a higher epoch that the task did not find."""
    job = Job.of_stream("q", 0)
    older = await stage.planned("A", job, ROWS)
    newer, messages = await stage.written("B", job, ROWS)
    claiming = stage.begin(older.attempt(0, ROWS))
    listing = await stage.held("task A", "children", "/jobs/")
    await newer.abort(messages)
    creating = await stage.held("task A", "multi", after=listing)
    late = stage.begin(newer.attempt(1, ROWS))
    looking = await stage.held("task B", "children", "/jobs/")
    creating.release()
    await claiming
    looking.release()
    await late


@directed("a write that adds columns goes on only if a newer schema has all of its own")
async def two_writes_add_columns(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS, column="x")
    await stage.committed("B", Job.of_batch("b"), ROWS, column="y")
    await stage.commit(write, messages)


# -- sweeps ------------------------------------------------------------------------------------------


@directed("an abort after a commit that happened touches nothing that is visible")
async def abort_after_the_commit(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS)
    await stage.commit(write, messages)
    await write.abort(messages)


@directed("the sweep after a commit sets the job's other epochs DEAD")
async def newer_driver_stands_in_its_claim(stage: Stage) -> None:
    job = Job.of_stream("q", 0)
    write, messages = await stage.written("A", job, ROWS)
    newer = await stage.planned("B", job, ROWS)
    claiming = stage.begin(newer.attempt(0, ROWS))
    listing = await stage.held("task B", "children", "/jobs/")
    await stage.commit_and_sweep(write, messages)
    listing.release()
    await claiming


@directed("head, chunks, then garbage: a range that moves from one to the other is seen")
async def overwrite_while_references_are_read(stage: Stage) -> None:
    await stage.committed("A", Job.of_batch("a"), ROWS)
    stage.leap(JOB_TIMEOUT_HOURS)
    collecting = stage.begin_collection("1")
    children = await stage.held("gc 1", "children", "/tokens/0000000000")
    head = await stage.held("gc 1", "get", "/head", after=children)
    await stage.committed("B", Job.of_batch("b"), ("s0",), is_overwrite=True)
    head.release()
    await collecting


# -- garbage and chunks ------------------------------------------------------------------------------


async def _ledger_in_two_ranges(stage: Stage) -> None:
    """One commit that names one ledger twice, as compaction and shared ledgers will; swept."""
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS + ROWS)
    first = messages[0]
    assert first is not None
    assert first.written is not None
    half = LedgerWritten(first.written.ledger_id, 1, 2, 200)
    twice = [replace(first, written=half), replace(first, partition=1, written=half)]
    await stage.commit_and_sweep(write, twice)


@directed("a ledger goes only if neither the log nor other garbage names it")
async def ledger_in_two_garbages(stage: Stage) -> None:
    await _ledger_in_two_ranges(stage)
    await stage.truncate("1", 2)
    stage.leap(RETENTION_HOURS)
    await stage.committed("B", Job.of_batch("b"), ("s0",), is_overwrite=True)
    await stage.begin_collection("1")


@directed(
    "of two collections at once, each leaving a shared ledger to the other's entry, one fails"
)
async def two_collections_of_shared_garbage(stage: Stage) -> None:
    await _ledger_in_two_ranges(stage)
    # Whoever truncates has a clock that is ahead, so the older entry expires last.
    stage.leap(2 * RETENTION_HOURS)
    await stage.truncate("1", 2)
    stage.leap(-2 * RETENTION_HOURS)
    await stage.committed("B", Job.of_batch("b"), ("s0",), is_overwrite=True)
    stage.leap(RETENTION_HOURS)
    first = stage.begin_collection("1")
    forgetting = await stage.held("gc 1", "multi", "/garbage/")
    stage.leap(2 * RETENTION_HOURS)
    second = stage.begin_collection("2")
    other = await stage.held("gc 2", "multi", "/garbage/")
    further = await stage.held("gc 2", "get", "/garbage/", after=other)
    forgetting.release()
    await first
    further.release()
    await second


@directed("a chunk goes only once its epoch's token was seen not LIVE", inline_bytes=1)
async def collection_before_the_multi(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS)
    committing = stage.begin_commit(write, messages)
    sending = await stage.held("commit A", "multi", "/head")
    await stage.begin_collection("1")
    sending.release()
    await committing


@directed("references to a chunk are read after its epoch's token, in one session", inline_bytes=1)
async def commit_while_chunks_are_listed(stage: Stage) -> None:
    write, messages = await stage.written("A", Job.of_batch("a"), ROWS)
    committing = stage.begin_commit(write, messages)
    sending = await stage.held("commit A", "multi", "/head")
    collecting = stage.begin_collection("1")
    listing = await stage.held("gc 1", "children", "/chunks")
    sending.release()
    await committing
    listing.release()
    await collecting


@directed("garbage keeps its chunks until it goes", inline_bytes=1)
async def collection_after_an_overwrite(stage: Stage) -> None:
    await stage.committed("A", Job.of_batch("a"), ROWS)
    await stage.committed("B", Job.of_batch("b"), ("s0",), is_overwrite=True)
    await stage.begin_collection("1")


# -- truncation --------------------------------------------------------------------------------------


@directed("who committed what is not forgotten with the rows")
async def replay_after_a_truncation(stage: Stage) -> None:
    job = Job.of_stream("q", 0)
    await stage.committed("A", job, ROWS)
    await stage.truncate("1", len(ROWS))
    write, messages = await stage.written("B", job, ROWS)
    await stage.commit(write, messages)


@directed("a truncation is guarded by the head it read", inline_bytes=1)
async def commit_within_a_truncation(stage: Stage) -> None:
    write = await stage.planned("A", Job.of_batch("a"), (*ROWS, *ROWS))
    await stage.commit(write, [await write.attempt(part, ROWS) for part in (0, 1)])
    truncating = stage.begin(stage.truncate("1", len(ROWS)))
    cutting = await stage.held("truncate 1", "get", "/chunks/")
    await stage.committed("B", Job.of_batch("b"), ("s0",))
    cutting.release()
    await truncating


@directed(
    "a change whose attempt ended cannot happen any more: its token is in its multi", inline_bytes=1
)
async def late_truncation(stage: Stage) -> None:
    await stage.committed("A", Job.of_batch("a"), ROWS)
    await stage.committed("B", Job.of_batch("b"), ROWS)
    stage.script.doom(Fate.LATE, "truncate 1", "multi", "/head")
    truncating = stage.begin(stage.truncate("1", 2))
    ending = await stage.held("truncate 1", "sequence", "/tokens/")
    again = await stage.held("truncate 1", "sequence", "/tokens/", after=ending)
    stage.leap(RETENTION_HOURS)
    await stage.begin_collection("1")
    stage.script.deliver()
    again.release()
    await truncating
