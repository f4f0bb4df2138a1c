"""``python -m tests.spark.kills --minutes N [--seed S]``: campaigns of kills, one seed after another.

Without ``--seed`` seeds begin at a number drawn from the clock, so that every session tries new ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.spark.checkers import ViolationError
from tests.spark.kills.campaign import Campaign
from tests.spark.kills.scene import Scene

KILLS = 8
"""In each campaign."""


def main() -> int:
    """Run until the time is over; 1 when a campaign was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed")
    parser.add_argument("--minutes", type=float, default=0, help="for how long; 0: one seed")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else time.time_ns() // 1_000_000 % 10**9
    end_s = time.monotonic() + 60 * asked.minutes
    violated = 0
    with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
        while True:
            violated += not _is_right(cluster, bk, seed)
            seed += 1
            if time.monotonic() >= end_s:
                return 1 if violated else 0


def _is_right(cluster: LocalCluster, bk: BookKeeper, seed: int) -> bool:
    with TemporaryDirectory() as directory:
        # Files and a log take turns as the source.
        scene = Scene(cluster, bk, Path(directory), f"seed-{seed}", is_from_log=seed % 2 == 0)
        try:
            counts = Campaign(scene, seed, KILLS).run()
        except ViolationError as violation:
            story = "; ".join([str(violation), *getattr(violation, "__notes__", ())])
            sys.stdout.write(f"seed={seed} VIOLATED {story}\n")
            return False
    sys.stdout.write(f"seed={seed} {counts}\n")
    sys.stdout.flush()
    return True


if __name__ == "__main__":
    sys.exit(main())
