"""Thirty drivers killed at points drawn from seeds: every row once, whatever the points."""

from __future__ import annotations

import pytest

from tests.spark.kills.campaign import Campaign
from tests.spark.kills.scene import Scene

KILLS = 10


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "scene"), [(1, "files"), (2, "log"), (3, "log")], indirect=["scene"]
)
def test_drivers_killed_at_random_points_add_every_row_once(scene: Scene, seed: int) -> None:
    counts = Campaign(scene, seed, KILLS).run()

    assert counts.kills.total() >= KILLS // 2, counts
