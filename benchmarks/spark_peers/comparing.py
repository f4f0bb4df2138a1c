"""``python -m benchmarks spark-peers``: what Spark writes and reads, on our log and on the peers, side by side.

TPC-H ``lineitem`` is written and read as a whole, and micro-batches of 2 x 1,000 rows are written. Everything
runs all the time, each round gives every side a turn, and who begins goes round.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.artifacts import PeerUnavailableError, cache_directory
from benchmarks.peers.commands import ClientFailedError, CommandedClient, CommandFailedError
from benchmarks.peers.comparing import REPOSITORY, surroundings
from benchmarks.peers.rounds import OURS, PEER, Figures, Measure, Round, compare, figures_of_turn
from benchmarks.peers.running import say
from benchmarks.peers.table import Row, lines, markdown
from benchmarks.spark_peers.artifacts import (
    DELTA_VERSION,
    KAFKA_VERSION,
    SPARK_VERSION,
    SparkArtifacts,
    prepare,
)
from benchmarks.spark_peers.kafka import KafkaCluster
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper import LocalCluster
from spark_bookkeeper.demo.lineitem import generate
from spark_bookkeeper.local.environment import package_environment

PEERS = {
    "ceiling": "a Python sink that throws away, a source of one batch",
    "delta": f"Delta {DELTA_VERSION}, one copy on a local disk",
    "kafka-json": f"Kafka {KAFKA_VERSION}, JSON, three copies, no fsync",
    "kafka-avro": f"Kafka {KAFKA_VERSION}, Avro, three copies, no fsync",
}
ROWS_PER_S = Measure("per_s", "", "rows/s", is_rate=True)
BATCH_MS = Measure("p50_ms", "p50", "ms")
REST_S = 1.0
"""After each turn: bookies and brokers have work left of it."""


@dataclass(frozen=True)
class Task:
    """What every side does in a turn."""

    name: str
    title: str
    command: str
    measure: Measure


TASKS = (
    Task("write", "write `lineitem`", "write", ROWS_PER_S),
    Task("read", "read `lineitem`", "read", ROWS_PER_S),
    Task("batches", "a micro-batch of 2 x 1,000 rows", "batches 10", BATCH_MS),
)


@dataclass(frozen=True)
class Turns:
    """A task's measured rounds: figures of each side that had any, by its name, and the load before."""

    task: Task
    rounds: tuple[tuple[float, Mapping[str, Figures]], ...]
    failures: tuple[tuple[str, str], ...]
    """Sides, and what they failed with."""

    def row(self, peer: str) -> Row:
        """Ours beside one of the others."""
        both = [
            Round(OURS, load, {OURS: figures["ours"], PEER: figures[peer]})
            for load, figures in self.rounds
            if figures.keys() >= {"ours", peer}
        ]
        compared = compare(self.task.measure, both)
        failures = tuple(why for side, why in self.failures if side in {"ours", peer})
        return Row(
            f"{self.task.title}; {PEERS[peer]}", (compared,) if compared else (), (), failures
        )


def turns_of(names: Sequence[str], index: int) -> list[str]:
    """Whose turn it is, one after the other, in round ``index``: who begins goes round."""
    at = index % len(names)
    return [*names[at:], *names[:at]]


def run_task(
    sides: Mapping[str, CommandedClient], task: Task, rounds: int, warm_up_rounds: int
) -> Turns:
    """Warm-up rounds, which nobody sees, and the measured ones."""
    found: list[tuple[float, Mapping[str, Figures]]] = []
    failures: list[tuple[str, str]] = []
    for index in range(-warm_up_rounds, rounds):
        load, figures = os.getloadavg()[0], dict[str, Figures]()
        for name in turns_of([*sides], index):
            try:
                figures[name] = figures_of_turn(sides[name].ask(*task.command.split()))
            except CommandFailedError as failed:
                say(f"  {task.name}: {name} failed: {failed.detail}")
                if index >= 0:
                    failures.append((name, failed.detail))
            time.sleep(REST_S)
        if index >= 0:
            found.append((load, figures))
            shown = ", ".join(
                f"{name} {each[task.measure.key]:,.0f}" for name, each in sorted(figures.items())
            )
            say(f"  {task.name} round {index + 1} of {rounds}: load {load:.1f}, {shown}")
    return Turns(task, tuple(found), tuple(failures))


