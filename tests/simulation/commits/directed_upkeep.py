"""Directed schedules of optimize and retention, each for the clause it checks.

As :mod:`tests.simulation.commits.directed`, and registered with those.
"""

from __future__ import annotations

import asyncio

from spark_bookkeeper.log.cleaning.optimize import Instalment, Rewritten
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.model import Retention
from tests.simulation.commits.history import Actor
from tests.simulation.commits.registry import JOB_TIMEOUT_HOURS, RETENTION_HOURS, ROWS, directed
from tests.simulation.commits.script import Fate
from tests.simulation.commits.stage import Stage
from tests.simulation.commits.swarm import Swarm
from tests.simulation.commits.upkeep import Optimization
from tests.simulation.commits.world import LOG

OPTIMIZE_HOURS = 5
SHORT_MS = 3_600_000


async def _grown(stage: Stage, commits: int, first: int = 0) -> None:
    for number in range(first, first + commits):
        await stage.committed(f"W{number}", Job.of_batch(f"w{number}"), ROWS)


async def _rewritten(stage: Stage, name: str) -> tuple[Optimization, Instalment, list[Rewritten]]:
    optimization = Optimization(stage.world, name, Swarm())
    instalment = await optimization.driver.run(optimization.plan())
    assert instalment is not None
    made = [await optimization.attempt(instalment, at) for at in range(len(instalment.groups))]
    return optimization, instalment, made


def _commit(
    stage: Stage, rewritten: tuple[Optimization, Instalment, list[Rewritten]]
) -> asyncio.Task[None]:
    optimization, instalment, made = rewritten
    return stage.begin(optimization.driver.run(optimization.commit(instalment, made)))


# -- optimize ----------------------------------------------------------------------------------------


@directed("a rewrite is built upon the head that guards it", inline_bytes=1)
async def append_between_head_and_exchange(stage: Stage) -> None:
    await _grown(stage, 4)
    committing = _commit(stage, await _rewritten(stage, "O"))
    sending = await stage.held("optimize O", "multi", "/head")
    await _grown(stage, 1, first=4)
    sending.release()
    await committing


@directed("groups that an overwrite took are given up, and are garbage once")
async def overwrite_before_the_exchange(stage: Stage) -> None:
    await _grown(stage, 4)
    rewritten = await _rewritten(stage, "O")
    await stage.committed("X", Job.of_batch("x"), ("x0",), is_overwrite=True)
    await _grown(stage, 2, first=4)
    await _commit(stage, rewritten)


@directed("a group whose first ranges went by truncation is given up; the others are exchanged")
async def truncation_before_the_exchange(stage: Stage) -> None:
    await _grown(stage, 8)
    rewritten = await _rewritten(stage, "O")
    assert len(rewritten[1].groups) > 1
    await stage.truncate("1", 2)
    await _commit(stage, rewritten)
    stage.leap(RETENTION_HOURS)
    await stage.begin_collection("1")


@directed("of two rewrites of the same ranges one is installed, and the other leaves nothing")
async def two_optimizers(stage: Stage) -> None:
    await _grown(stage, 5)
    first, second = await _rewritten(stage, "O"), await _rewritten(stage, "P")
    await _commit(stage, first)
    await _commit(stage, second)


@directed("after a lost reply the token says which try it was, and only what lies around is swept")
async def exchange_whose_reply_is_lost(stage: Stage) -> None:
    await _grown(stage, 5)
    stage.script.doom(Fate.LOST_REPLY, "optimize O", "multi", "/head")
    await _commit(stage, await _rewritten(stage, "O"))


@directed("an instalment that collection gave up fails as a whole, however late its multi arrives")
async def late_exchange_after_its_time(stage: Stage) -> None:
    await _grown(stage, 5)
    rewritten = await _rewritten(stage, "O")
    stage.script.doom(Fate.LATE, "optimize O", "multi", "/head")
    committing = _commit(stage, rewritten)
    syncing = await stage.held("optimize O", "sync")
    again = await stage.held("optimize O", "sync", after=syncing)
    stage.leap(OPTIMIZE_HOURS)
    await stage.begin_collection("1")
    stage.script.deliver()
    again.release()
    await committing


