"""Storage against a dictionary: reads with stripes and limits, late entries, checkpoints at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, Fence, MasterKey, Tombstone
from bookie_server.reads.duplicates import plan_compare
from bookie_server.storage.checkpoint import CheckpointPlan
from bookie_server.storage.logs.entry_log import log_ids
from bookie_server.storage.logs.rows import Row
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.wire.record import parse_run
from bookie_server.wire.stripe import Stripe
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import (
    READ_SIZE,
    Model,
    open_small,
    records_of,
    run_of,
    started,
)

LEDGERS = (1, 2, 3, 4, 5)
DELETED = (4, 5)


def check_read(
    model: Model,
    ledger_id: int,
    span: tuple[int, int],
    stripe: Stripe | None = None,
    size_bytes_max: int = READ_SIZE,
) -> ReadOutcome:
    """Every asked id has exactly one presence, and the right one; a dumb twin, entry by entry."""
    (first, last), expected = span, model.entries.get(ledger_id, {})
    plan = model.storage.contents.plan_read(
        ledger_id, first, last, stripe=stripe, size_bytes_max=size_bytes_max
    )
    outcome = model.storage.execute(plan)
    asked = [e for e in range(first, last + 1) if stripe is None or stripe.wants(e)]
    found: dict[int, bytes] = {}
    for run in map(parse_run, outcome.chunks):
        assert not found.keys() & set(run.entry_ids), "no entry is returned twice"
        found |= records_of(run)
    presence: dict[int, Presence] = {}
    for part in outcome.spans:
        for entry_id in asked:
            if part.first <= entry_id <= part.last:
                assert entry_id not in presence, "spans do not overlap"
                presence[entry_id] = part.presence
    assert list(presence) == asked, "every asked id has a presence, in order"
    for entry_id in asked:
        match presence[entry_id]:
            case Presence.FOUND:
                assert found.pop(entry_id) == expected[entry_id]
            case Presence.ABSENT:
                assert entry_id not in expected
            case Presence.NOT_REACHED:
                assert outcome.entry_count, "something that exists is always returned"
            case Presence.DAMAGED:
                pytest.fail("nothing is damaged here")
    assert not found, "nothing is returned that was not asked for"
    assert outcome.size_bytes == sum(map(len, outcome.chunks))
    assert outcome.size_bytes <= size_bytes_max or outcome.entry_count == 1
    return outcome


class StorageMachine(RuleBasedStateMachine):
    """Adds in any order, checkpoints in three steps, crashes and restarts, against the model."""

    @initialize()
    def begin(self) -> None:
        self.model = started()
        self.plan: CheckpointPlan | None = None

    @rule(
        ledger_id=strategies.sampled_from(LEDGERS),
        ids=strategies.one_of(
            strategies.sets(strategies.integers(0, 40), min_size=1, max_size=12).map(sorted),
            strategies.builds(range, strategies.integers(0, 20), strategies.integers(21, 60)),
            strategies.builds(
                range, strategies.integers(0, 6), strategies.just(60), strategies.just(3)
            ),
        ),
        size=strategies.sampled_from((0, 1, 40, 700)),
        salt=strategies.integers(0, 1),
    )
    def add(self, ledger_id: int, ids: Sequence[int], size: int, salt: int) -> None:
        self.model.write([Add(run_of(ledger_id, ids, size, salt))])

    @rule(ledger_id=strategies.sampled_from(LEDGERS))
    def fence(self, ledger_id: int) -> None:
        self.model.write([MasterKey(ledger_id, bytes(20)), Fence(ledger_id)])

    @rule(ledger_id=strategies.sampled_from(DELETED), count=strategies.integers(1, 2))
    def delete(self, ledger_id: int, count: int) -> None:
        self.model.write([Tombstone(ledger_id, ledger_id + count - 1)])

    @rule()
    def bury(self) -> None:
        if self.plan is None:
            self.model.bury()

    @rule(draw=strategies.randoms(use_true_random=False))
    def compact(self, draw: Random) -> None:
        if self.plan is not None:
            return
        for number, directory in enumerate(self.model.layout.ledger_directories):
            logs = log_ids(self.model.files, directory)
            if logs:
                self.model.compact(number, draw.sample(logs, draw.randint(1, len(logs))))

    @rule()
    def begin_checkpoint(self) -> None:
        if self.plan is None:
            self.plan = self.model.storage.contents.begin_checkpoint()

    @rule()
    def end_checkpoint(self) -> None:
        if self.plan is not None:
            self.model.storage.contents.finish_checkpoint(
                self.model.storage.checkpoints.write(self.plan)
            )
            self.plan = None

    @rule()
    def restart(self) -> None:
        self.plan = None
        self.model.restart()

    @rule(seed=strategies.integers(0, 1000))
    def crash(self, seed: int) -> None:
        self.plan = None
        whole_sectors = self.model.files.crash(Random(seed), lambda r: r.choice(("keep", "drop")))
        self.model.files = whole_sectors
        self.model.start()
        assert not self.model.storage.contents.is_damaged

    @rule(
        ledger_id=strategies.sampled_from(LEDGERS),
        first=strategies.integers(0, 50),
        count=strategies.integers(1, 70),
        stripe=strategies.sampled_from((None, Stripe(3, 2, 1), Stripe(3, 1, 0), Stripe(5, 3, 4))),
        size_bytes_max=strategies.sampled_from((1, 100, 2000, READ_SIZE)),
    )
    def read(
        self, ledger_id: int, first: int, count: int, stripe: Stripe | None, size_bytes_max: int
    ) -> None:
        check_read(self.model, ledger_id, (first, first + count - 1), stripe, size_bytes_max)

    @invariant()
    def everything_is_there(self) -> None:
        if hasattr(self, "model"):
            self.model.check(self.model.storage, "invariant")
            for ledger_id, expected in self.model.entries.items():
                parts = self.model.storage.contents.entry_ids(ledger_id)
                ids = [entry_id for part in parts for entry_id in part]
                assert ids == sorted(expected)
                assert self.model.storage.contents.last_entry(ledger_id) == ids[-1]


TestStorageMachine = pytest.mark.slow(StorageMachine.TestCase)
StorageMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def model() -> Model:
    return started(directories=1)


def test_missing_names_exactly_the_parts_not_stored(model: Model) -> None:
    model.write([Add(run_of(1, range(3)))])
    model.checkpoint()
    model.write([Add(run_of(1, [5, 7]))])

    parts = model.storage.contents.missing(run_of(1, range(10)))
    assert [list(part.entry_ids) for part in parts] == [[3, 4], [6], [8, 9]]
    assert model.storage.contents.missing(run_of(1, [0, 2, 7])) == []
    assert len(model.storage.contents.missing(run_of(2, range(4)))) == 1


def test_the_first_copy_of_an_entry_stays(model: Model) -> None:
    model.write([Add(run_of(1, range(3), salt=1))])
    model.write([Add(run_of(1, range(5), salt=2))])

    outcome = check_read(model, 1, (0, 9))

    assert outcome.of(Presence.FOUND) == [(0, 4)]
    assert bytes(parse_run(outcome.chunks[0]).record(0)) == records_of(run_of(1, [0], salt=1))[0]


def test_the_stored_twins_of_a_run_can_be_fetched_for_comparison(model: Model) -> None:
    model.write([Add(run_of(1, range(6)))])
    model.checkpoint()

    twin = run_of(1, [1, 3, 9], salt=1)
    outcome = model.storage.execute(
        plan_compare(model.storage.contents.plan_read, twin, size_bytes_max=READ_SIZE)
    )

    assert [e for chunk in outcome.chunks for e in parse_run(chunk).entry_ids] == [1, 3]


def test_a_striped_ledger_takes_few_rows(model: Model) -> None:
    # given the share of one bookie of three: two ids of every three
    ids = [entry_id for entry_id in range(600) if entry_id % 3 != 2]
    model.write([Add(run_of(1, ids))])
    model.checkpoint()

    items = model.storage.contents.plan_read(1, 0, 599, size_bytes_max=READ_SIZE).stored

    assert all(isinstance(item.place, Row) for item in items)
    assert len(items) <= 30, "about one row a block, not one an id"
    stripe = Stripe(3, 2, 1)
    assert [e for e in range(600) if stripe.wants(e)] == ids
    outcome = check_read(model, 1, (0, 599), stripe)
    assert outcome.of(Presence.FOUND) == [(0, 598)] or outcome.of(Presence.FOUND) == [(0, 599)]
    assert not outcome.of(Presence.ABSENT)


def test_neighbouring_blocks_are_one_chunk(model: Model) -> None:
    model.write([Add(run_of(1, range(100), size=500))])
    model.checkpoint()

    outcome = check_read(model, 1, (0, 99))

    assert len(outcome.chunks) == 1


@pytest.mark.conformance("S12")
def test_a_read_of_no_bytes_still_returns_the_first_entry(model: Model) -> None:
    model.write([Add(run_of(1, range(3)))])

    plan = model.storage.contents.plan_read(1, 0, 2, size_bytes_max=0)

    assert model.storage.execute(plan).of(Presence.FOUND) == [(0, 0)]


def test_a_read_ends_where_its_bytes_do(model: Model) -> None:
    """What is left behind the first run has room for no entry of the next one, not even for its first."""
    run = run_of(1, range(3))
    model.write([Add(run)])
    model.write([Add(run_of(1, range(3, 6)))])

    plan = model.storage.contents.plan_read(1, 0, 5, size_bytes_max=run.size_bytes + 1)

    assert model.storage.execute(plan).of(Presence.FOUND) == [(0, 2)]


def test_cached_entries_are_served_without_copying(model: Model) -> None:
    run = run_of(1, range(4))
    model.write([Add(run)])

    plan = model.storage.contents.plan_read(1, 0, 3, size_bytes_max=READ_SIZE)

    assert not plan.needs_disk
    assert model.storage.execute(plan).chunks[0] is run.data


def test_replay_keeps_memory_bounded_by_checkpointing_on_the_way(model: Model) -> None:
    for start in range(0, 200, 20):
        model.write([Add(run_of(1, range(start, start + 20), size=1000))])
    model.restart()

    assert model.storage.contents.cached_bytes == 0
    assert len([name for name in model.files.names("/ledgers0") if name.endswith(".log")]) > 1
    model.check(model.storage, "restart")


def test_ledgers_spread_over_journals_and_directories_and_stay_where_they_are() -> None:
    model = started()
    for ledger_id in range(6):
        model.write([Add(run_of(ledger_id, range(2)))])
    model.checkpoint()
    places = {
        ledger_id: (facts.journal_index, facts.directory_index)
        for ledger_id, facts in model.storage.contents.ledgers.items()
    }

    model.restart()

    assert [place[0] for place in places.values()].count(0) == 3
    assert [place[1] for place in places.values()].count(0) == 3
    for ledger_id, facts in model.storage.contents.ledgers.items():
        assert (facts.journal_index, facts.directory_index) == places[ledger_id]
        assert model.storage.contents.journal_of(ledger_id) == places[ledger_id][0]


def test_the_index_is_compacted_when_its_deltas_outgrow_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookie_server.storage.index.directory._SNAPSHOT_AT_BYTES", 4096)
    sizes = []
    for entry_id in range(60):
        model.write([Add(run_of(1, [entry_id]))])
        model.checkpoint()
        sizes.append(len(model.files.content("/ledgers0/index")))

    assert any(after < before for before, after in itertools.pairwise(sizes))
    model.restart()
    model.check(model.storage, "compacted")


def test_opening_a_fresh_directory_twice_is_not_damage() -> None:
    files = SimFileSystem()
    open_small(files).close()

    storage = open_small(files)

    assert storage.recovery.damage == []
    assert storage.contents.ledgers == {}