def main(arguments: Sequence[str]) -> int:
    """Runs and prints; without what the peers need it says so, and that is no failure."""
    parser = argparse.ArgumentParser(prog="benchmarks spark-peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of each task")
    parser.add_argument("--warm-up-rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=0.2, help="TPC-H scale factor")
    parser.add_argument("--peer", action="append", choices=[*PEERS], help="all, unless named")
    parser.add_argument("--task", action="append", choices=[task.name for task in TASKS])
    parser.add_argument("--cache", type=Path, default=cache_directory(), help="where jars are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table here")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("at least one round")
    peers = [name for name in PEERS if not options.peer or name in options.peer]
    tasks = [task for task in TASKS if not options.task or task.name in options.task]
    done: list[Turns] = []
    code = 0
    try:
        artifacts = prepare(options.cache)
        with ExitStack() as stack:
            sides = _start(stack, artifacts, peers, options.scale)
            for task in tasks:
                done.append(run_task(sides, task, options.rounds, options.warm_up_rounds))
                for line in _lines(done[-1], peers):
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
    about = surroundings() | {
        "peers' PySpark": SPARK_VERSION,
        "scale": f"{options.scale:g}",
    }
    if options.json:
        document = {"environment": about, "tasks": [asdict(turns) for turns in done]}
        options.json.write_text(json.dumps(document, indent=2), encoding="utf-8")
    if options.markdown:
        rows = [turns.row(peer) for turns in done for peer in peers]
        options.markdown.write_text(markdown(rows, about, options.rounds), encoding="utf-8")
    return code


def _lines(turns: Turns, peers: Sequence[str]) -> Iterator[str]:
    for peer in peers:
        yield from lines(turns.row(peer))


def _start(
    stack: ExitStack, artifacts: SparkArtifacts, peers: Sequence[str], scale: float
) -> dict[str, CommandedClient]:
    """Everything, until each Spark has the table in memory."""
    place = Path(stack.enter_context(TemporaryDirectory(prefix="bookkeeper-spark-peers-")))
    table = generate(place / "tpch", scale, parts=2).directory
    ours = stack.enter_context(LocalCluster(bookies=3))
    is_kafka_wanted = any(name.startswith("kafka") for name in peers)
    kafka = stack.enter_context(KafkaCluster(artifacts)).servers if is_kafka_wanted else ""
    where = {"ours": ours.metadata_service_uri, "delta": str(place / "delta"), "ceiling": "-"}
    sides: dict[str, CommandedClient] = {}
    for name in ("ours", *peers):
        scratch = place / name
        scratch.mkdir()
        is_own = name in {"ours", "ceiling"}
        python = sys.executable if is_own else str(artifacts.python)
        script = str(Path(__file__).with_name("side.py"))
        jars = "" if is_own else artifacts.connector_jars
        command = [python, script, name, where.get(name, kafka), str(table), str(scratch), jars]
        client = CommandedClient(name, command, scratch / "side.log", _environment(is_own=is_own))
        sides[name] = stack.enter_context(client)
        sides[name].greet()
    return sides


def _environment(*, is_own: bool) -> dict[str, str]:
    """Of a side's process; the peers' PySpark must find none of our packages, and no other PySpark."""
    if is_own:
        variables = package_environment()
        path = os.pathsep.join((str(REPOSITORY), variables["PYTHONPATH"]))
        return variables | {"PYTHONPATH": path}
    hidden = {"PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON"}
    return {name: value for name, value in os.environ.items() if name not in hidden}
