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
from benchmarks.peers.apache import ApacheCluster, java_client
from benchmarks.peers.artifacts import (
    BOOKKEEPER_VERSION,
    Artifacts,
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
from bookie_server.client.settings import AUTO, BOOKIE_PROTOCOLS
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.version import __version__
from spark_bookkeeper import LocalCluster
from spark_bookkeeper.local.environment import package_environment

OWN, APACHES = "own", "apache"
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
    parser.add_argument(
        "--bookies",
        choices=(OWN, APACHES, OURS),
        default=OWN,
        help="whose bookies the clients talk to: each its own kind, both to the same three of Apache's, or each to three of ours",
    )
    parser.add_argument(
        "--protocol",
        choices=tuple(BOOKIE_PROTOCOLS),
        default=AUTO,
        help="our client's bookie_protocol (Apache's speaks v2)",
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
        for outcome in _beside_apache(options, chosen, plan):
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


def _beside_apache(
    options: argparse.Namespace, chosen: Sequence[Workload], plan: Plan
) -> Iterator[Outcome]:
    artifacts = prepare(options.cache)
    say(" ".join(f"{key}={value}" for key, value in surroundings().items()))
    with ExitStack() as stack:
        sides = _sides(stack, artifacts, options.bookies, options.protocol)
        yield from run_all(sides, chosen, plan)


def _sides(stack: ExitStack, artifacts: Artifacts, bookies: str, protocol: str) -> dict[str, Side]:
    """Both clients and what they talk to. Of bookies that both share nobody can say for whom they work."""
    if bookies == APACHES:
        apache = stack.enter_context(ApacheCluster(artifacts))
        ours = our_client(apache.metadata_service_uri, apache.directory, protocol)
        return {
            OURS: Side(stack.enter_context(ours), ()),
            PEER: Side(stack.enter_context(apache.client()), ()),
        }
    cluster = stack.enter_context(LocalCluster(bookies=3))
    ours = our_client(cluster.metadata_service_uri, cluster.directory, protocol)
    own = Side(stack.enter_context(ours), _pids(cluster))
    if bookies == OURS:
        second = stack.enter_context(LocalCluster(bookies=3))
        theirs = java_client(artifacts, second.metadata_service_uri, second.directory)
        return {OURS: own, PEER: Side(stack.enter_context(theirs), _pids(second))}
    apache = stack.enter_context(ApacheCluster(artifacts))
    pids = tuple(bookie.pid for bookie in apache.bookies)
    return {OURS: own, PEER: Side(stack.enter_context(apache.client()), pids)}


def _pids(cluster: LocalCluster) -> tuple[int, ...]:
    return tuple(bookie.pid for bookie in cluster.bookies if bookie.pid)


def our_client(uri: str, directory: Path, protocol: str = AUTO) -> CommandedClient:
    """A new process of our client; its log goes into the directory."""
    variables = package_environment()
    # In front: an installation has no benchmarks.
    path = os.pathsep.join((str(REPOSITORY), variables["PYTHONPATH"]))
    return CommandedClient(
        "spark-bookkeeper",
        [sys.executable, "-m", "benchmarks.peers.ours", uri, protocol],
        directory / "our_client.log",
        variables | {"PYTHONPATH": path},
    )
