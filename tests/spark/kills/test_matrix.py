"""What befalls a streaming query besides the death of its driver: stops, zombies, old checkpoints.

Messages that come late are held at a gate; one driver serves all tests.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.datasource.source import BookKeeperSource
from spark_bookkeeper.demo.stream import REPLAY_LINE
from spark_bookkeeper.log.format.epoch import TokenState
from tests.patience import seconds
from tests.spark.calls import forget_the_last_commit
from tests.spark.checkers import check_order, check_rows
from tests.spark.drivers import CALL_TIMEOUT_S, Driver, DriverError
from tests.spark.held_source import Hold
from tests.spark.kills import query
from tests.spark.kills.gate import Gate, Moment, Point, Trap
from tests.spark.kills.moves import (
    frozen_collection,
    held,
    held_at,
    run,
    start,
    start_to_commit,
    through,
)
from tests.spark.kills.scene import DAYS_LATER, Scene
from tests.spark.leftovers import collect, end_tokens
from tests.spark.waits import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def check_written_twice(scene: Scene, batches: list[int]) -> None:
    """Two queries have written everything, each up to a batch of its own."""
    twice = [each for batch in scene.batches for each in (*batch, *batch)]
    check_rows(scene.witness.look(), twice)
    assert list(scene.witness.txns().values()) == batches
    scene.check_nothing_left()


@pytest.mark.full
def test_a_query_stopped_in_a_batch_and_started_again_outlives_its_zombie(
    scene: Scene, hold: Hold, warm: Driver
) -> None:
    scene.add_batches(1)
    start(warm, scene, held(hold, "0"))
    (zombie,) = hold.wait_for_held(1)

    warm.call(query.stop, name="first")
    assert scene.check_now() == 0
    run(warm, scene)

    assert scene.check_now() == 1
    hold.release()
    assert "BK_" in hold.wait_for_end(zombie)
    scene.check_done()


@pytest.mark.parametrize("partitions", [None, 1])
def test_a_zombie_that_claims_after_the_batch_was_committed_adds_nothing(
    scene: Scene, gate: Gate, warm: Driver, partitions: int | None
) -> None:
    """With one partition nobody else knows of its epoch: only the stored batch ends it.

    The run that commits begins a collection of its own behind its commit, which would be another one
    to end the zombie: it is cut off before the zombie has claimed, so it cannot have known of it.
    """
    scene.add_batches(1)
    claim = gate.set(held_at(Point.CLAIM))
    start(warm, scene, through(gate), partitions=partitions)
    claim.wait()
    warm.call(query.stop, name="first")

    with scene.gate() as other:
        run(warm, scene, through(other), partitions=partitions)
    assert scene.check_now() == 1
    claim.release()
    gate.wait_for_replies(Point.CLAIM)
    if partitions == 1:
        gate.wait_for(Point.CLOSE, Moment.REPLY)
        assert TokenState.LIVE in scene.witness.tokens().values()
        collect(scene.uri, scene.log)
        assert TokenState.LIVE not in scene.witness.tokens().values()

    scene.check_done()


@pytest.mark.full
@pytest.mark.parametrize("partitions", [None, 5])
def test_a_multi_delayed_past_the_next_run_fails_as_a_whole(
    scene: Scene, gate: Gate, warm: Driver, partitions: int | None
) -> None:
    """The next run may partition the batch in another way."""
    commit = start_to_commit(warm, scene, gate)
    stopping = warm.begin(query.stop, name="first")  # returns no earlier than the commit

    with scene.driver() as other:
        run(other, scene, partitions=partitions)
    commit.release()
    stopping.result(seconds(CALL_TIMEOUT_S))

    assert scene.check_now() == 1
    scene.check_done()


def test_a_multi_delayed_past_a_collection_fails_and_the_batch_is_run_again(
    scene: Scene, gate: Gate, warm: Driver
) -> None:
    commit = start_to_commit(warm, scene, gate)

    assert collect(scene.uri, scene.log).tokens_killed == []
    killed = collect(scene.uri, scene.log, days_later=DAYS_LATER)
    commit.release()

    assert len(killed.tokens_killed) == 1
    assert len(killed.ledgers_deleted) == query.FILES_PER_BATCH
    with pytest.raises(DriverError, match="BK_COMMIT_REFUSED"):
        warm.call(query.end, name="first")
    assert scene.check_now() == 0
    run(warm, scene)
    scene.check_done()


def test_a_collection_frozen_before_it_ends_a_token_loses_to_the_commit(
    scene: Scene, gate: Gate, warm: Driver
) -> None:
    with frozen_collection(warm, scene, gate, Point.END_TOKEN) as thaw:
        warm.call(query.end, name="first")
        taken = thaw()

    assert taken.ledgers_deleted == []
    assert scene.check_now() == 1
    scene.check_done()


@pytest.mark.full
def test_a_collection_frozen_before_its_delete_has_won_against_the_commit(
    scene: Scene, gate: Gate, warm: Driver
) -> None:
    with frozen_collection(warm, scene, gate, Point.DELETE_LEDGER) as thaw:
        with pytest.raises(DriverError, match="BK_COMMIT_REFUSED"):
            warm.call(query.end, name="first")
        assert scene.check_now() == 0
        run(warm, scene)
        thaw()

    scene.check_done()


@pytest.mark.full
def test_an_abort_frozen_before_its_delete_takes_nothing_of_the_next_run(
    scene: Scene, gate: Gate, warm: Driver
) -> None:
    commit = start_to_commit(warm, scene, gate)
    end_tokens(scene.uri, scene.log)
    delete = gate.set(held_at(Point.DELETE_LEDGER))
    commit.release()
    failing = warm.begin(query.end, name="first")
    delete.wait()

    with scene.driver() as other:
        run(other, scene)
    assert scene.check_now() == 1
    delete.release()
    with pytest.raises(DriverError, match="BK_COMMIT_REFUSED"):
        failing.result(seconds(CALL_TIMEOUT_S))

    assert scene.check_now() == 1
    scene.check_done()


def test_a_lost_reply_to_the_multi_is_no_failure(scene: Scene, gate: Gate, warm: Driver) -> None:
    scene.add_batches(2)
    lost = gate.set(Trap(Point.COMMIT, Moment.REPLY))

    assert run(warm, scene, through(gate)) == [0, 1]

    assert lost.is_sprung
    scene.check_done()


def test_a_replay_partitioned_otherwise_adds_nothing(scene: Scene, warm: Driver) -> None:
    scene.add_batches(2)
    run(warm, scene)
    forget_the_last_commit(scene.checkpoint)
    before = warm.log().count(REPLAY_LINE)

    assert run(warm, scene, partitions=4) == [1]

    assert warm.log().count(REPLAY_LINE) == before + 1
    scene.check_done()


@pytest.mark.full
def test_two_queries_write_one_log_at_once(scene: Scene, warm: Driver) -> None:
    scene.add_batches(4)
    second = {"checkpointLocation": str(scene.directory / "second")}

    start(warm, scene)
    start(warm, scene, second, name="second")
    for name in ("first", "second"):
        warm.call(query.end, name=name)

    check_written_twice(scene, [3, 3])


@pytest.mark.full
def test_two_drivers_of_one_query_double_nothing(scene: Scene, warm: Driver) -> None:
    """From one checkpoint and its copy: Spark itself keeps two drivers off one folder."""
    scene.add_batches(1)
    run(warm, scene)
    copy = scene.directory / "copy"
    shutil.copytree(scene.checkpoint, copy)
    scene.add_batches(3)

    start(warm, scene)
    # One session refuses to run a query twice; another one cannot know.
    with scene.driver() as other:
        options = {**scene.options(), "checkpointLocation": str(copy)}
        runs = [
            other.begin(query.run, source=scene.source.arguments, options=options),
            warm.begin(query.end, name="first"),
        ]
        errors = [error for each in runs if (error := each.exception(seconds(CALL_TIMEOUT_S)))]

    assert all(isinstance(error, DriverError) and "BK_" in str(error) for error in errors)
    assert len(errors) < 2
    scene.check_done()


@pytest.mark.full
def test_a_checkpoint_rolled_back_by_two_batches_is_refused(scene: Scene, warm: Driver) -> None:
    scene.add_batches(1)
    run(warm, scene)
    old = scene.directory / "old"
    shutil.copytree(scene.checkpoint, old)
    scene.add_batches(2)
    run(warm, scene)

    with pytest.raises(DriverError, match="BK_TXN_REGRESSED"):
        run(warm, scene, {"checkpointLocation": str(old)})

    scene.check_done()


@pytest.mark.full
def test_a_deleted_checkpoint_begins_a_new_query_that_appends_everything_again(
    scene: Scene, warm: Driver
) -> None:
    scene.add_batches(2)
    run(warm, scene)
    shutil.rmtree(scene.checkpoint)

    run(warm, scene)

    check_written_twice(scene, [1, 1])


@pytest.mark.full
def test_a_read_planned_before_an_overwrite_finishes_within_the_retention(
    scene: Scene, warm: Driver
) -> None:
    scene.add_batches(1)
    run(warm, scene)
    source = BookKeeperSource({"metadataserviceuri": scene.uri, "log": scene.log})
    reader = source.reader(source.schema())
    planned = reader.partitions()

    options = {"metadataServiceUri": scene.uri, "log": scene.log}
    warm.call(query.overwrite_ids, options=options, rows=10)
    collect(scene.uri, scene.log)

    read = [
        value
        for part in planned
        for batch in cast("Iterator[pa.RecordBatch]", reader.read(part))
        for value in batch["id"].to_pylist()
    ]
    check_rows(read, scene.batches[0])
    collect(scene.uri, scene.log, days_later=DAYS_LATER)
    with pytest.raises(Exception, match="BK_"):
        list(reader.read(planned[0]))
    rows = list(scene.witness.rows())
    check_order(rows)
    check_rows([row.value for row in rows], range(10))
    scene.check_nothing_left()


@pytest.mark.full
def test_a_python_worker_killed_in_a_batch_fails_it_and_the_next_run_has_it_once(
    scene: Scene, hold: Hold, warm: Driver
) -> None:
    """Without retries: in local mode a task has one attempt."""
    scene.add_batches(1)
    start(warm, scene, held(hold, "0"))
    (attempt,) = hold.wait_for_held(1)

    os.kill(attempt.worker_pid, signal.SIGKILL)
    with pytest.raises(DriverError, match=r"STREAM_FAILED|crashed"):
        warm.call(query.end, name="first")
    assert scene.check_now() == 0

    run(warm, scene)
    scene.check_done()


def test_a_bookie_killed_in_a_batch_costs_nothing(
    scene: Scene, hold: Hold, warm: Driver, cluster: LocalCluster
) -> None:
    """One task, which has its ledger."""
    scene.add_batches(1)
    start(warm, scene, held(hold, "0"), partitions=1)
    hold.wait_for_held(1)

    bookie = cluster.bookies[0]
    bookie.kill()
    try:
        hold.release()
        assert warm.call(query.end, name="first") == [0]
        assert scene.check_now() == 1
    finally:
        bookie.start()

    scene.add_batches(1)
    assert run(warm, scene) == [1]
    scene.check_done()


def test_a_bookie_that_stays_away_stops_no_query(
    scene: Scene, warm: Driver, cluster: LocalCluster, bk: BookKeeper
) -> None:
    """Each task needs a new ledger, with an ensemble of as many bookies as there ever were."""
    scene.add_batches(1)
    assert run(warm, scene) == [0]
    away = cluster.bookies[0]
    away.kill()
    try:
        wait_until(
            lambda: away.bookie_id not in [each.bookie_id for each in bk.bookies()],
            "the bookie's registration has expired",
        )
        for batch in (1, 2):
            scene.add_batches(1)
            assert run(warm, scene) == [batch]
        held = [
            ledger
            for ledger in bk.list_ledgers()
            if away.bookie_id in bk.ledger_metadata(ledger).last_fragment.ensemble
        ]
        assert scene.check_now() == 3
        assert held
    finally:
        away.start()

    scene.add_batches(1)
    assert run(warm, scene) == [3]
    scene.check_done()


@pytest.mark.full
def test_zookeeper_killed_in_a_batch_costs_nothing(
    scene: Scene, hold: Hold, warm: Driver, cluster: LocalCluster
) -> None:
    scene.add_batches(2)
    start(warm, scene, held(hold, "0"))
    hold.wait_for_held(1)

    cluster.zookeeper.kill()
    hold.release()
    cluster.zookeeper.start()

    assert warm.call(query.end, name="first") == [0, 1]
    scene.check_done()


@pytest.mark.full
def test_a_rolling_restart_of_all_bookies_ends_no_query(
    scene: Scene, warm: Driver, cluster: LocalCluster
) -> None:
    for batch, bookie in enumerate(cluster.bookies):
        bookie.stop()
        scene.add_batches(1)
        assert run(warm, scene) == [batch]
        bookie.start()

    scene.check_done()
