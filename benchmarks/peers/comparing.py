"""``python -m benchmarks peers``: Apache BookKeeper and ours, side by side, workload by workload.

Starts both clusters and both clients, runs the chosen workloads and writes what is asked for. Everything
it starts ends with it, whatever ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.figures import environment
from benchmarks.peers.apache import ApacheCluster
from benchmarks.peers.artifacts import (
    BOOKKEEPER_VERSION,
    PeerUnavailableError,
    cache_directory,
    prepare,
)
from benchmarks.peers.commands import ClientFailedError, CommandedClient
from benchmarks.peers.rounds import OURS, PEER
from benchmarks.peers.running import Outcome, Plan, run_all, say
from benchmarks.peers.sides import Side
from benchmarks.peers.table import lines, markdown
from benchmarks.peers.workloads import Workload, workloads
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.version import __version__
from spark_bookkeeper import LocalCluster
from spark_bookkeeper.local.environment import package_environment

REPOSITORY = Path(__file__).resolve().parents[2]


def surroundings() -> dict[str, str]:
    """What the figures depend on besides the code of both sides."""
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return {
        "spark-bookkeeper": __version__,
        "Apache BookKeeper": BOOKKEEPER_VERSION,
        "congestion control": congestion.read_text().strip() if congestion.exists() else "unknown",
        "quorums": "E=WQ=3 AQ=2, CRC32C",
        **environment(),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of each workload")
    parser.add_argument("--warm-up-rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3, help="length of a turn, roughly")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="workloads with it in their name"
    )
    parser.add_argument("--cache", type=Path, default=cache_directory(), help="where jars are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables here")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs and prints; without what the peer needs it says so, and that is no failure."""
    parser = _parser()
    options = parser.parse_args(arguments)
    wanted = options.only or [""]
    chosen = [each for each in workloads() if any(text in each.name for text in wanted)]
    if not chosen or options.rounds < 1:
        parser.error(f"nothing to run; workloads: {', '.join(w.name for w in workloads())}")
    plan = Plan(options.seconds, options.rounds, options.warm_up_rounds)
    outcomes: list[Outcome] = []
    code = 0
    try:
        for outcome in _beside_apache(options.cache, chosen, plan):
            outcomes.append(outcome)
            for line in lines(outcome.row()):
                say(line)
    except PeerUnavailableError as error:
        say(f"skipped, no peer to compare with: {error}")
        return 0
    except (ClientFailedError, BookKeeperError) as error:
        say(f"failed: {error}")
        code = 1
    except KeyboardInterrupt:
        say("interrupted; every process has ended")
        code = 130
    # Also of a run that ended early: a workload that is done took a minute, and counts.
    if options.json:
        options.json.write_text(_document(outcomes, plan), encoding="utf-8")
    if options.markdown:
        rows = [outcome.row() for outcome in outcomes]
        options.markdown.write_text(markdown(rows, surroundings(), plan.rounds), encoding="utf-8")
    return code


def _document(outcomes: Sequence[Outcome], plan: Plan) -> str:
    listed = [asdict(outcome) | {"row": asdict(outcome.row())} for outcome in outcomes]
    document = {"environment": surroundings(), "plan": asdict(plan), "workloads": listed}
    return json.dumps(document, indent=2)


def _beside_apache(cache: Path, chosen: Sequence[Workload], plan: Plan) -> Iterator[Outcome]:
    artifacts = prepare(cache)
    say(" ".join(f"{key}={value}" for key, value in surroundings().items()))
    with ExitStack() as stack:
        ours = stack.enter_context(LocalCluster(bookies=3))
        apache = stack.enter_context(ApacheCluster(artifacts))
        our_bookies = tuple(bookie.pid for bookie in ours.bookies if bookie.pid)
        their_bookies = tuple(bookie.pid for bookie in apache.bookies)
        sides = {
            OURS: Side(stack.enter_context(our_client(ours)), our_bookies),
            PEER: Side(stack.enter_context(apache.client()), their_bookies),
        }
        yield from run_all(sides, chosen, plan)


def our_client(cluster: LocalCluster) -> CommandedClient:
    """A new process of our client."""
    variables = package_environment()
    # In front: an installation has no benchmarks.
    path = os.pathsep.join((str(REPOSITORY), variables["PYTHONPATH"]))
    return CommandedClient(
        "spark-bookkeeper",
        [sys.executable, "-m", "benchmarks.peers.ours", cluster.metadata_service_uri],
        cluster.directory / "client.log",
        variables | {"PYTHONPATH": path},
    )
