"""``python -m benchmarks all`` or one workload: ``p1``, ``p4``, ``p5``, ``p6``, ``p7``, ``p8``, ``p8-spark``, ``p9``, ``p10``, ``p10-ledgers``, ``p10-compaction``, ``p10-optimize``, ``p10-optimize-beside``, ``p10-start``, ``p11``, ``steps``, ``tls`` (P2 runs with P1).

``python -m benchmarks peers`` is a comparison with Apache BookKeeper, ``spark-peers`` one with Delta and Kafka
through Spark; they have options of their own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.compacting import p10_compaction, p10_optimize_beside
from benchmarks.figures import Figure, document, environment
from benchmarks.healing import p11
from benchmarks.ledgers import p4, p5, p6
from benchmarks.loop_steps import loop_steps
from benchmarks.many_ledgers import p10_ledgers
from benchmarks.peers import comparing
from benchmarks.recovery import p9
from benchmarks.starting import p10_start
from benchmarks.tailing import p8


# Spark and pandas are imported only by what needs them: P4 would pay for their objects at every
# garbage collection, a tenth of its adds.
def p1_p2(scale: float) -> list[Figure]:
    from benchmarks import spark

    return spark.p1_p2(scale)


def p7(seconds: float) -> list[Figure]:
    from benchmarks import micro_batches

    return micro_batches.p7(seconds)


def p8_spark(seconds: float) -> list[Figure]:
    from benchmarks import stream_tail

    return stream_tail.p8_spark(seconds)


def p10(seconds: float) -> list[Figure]:
    from benchmarks import planning

    return planning.p10(seconds)


def p10_optimize(seconds: float) -> list[Figure]:
    from benchmarks import small_batches

    return small_batches.p10_optimize(seconds)


def tls(seconds: float) -> list[Figure]:
    from benchmarks import over_tls

    return over_tls.over_tls(seconds)


BY_SECONDS: dict[str, Callable[[float], list[Figure]]] = {
    "p4": p4,
    "p5": p5,
    "p6": p6,
    "p8": p8,
    "p8-spark": p8_spark,
    "p9": p9,
    "p10": p10,
    "p10-ledgers": p10_ledgers,
    "p10-compaction": p10_compaction,
    "p10-optimize": p10_optimize,
    "p10-optimize-beside": p10_optimize_beside,
    "p10-start": p10_start,
    "p11": p11,
    "steps": loop_steps,
    "tls": tls,
    "p7": p7,
}


def main(arguments: list[str] | None = None) -> int:
    """Runs, prints a line per figure as it is known, and a JSON document where one is asked for."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["peers"]:
        return comparing.main(given[1:])
    if given[:1] == ["spark-peers"]:
        from benchmarks.spark_peers import comparing as spark_peers

        return spark_peers.main(given[1:])
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("workload", choices=("all", "p1", *BY_SECONDS))
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H scale factor of P1 and P2")
    parser.add_argument("--seconds", type=float, default=4, help="length of P4 to P10, roughly")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")
    options = parser.parse_args(given)
    workloads: dict[str, Callable[[], list[Figure]]] = {
        name: partial(run, options.seconds) for name, run in BY_SECONDS.items()
    }
    workloads["p1"] = partial(p1_p2, options.scale)
    sys.stdout.write(" ".join(f"{key}={value}" for key, value in environment().items()) + "\n")
    figures: list[Figure] = []
    for name, run in workloads.items():
        if options.workload in (name, "all"):
            for figure in run():
                sys.stdout.write(figure.as_line() + "\n")
                sys.stdout.flush()
                figures.append(figure)
    if options.json:
        options.json.write_text(document(figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
