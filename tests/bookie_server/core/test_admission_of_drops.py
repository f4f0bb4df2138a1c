"""A drop is admitted when nothing of its ledger is on its way, and fences it from that moment on."""

from __future__ import annotations

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from tests.bookie_server.core.test_admission import Scene, scene

__all__ = ["scene"]


def drop(scene: Scene, who: str) -> None:
    scene.run(scene.admission.drop(7, scene.teller(who)))


def test_a_drop_waits_for_what_is_on_its_way_and_takes_no_add_from_then_on(scene: Scene) -> None:
    scene.add("first", 0)
    scene.sync()
    scene.fence("late recoverer")
    scene.admission.suspect([7])
    drop(scene, "too early")
    scene.sync()

    drop(scene, "drop")
    scene.admission.suspect([])
    scene.add("writer", 1)
    scene.fence("recoverer")
    assert scene.told == [
        ("first", Status.OK),
        ("too early", Status.BUSY),
        ("late recoverer", Status.OK),
        ("writer", Status.FENCED),
    ]
    scene.sync()

    assert scene.told[4:] == [("drop", Status.OK), ("recoverer", Status.OK)]


def test_nothing_is_dropped_that_may_get_entries_at_any_moment(scene: Scene) -> None:
    with pytest.raises(InvariantViolation):
        drop(scene, "not suspected")
