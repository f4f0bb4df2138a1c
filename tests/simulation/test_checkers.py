"""Each checker rejects a history that breaks its invariant, and says nothing of a sound one.

A checker that cannot fail proves nothing: every one has its negative control here, the smallest
doctored history that it alone must notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bookkeeper_metadata.model import Fragment, LedgerMetadata
from tests.simulation.world import (
    checkers,
    space_checkers,
    storage_checkers,
)
from tests.simulation.world import collection_history as c
from tests.simulation.world import history as h
from tests.simulation.world import space_history as s
from tests.simulation.world.checkers import CHECKERS, Checker
from tests.simulation.world.controls import (
    ACKED,
    ARRIVED,
    CONTROLS,
    HEALED,
    IN_MARGIN,
    LOW,
    OPEN,
    SOUND,
    stored,
    up,
)
from tests.simulation.world.process import Band
from tests.simulation.world.story import Story


def story_of(events: Sequence[h.Event]) -> Story:
    history = h.History()
    for event in events:
        history.record(replace(event))
    return Story(history)


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_a_sound_history_is_accepted(checker: Checker) -> None:
    assert list(checker(story_of(SOUND))) == []


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_copies_made_again_are_accepted(checker: Checker) -> None:
    assert list(checker(story_of(HEALED))) == []


@pytest.mark.parametrize(
    ("checker", "events"),
    [
        pytest.param(checker, events, id=f"{checker.__name__}-{what}")
        for checker, controls in CONTROLS.items()
        for what, events in controls.items()
    ],
)
def test_a_doctored_history_is_rejected(checker: Checker, events: Sequence[h.Event]) -> None:
    assert list(checker(story_of(events)))


def impossible(**changes: object) -> LedgerMetadata:
    """Metadata its own constructor would refuse."""
    metadata = replace(OPEN)
    for name, value in changes.items():
        object.__setattr__(metadata, name, value)
    return metadata


@pytest.mark.parametrize(
    "metadata",
    [
        impossible(fragments=(Fragment(0, ("b0", "b0", "b1")),)),
        impossible(fragments=(Fragment(0, ("b0", "b1")),)),
        impossible(ack_quorum=4),
    ],
    ids=["twice", "short", "quorums"],
)
def test_an_impossible_ensemble_is_rejected(metadata: LedgerMetadata) -> None:
    events = [h.Committed("w", 7, 0, metadata)]

    assert list(checkers.i16_ensemble_valid(story_of(events)))


@pytest.mark.parametrize(
    "events",
    [
        [
            h.DisksHarmed("b0", "emptied", ("/l0",)),
            h.StartRefused("b0", 0, "/l0"),
            h.DisksSettled("b0", "brought back"),
            up(),
        ],
        [h.Superseded("b0", 1, True), up(), h.BookieDown("b0", 1, "superseded")],
    ],
    ids=["settled", "just about to serve"],
)
def test_right_disks_may_serve(events: list[h.Event]) -> None:
    story = story_of(events)

    assert list(storage_checkers.s6_wrong_disks_never_serve(story)) == []
    assert list(storage_checkers.s7_one_process_per_id(story)) == []


@pytest.mark.parametrize(
    "events",
    [
        [IN_MARGIN, ARRIVED, *stored(0, "b0")],
        [LOW, s.Looked("b0", Band.PLENTY), ARRIVED, *stored(0, "b0")],
        [ARRIVED, s.Looked("b0", Band.FENCES), ARRIVED, *stored(0, "b0")],
        [s.Looked("b0", Band.FENCES), h.BookieDown("b0", 1, "killed"), *stored(0, "b0")],
        [LOW, replace(ARRIVED, is_recovery=True), *stored(0, "b0")],
    ],
    ids=["above the reserve", "room again", "before the look", "found at a start", "a recovery's"],
)
def test_what_there_is_room_for_may_be_stored(events: list[h.Event]) -> None:
    assert list(space_checkers.s8_reserves_are_kept(story_of(events))) == []


def test_every_checker_has_a_control() -> None:
    assert set(CHECKERS) - set(CONTROLS) == {checkers.i16_ensemble_valid}


@pytest.mark.parametrize(
    "events",
    [
        [*ACKED, h.Damaged("b0", "x"), up(0, limbo=(7,))],
        [*ACKED, h.Deleted("x", 7), h.Damaged("b0", "x"), up()],
        [*ACKED, h.Deleted("x", 7), c.Deleting("b0", 7, 7), up()],
    ],
    ids=["limbo", "nobody asks", "collected"],
)
def test_damage_and_deletion_excuse_a_loss(events: list[h.Event]) -> None:
    assert list(storage_checkers.s2_nothing_durable_is_lost(story_of(events))) == []
