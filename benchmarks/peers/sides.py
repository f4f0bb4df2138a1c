"""The two sides of a comparison and one round of it.

A round is a turn of each side and a rest after each. What a side's bookies do during the other's turn,
such as writing their caches to entry logs, is work for their own data and is counted as theirs; who
begins alternates, so neither side always pays for it with its speed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from benchmarks.peers.commands import CommandedClient
from benchmarks.peers.rounds import Figures, Round, costs, figures_of_turn, order
from benchmarks.processes import process_cpu_s, process_written_bytes

REST_S = 0.3
"""After each turn, so that what is on its way to the disk is there before the next begins."""


@dataclass(frozen=True)
class Spent:
    """What a side's processes have used so far."""

    client_s: float
    bookies_s: float
    written_bytes: int


@dataclass(frozen=True)
class Side:
    """One client process and the bookies it talks to."""

    client: CommandedClient
    bookie_pids: tuple[int, ...]

    def spent(self) -> Spent:
        """So far."""
        return Spent(
            process_cpu_s(self.client.pid),
            sum(map(process_cpu_s, self.bookie_pids)),
            sum(map(process_written_bytes, self.bookie_pids)),
        )


def run_round(sides: dict[str, Side], commands: dict[str, str], index: int) -> Round:
    """A turn of each side, and what both cost."""
    load = os.getloadavg()[0]
    before = {name: side.spent() for name, side in sides.items()}
    answers: dict[str, Figures] = {}
    for name in order(index):
        answers[name] = figures_of_turn(sides[name].client.ask(*commands[name].split()))
        time.sleep(REST_S)
    figures: dict[str, Figures] = {}
    for name, side in sides.items():
        begun, ended = before[name], side.spent()
        figures[name] = answers[name] | costs(
            answers[name]["bytes"],
            ended.client_s - begun.client_s,
            ended.bookies_s - begun.bookies_s,
            ended.written_bytes - begun.written_bytes,
        )
    return Round(order(index)[0], load, figures)