@directed("chunks whose writing failed are written anew, under other names", inline_bytes=1)
async def chunk_of_an_exchange_is_lost(stage: Stage) -> None:
    await _grown(stage, 4)
    stage.script.doom(Fate.LOST_REQUEST, "optimize O", "create", "/chunks/")
    await _commit(stage, await _rewritten(stage, "O"))


@directed("ranges of two schemas are no group, and rows keep the schema they were written in")
async def schemas_side_by_side(stage: Stage) -> None:
    await _grown(stage, 2)
    await stage.committed("X", Job.of_batch("x"), ROWS, column="x")
    await _grown(stage, 2, first=2)
    await stage.committed("Y", Job.of_batch("y"), ROWS, column="y")
    await _commit(stage, await _rewritten(stage, "O"))


@directed(
    "what is given up while its commit is under way is deleted only if that can happen no more"
)
async def given_up_while_it_commits(stage: Stage) -> None:
    await _grown(stage, 5)
    rewritten = await _rewritten(stage, "O")
    committing = _commit(stage, rewritten)
    sending = await stage.held("optimize O", "multi", "/head")
    driver = rewritten[0].driver
    await driver.run(driver.layer.optimizer.give_up(rewritten[1], SweepReport()))
    sending.release()
    await committing


# -- retention ---------------------------------------------------------------------------------------


async def _retain(stage: Stage, name: str) -> None:
    process = stage.world.process(Actor(f"retain {name}", "retain"))
    limits = Retention(size_bytes=0, is_consumed_kept=True)
    await process.run(process.layer.drop_expired(stage.world.log_id, LOG, limits))


async def _advance(stage: Stage, name: str, consumer: str, row: int) -> None:
    process = stage.world.process(Actor(f"consumer {name}", "consumer"))
    consumers = process.layer.consumers(stage.world.log_id, LOG)
    await process.run(consumers.advance(consumer, row, SHORT_MS))


@directed("a cursor that was made since the cursors were read stops the retention that read them")
async def consumer_made_within_a_retention(stage: Stage) -> None:
    await _grown(stage, 4)
    retaining = stage.begin(_retain(stage, "1"))
    sending = await stage.held("retain 1", "multi", "/head")
    await _advance(stage, "1", "report", 2)
    sending.release()
    await retaining


@directed("the generation is read before the cursors: one made in between is seen or stops it")
async def consumer_made_before_the_generation_is_read(stage: Stage) -> None:
    await _grown(stage, 4)
    retaining = stage.begin(_retain(stage, "1"))
    looking = await stage.held("retain 1", "get", "/consumers")
    reading = await stage.held("retain 1", "get", "/consumers", after=looking)
    await _advance(stage, "1", "report", 2)
    reading.release()
    await retaining


@directed("so does one that had expired and was touched since")
async def consumer_back_within_a_retention(stage: Stage) -> None:
    await _grown(stage, 4)
    await _advance(stage, "1", "report", 2)
    stage.leap(RETENTION_HOURS)
    retaining = stage.begin(_retain(stage, "1"))
    sending = await stage.held("retain 1", "multi", "/head")
    await _advance(stage, "2", "report", 2)
    sending.release()
    await retaining


@directed("a consumer that was forgotten and begins again further back holds its rows")
async def consumer_made_again_within_a_retention(stage: Stage) -> None:
    await _grown(stage, 4)
    await _advance(stage, "1", "report", 6)
    retaining = stage.begin(_retain(stage, "1"))
    sending = await stage.held("retain 1", "multi", "/head")
    operator = stage.world.process(Actor("operator", "end"))
    await operator.run(operator.layer.consumers(stage.world.log_id, LOG).forget("report"))
    await _advance(stage, "2", "report", 2)
    sending.release()
    await retaining


@directed("the newest range stays, however old it is")
async def retention_of_an_idle_log(stage: Stage) -> None:
    await _grown(stage, 2)
    stage.leap(JOB_TIMEOUT_HOURS)
    await _retain(stage, "1")
