"""``python -m benchmarks all`` or one workload: ``p1``, ``p4``, ``p5``, ``p6``, ``p7``, ``p8``, ``p8-spark``, ``p9``, ``p10`` (P2 runs with P1)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import Figure, document, environment
from benchmarks.ledgers import p4, p5, p6
from benchmarks.recovery import p9
from benchmarks.tailing import p8


def _spark(scale: float) -> list[Figure]:
    from benchmarks.spark import p1_p2

    return p1_p2(scale, os.cpu_count() or 2)


def _micro_batches(seconds: float) -> list[Figure]:
    from benchmarks.micro_batches import p7

    return p7(max(3, round(5 * seconds)))


def _planning(seconds: float) -> list[Figure]:
    from benchmarks.planning import p10

    return p10(seconds)


def _stream_tail(seconds: float) -> list[Figure]:
    from benchmarks.stream_tail import p8_spark

    return p8_spark(seconds)


def main(arguments: list[str] | None = None) -> int:
    """Runs, prints a line per figure as it is known, and a JSON document where one is asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "workload", choices=("all", "p1", "p4", "p5", "p6", "p7", "p8", "p8-spark", "p9", "p10")
    )
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H scale factor of P1 and P2")
    parser.add_argument("--seconds", type=float, default=4, help="length of P4 to P10, roughly")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")
    options = parser.parse_args(arguments)
    workloads: dict[str, Callable[[], list[Figure]]] = {
        "p4": lambda: p4(options.seconds),
        "p5": lambda: p5(options.seconds),
        "p6": lambda: p6(options.seconds),
        "p8": lambda: p8(options.seconds),
        "p8-spark": lambda: _stream_tail(options.seconds),
        "p9": lambda: p9(options.seconds),
        "p10": lambda: _planning(options.seconds),
        "p7": lambda: _micro_batches(options.seconds),
        "p1": lambda: _spark(options.scale),
    }
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
