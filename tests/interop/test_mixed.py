"""Bookies of both kinds in one cluster die under writers, and nothing acknowledged is lost."""

from __future__ import annotations

import pytest

from benchmarks.peers.artifacts import Artifacts
from tests.integration.crash_campaign import Campaign
from tests.interop.mixed import mixed_cluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(3600)]


def test_kills_of_either_kind_lose_nothing_acknowledged(artifacts: Artifacts) -> None:
    """``python -m tests.interop.mixed --minutes 10`` goes on for longer."""
    with mixed_cluster(artifacts) as cluster:
        campaign = Campaign(cluster, 1)
        campaign.run(10)
        assert campaign.kills >= 10
        assert campaign.acknowledged > 0
        assert campaign.lost == 0
