"""``python -m tests.interop.mixed --minutes 10``: bookies of both kinds under one campaign of kills; see crash_campaign.py."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from benchmarks.peers.apache import ApacheBookies
from benchmarks.peers.artifacts import Artifacts, cache_directory, prepare
from spark_bookkeeper import LocalCluster
from tests.integration.crash_campaign import Campaign
from tests.interop.java_client import SOURCE


@dataclass(frozen=True)
class Mixed:
    """One cluster, as a campaign wants it."""

    metadata_service_uri: str
    bookies: list[Any]


@contextmanager
def mixed_cluster(artifacts: Artifacts) -> Iterator[LocalCluster]:
    """Two bookies of ours, and one of Apache's."""
    with LocalCluster(2) as ours:
        uri = ours.metadata_service_uri
        with ApacheBookies(artifacts, uri, count=1) as apache:
            # It has what a campaign uses: processes that are killed and started again.
            yield cast(LocalCluster, Mixed(uri, [*ours.bookies, *apache.bookies]))


def main() -> int:
    """Run one campaign; it ends with a traceback when something acknowledged is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.mixed", description=__doc__)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=10.0, help="not longer than that")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with mixed_cluster(prepare(cache_directory(), SOURCE)) as cluster:
        campaign = Campaign(cluster, asked.seed)
        try:
            campaign.run(asked.kills, asked.minutes)
        finally:
            sys.stdout.write(f"seed={asked.seed} {campaign}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
