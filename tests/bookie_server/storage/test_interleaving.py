"""Ids with gaps cost in proportion to their number, however two ledgers' runs are woven together."""

from __future__ import annotations

from typing import Any

import pytest

from bookie_server.core.presence import Presence
from bookie_server.core.records import Add
from bookie_server.storage.read_plan import SPANS_MAX
from bookie_server.storage.stored import Stored, merge_stored
from bookie_server.wire.record import Run, parse_run
from bookie_server.wire.stripe import Stripe
from tests.simulation.kit.storage_model import Model, run_of, started

COUNT = 400
EVEN, ODD = range(0, 2 * COUNT, 2), range(1, 2 * COUNT, 2)


class CountedIds(list[int]):
    """Ids that say how many of them were copied."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            CountedIds.copied += len(found)
            return CountedIds(found)
        return found


def test_a_run_woven_into_another_is_cut_without_copying_the_rest_for_each_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two sections of 32,768 entries each kept a bookie's event loop for 43 seconds."""
    model, copied, slice_of = started(), 0, Run.slice

    def counted(run: Run, start: int, stop: int) -> Run:
        nonlocal copied
        copied += stop - start
        return slice_of(run, start, stop)

    model.write([Add(run_of(1, EVEN))])
    monkeypatch.setattr(Run, "slice", counted)
    model.write([Add(run_of(1, ODD))])
    monkeypatch.undo()

    assert copied <= 2 * (len(EVEN) + len(ODD))
    model.check(model.storage, "woven")


def test_sources_woven_together_are_merged_without_copying_the_rest_for_each_piece() -> None:
    CountedIds.copied = 0
    run = run_of(1, [0])
    sources = [iter([Stored(CountedIds(ids), run)]) for ids in (EVEN, ODD)]

    merged = [entry_id for item in merge_stored(sources) for entry_id in item.ids]

    assert merged == list(range(2 * COUNT))
    assert CountedIds.copied <= 2 * len(merged)


def test_rows_woven_together_stay_readable() -> None:
    model = started()
    for ids in (EVEN, range(1, COUNT, 4), ODD):
        model.write([Add(run_of(1, ids))])
        model.checkpoint()

    model.check(model.storage, "rows")


def read_on(model: Model, last: int, stripe: Stripe | None = None) -> tuple[list[int], list[int]]:
    """Every id found by asking again behind what a reply reached, and the spans of each reply."""
    found: list[int] = []
    spans: list[int] = []
    first = 0
    while first <= last:
        plan = model.storage.contents.plan_read(1, first, last, stripe=stripe, size_bytes_max=10**6)
        outcome = model.storage.execute(plan)
        found += [e for chunk in outcome.chunks for e in parse_run(chunk).entry_ids]
        spans.append(len(outcome.spans))
        reached = [span.last for span in outcome.spans if span.presence is not Presence.NOT_REACHED]
        assert reached, "a reply says something of at least one id"
        first = reached[-1] + 1
    return found, spans


def test_a_reply_has_a_bounded_number_of_spans() -> None:
    """Of a ledger with a gap behind each id it had two for each of them, whatever its bytes."""
    model = started()
    ids = range(0, 4 * SPANS_MAX, 2)
    for first in range(0, 4 * SPANS_MAX, 2_000):
        model.write(
            [Add(run_of(1, [e for e in range(first, first + 2_000, 2) if e in ids], size=0))]
        )
        if first == 2_000:
            model.storage.checkpoint_now()

    found, spans = read_on(model, ids[-1])

    assert found == list(ids)
    assert max(spans) <= SPANS_MAX + 2


def test_a_read_for_which_nothing_is_held_does_not_look_through_the_whole_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it wants decides how much it may look at, and not only what it finds."""
    model = started()
    for entry_id in range(0, 60, 2):
        model.write([Add(run_of(1, [entry_id]))])
    model.checkpoint()
    for entry_id in range(60, 90, 2):
        model.write([Add(run_of(1, [entry_id]))])
    odd = Stripe(2, 1, 1)
    monkeypatch.setattr("bookie_server.storage.read_plan._PLAN_ITEMS_MAX", 3)

    plan = model.storage.contents.plan_read(1, 0, 89, stripe=odd, size_bytes_max=10**6)

    assert plan.stored == ()
    assert plan.planned_last < 70
    assert read_on(model, 89, odd)[0] == []


def test_an_entry_that_damage_left_in_two_places_is_found_once_in_the_first() -> None:
    """Two sources with one id made a merge without end, on the event loop."""
    here, there = run_of(1, [0]), run_of(1, [1])
    sources = [
        iter([Stored([2, 3, 9], here)]),
        iter([Stored([1, 2], there), Stored([3, 4], there)]),
    ]

    merged = [(entry_id, item.place) for item in merge_stored(sources) for entry_id in item.ids]

    assert merged == [(1, there), (2, here), (3, here), (4, there), (9, here)]
