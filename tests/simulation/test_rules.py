"""The protocol's rules under seeded schedules of faults (``python -m tests.simulation.rules``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from bookkeeper_metadata.foundation.invariant import InvariantViolation
from bookkeeper_metadata.model import Fragment, LedgerState
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from tests.simulation.kit.campaigns import Share, outputs_of, shares
from tests.simulation.kit.choices import Choices
from tests.simulation.rules import checks
from tests.simulation.rules.campaign import Report, run_campaign, run_seeds, seed_base
from tests.simulation.rules.checks import OUTCOMES, RULES, Check, check_name, violations
from tests.simulation.rules.heap import EVENTS_MAX, EndlessScheduleError, Heap
from tests.simulation.rules.history import (
    Acked,
    Answered,
    Committed,
    Denied,
    Ended,
    Hinted,
    History,
    Judged,
    ReadBegun,
    Refused,
    Stored,
)
from tests.simulation.rules.marks import MARKS, SEEN_MIN
from tests.simulation.rules.model import run_schedule
from tests.simulation.rules.samples import created
from tests.simulation.rules.swarm import draw_swarm

SCHEDULES = 40_000
"""In ``make test``: about 35 s on two cores."""
SHARES = shares(SCHEDULES, 5_000)
SCHEDULES_FULL = 100_000


@cache
def run_share(share: Share) -> Report:
    """Some of the schedules of this source tree."""
    return run_campaign(seed_base() + share.first, share.count)


@pytest.fixture(scope="module")
def campaign() -> Report:
    """All of them: the shares that were run before are not run again."""
    whole = Report()
    for share in SHARES:
        whole.add(run_share(share))
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES, ids=str)
def test_no_schedule_breaks_an_invariant(share: Share) -> None:
    report = run_share(share)

    assert report.schedules == share.count
    assert report.acked > share.count
    assert report.failures == []


@pytest.mark.slow
def test_the_shares_are_the_schedules(campaign: Report) -> None:
    assert campaign.schedules == SCHEDULES


@pytest.mark.slow
@pytest.mark.parametrize("mark", MARKS)
def test_the_schedules_were_in_every_interesting_situation(campaign: Report, mark: str) -> None:
    assert campaign.marks[mark] >= SEEN_MIN


@pytest.mark.slow
def test_every_situation_that_is_counted_is_looked_for(campaign: Report) -> None:
    assert set(campaign.marks) <= set(MARKS)


@pytest.mark.full
def test_no_fresh_schedule_breaks_an_invariant() -> None:
    report = run_campaign(seed_base() + SCHEDULES, SCHEDULES_FULL)

    assert report.failures == []


@pytest.mark.slow
def test_a_seed_means_the_same_in_every_process() -> None:
    """Hash randomization differs, the traces do not."""
    program = (
        "from tests.simulation.rules.model import run_schedule\n"
        "for seed in range(200): print(run_schedule(seed, is_traced=True).trace_hash)\n"
    )

    first, second = outputs_of(program)

    assert first == second
    assert len(set(first)) == 200


def test_the_record_of_a_schedule_replays_it() -> None:
    for seed in range(20):
        drawn = run_schedule(seed, is_traced=True)

        replayed = run_schedule(0, record=drawn.record, is_traced=True)

        assert replayed.trace == drawn.trace


def test_a_schedule_without_decisions_is_a_healthy_one() -> None:
    """0 is the harmless answer everywhere, so shrinking goes towards this one."""
    outcome = run_schedule(0, record={}, is_traced=True)

    assert outcome.violations == ()
    assert not any("UNREACHABLE" in line or "loses" in line for line in outcome.trace)
    assert any("acknowledges" in line for line in outcome.trace)
    assert any("CLOSED" in line for line in outcome.trace)


def test_an_own_stream_is_not_shifted_by_another() -> None:
    alone, beside = Choices(7), Choices(7)
    beside.stream("network").below(10)

    assert [alone.stream("writer").below(1000) for _ in range(5)] == [
        beside.stream("writer").below(1000) for _ in range(5)
    ]


def test_a_schedule_that_runs_in_circles_is_stopped() -> None:
    heap = Heap()

    def again() -> None:
        heap.after(1, again)

    again()
    with pytest.raises(EndlessScheduleError):
        heap.run_until(10 * EVENTS_MAX)


def test_a_report_adds_up() -> None:
    whole, parts = run_seeds(0, 20), run_seeds(0, 8)

    parts.add(run_seeds(8, 12))

    assert parts == whole
    assert whole.events > 20


# -- every invariant is broken once ---------------------------------------------------------------

OPEN = created("3/3/2")
MARKED = replace(OPEN, state=LedgerState.IN_RECOVERY, writer_token=1)
CLOSED = replace(OPEN, state=LedgerState.CLOSED, last_entry=1, writer_token=2)


def healthy() -> History:
    """Two entries acknowledged, recovered and closed, everything as it should be."""
    history = History(ack_quorum=2, is_closed=True)
    for entry_id in (0, 1):
        history.acked.append(Acked(entry_id, 2, 2, False))
        history.stored.append(
            Stored("b0", entry_id, False, False, entry_id - 1, entry_id - 1, True)
        )
        history.copies_at_close.append((entry_id, 2))
        history.acked_copies_left.append((entry_id, 2))
        history.contents.append((entry_id, True))
    history.stored.append(Stored("b1", 1, True, True, 0, 1, True))
    history.answered += [Answered("b0", "add", True), Answered("b0", "fence", True)]
    history.denied.append(Denied("b0", 2, False))
    history.reads_begun.append(ReadBegun("recoverer0", True))
    history.judged.append(Judged("recoverer0", 2, 2, 2, 2))
    history.committed += [
        Committed(0, OPEN, "creator"),
        Committed(1, MARKED, "recoverer0"),
        Committed(2, CLOSED, "recoverer0"),
    ]
    history.ended.append(Ended("recoverer0", 1))
    return history


def late_fragment(history: History) -> None:
    fragments = (*OPEN.fragments, Fragment(1, ("b0", "b1", "b3")))
    changed = replace(MARKED, fragments=fragments, writer_token=9)
    history.committed.insert(2, Committed(2, changed, "recoverer1"))


def moved_fragment(history: History) -> None:
    fragments = (Fragment(0, ("b0", "b1", "b3")), Fragment(1, ("b0", "b1", "b4")))
    history.committed[0] = Committed(0, replace(OPEN, fragments=fragments), "creator")


def invalid_ensemble(history: History) -> None:
    broken = replace(OPEN)
    object.__setattr__(broken, "fragments", (Fragment(0, ("b0", "b0", "b2")),))
    history.committed[0] = Committed(0, broken, "creator")


DOCTORED: dict[Check, Callable[[History], object]] = {
    checks.i1_no_truncation: lambda h: h.acked.append(Acked(2, 2, 2, False)),
    checks.i2_acked_readable: lambda h: h.acked_copies_left.append((0, 0)),
    checks.i3_committed_at_ack_quorum: lambda h: h.copies_at_close.append((1, 1)),
    checks.i4_one_last_entry: lambda h: h.ended.append(Ended("writer", 2)),
    checks.i5_content: lambda h: h.contents.append((1, False)),
    checks.i6_ack_order: lambda h: h.acked.reverse(),
    checks.i7_lac_sound: lambda h: h.stored.append(Stored("b0", 2, False, False, 1, 0, True)),
    checks.i8_fence_monotone: lambda h: h.stored.append(Stored("b0", 2, False, True, 0, 0, True)),
    checks.i9_fence_before_reply: lambda h: h.answered.append(Answered("b1", "fence", False)),
    checks.i10_coverage_before_read: lambda h: h.reads_begun.append(ReadBegun("r1", False)),
    checks.i11_negative_needs_quorum: lambda h: h.judged.append(Judged("r1", 2, 1, 1, 2)),
    checks.i12_no_false_negative: lambda h: h.denied.append(Denied("b0", 1, True)),
    checks.i13_unknown_aborts: lambda h: h.judged.clear(),
    checks.i14_recovery_metadata_quiet: late_fragment,
    checks.i15_fragments_immutable: moved_fragment,
    checks.i16_ensemble_valid: invalid_ensemble,
    checks.i17_no_ack_ahead_of_metadata: lambda h: h.acked.append(Acked(2, 1, 2, False)),
    checks.i18_compare_and_set: lambda h: h.committed.insert(2, h.committed[1]),
    checks.i19_state_machine: lambda h: h.committed.append(Committed(3, MARKED, "recoverer1")),
    checks.i20_writer_stops: lambda h: h.acked.append(Acked(2, 2, 2, True)),
    checks.i21_recovery_lac: lambda h: h.stored.append(Stored("b2", 1, True, True, 0, 1, False)),
    checks.i24_fenced_means_fence: lambda h: h.refused.append(Refused("b1", False)),
    checks.s1_durable_before_ack: lambda h: h.answered.append(Answered("b1", "add", False)),
    checks.l1_ledger_closes: lambda h: setattr(h, "is_closed", False),
    checks.l3_operations_end: lambda h: setattr(h, "unfinished", ("close",)),
    checks.p_product_holds: lambda h: h.failures.append("an invariant does not hold"),
}


def test_a_healthy_history_breaks_no_invariant() -> None:
    assert violations(healthy()) == []
    assert set(DOCTORED) == {*OUTCOMES, *RULES}


@pytest.mark.parametrize("check", [*OUTCOMES, *RULES], ids=check_name)
def test_each_invariant_rejects_a_doctored_history(check: Check) -> None:
    history = healthy()

    DOCTORED[check](history)

    assert list(check(history)) != []


def test_an_explicit_lac_is_a_lac_too() -> None:
    history = healthy()
    history.hinted.append(Hinted("b0", 2, confirmed_then=1))

    assert [v.split(":")[0] for v in violations(history)] == ["I7"]


def test_media_are_lost_at_fewer_bookies_than_an_ack_quorum() -> None:
    swarms = [draw_swarm(Choices(seed).stream("swarm")) for seed in range(2_000)]

    assert all(swarm.media_losses < swarm.ack_quorum for swarm in swarms)
    assert any(swarm.media_losses for swarm in swarms)


def test_unfenced_denials_are_no_evidence() -> None:
    history = healthy()
    history.judged.append(Judged("r1", 2, deniers=2, fenced_deniers=1, needed=2))

    assert [v.split(":")[0] for v in violations(history)] == ["I11"]


def test_the_writer_of_a_ledger_in_recovery_may_not_close_it() -> None:
    history = healthy()
    history.committed[2] = Committed(2, CLOSED, "writer")

    assert [v.split(":")[0] for v in violations(history)] == ["I19"]


def test_a_product_invariant_that_fails_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise InvariantViolation("planted")

    monkeypatch.setattr(WriterState, "on_section_answer", stop)

    assert any(v.startswith("P: the product stops") for v in run_schedule(0, record={}).violations)
