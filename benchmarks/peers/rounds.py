"""Alternated rounds and what they say: who begins, ratios of a round, their median and worst.

A machine's speed drifts by half within an hour, so a figure of ours is divided by the peer's of the
same round and by nothing else; the median of these ratios is the result and the worst stands beside
it. Who begins changes with each round: the second may find the disk busy with what the first left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

OURS = "ours"
PEER = "peer"

Figures = dict[str, float]


@dataclass(frozen=True)
class Measure:
    """Something that is measured of both sides."""

    key: str
    """Of a turn's figures."""
    label: str
    unit: str
    is_rate: bool = False
    """More is better; else less is."""
    is_lumpy: bool = False
    """Work of the background comes in lumps, some rounds after its cause: what counts is the mean by
    bytes over all rounds, and not the median of rounds."""


@dataclass(frozen=True)
class Round:
    """One turn of each side, one after the other."""

    began: str
    """Who had the first turn."""
    load: float
    """Load average of the last minute when it began."""
    figures: dict[str, Figures]
    """Of each side, by the keys of measures."""


@dataclass(frozen=True)
class Range:
    """Of a side's figures in all rounds."""

    middle: float
    """Their median, or their mean by bytes where the measure is lumpy."""
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """One measure over all rounds. A ratio is ours over the peer's: above 1 is better for rates only."""

    measure: Measure
    ours: Range
    peer: Range
    ratio: float
    """The median of the rounds' ratios; where the measure is lumpy, the ratio of the means."""
    ratio_worst: float
    """Of a single round."""


def order(index: int) -> tuple[str, str]:
    """Whose turn it is first and second in round ``index``, from 0."""
    return (OURS, PEER) if index % 2 == 0 else (PEER, OURS)


def compare(measure: Measure, rounds: Sequence[Round]) -> Comparison | None:
    """Over the rounds in which both sides have a figure above 0; ``None``: there is no such round."""
    kept = [
        each.figures
        for each in rounds
        if all(each.figures[side].get(measure.key, 0) > 0 for side in (OURS, PEER))
    ]
    if not kept:
        return None
    ours, peer = (_range(measure, [figures[side] for figures in kept]) for side in (OURS, PEER))
    ratios = [figures[OURS][measure.key] / figures[PEER][measure.key] for figures in kept]
    return Comparison(
        measure,
        ours,
        peer,
        ours.middle / peer.middle if measure.is_lumpy else median(ratios),
        min(ratios) if measure.is_rate else max(ratios),
    )


def _range(measure: Measure, turns: Sequence[Figures]) -> Range:
    values = [turn[measure.key] for turn in turns]
    middle = median(values)
    if measure.is_lumpy:
        middle = sum(turn[measure.key] * turn["bytes"] for turn in turns)
        middle /= sum(turn["bytes"] for turn in turns)
    return Range(middle, min(values), max(values))


def figures_of_turn(answer: Figures) -> Figures:
    """What a client answered, with the rates that follow from it."""
    seconds = answer["seconds"]
    rates = {"per_s": answer["count"] / seconds, "mb_per_s": answer["bytes"] / seconds / 1e6}
    return answer | rates


def costs(user_bytes: float, client_s: float, bookies_s: float, written_bytes: float) -> Figures:
    """What each byte of user data cost a side: CPU by MiB, and bytes that its bookies wrote."""
    if not user_bytes:
        return {}
    mib = user_bytes / 2**20
    return {
        "client_ms_per_mib": client_s * 1e3 / mib,
        "bookies_ms_per_mib": bookies_s * 1e3 / mib,
        "written_per_byte": written_bytes / user_bytes,
    }
