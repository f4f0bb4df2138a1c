"""The comparison as lines for a terminal and as Markdown tables for a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.rounds import Comparison, Range


@dataclass(frozen=True)
class Row:
    """One workload's outcome."""

    title: str
    speeds: tuple[Comparison, ...]
    costs: tuple[Comparison, ...]
    failures: tuple[str, ...] = ()
    """Why rounds were left out."""

    @property
    def heading(self) -> str:
        """The title, with how many rounds do not count."""
        return f"{self.title} ({len(self.failures)} failed)" if self.failures else self.title


def number(value: float) -> str:
    """Three digits that count, thousands as k."""
    if value >= 10_000:
        return f"{value / 1_000:.0f} k"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def span(values: Range, unit: str) -> str:
    """``middle (low-high) unit``."""
    within = f"{number(values.low)}-{number(values.high)}"
    return f"{number(values.middle)} ({within}) {unit}"


def ratio(compared: Comparison) -> str:
    """``ratio (worst)``."""
    return f"{compared.ratio:.2f} ({compared.ratio_worst:.2f})"


def lines(row: Row) -> list[str]:
    """For people who wait: a line a measure."""
    listed = [row.heading]
    for compared in (*row.speeds, *row.costs):
        measure = compared.measure
        name = measure.label or "rate"
        ours, peer = span(compared.ours, measure.unit), span(compared.peer, measure.unit)
        better = "more" if measure.is_rate else "less"
        listed.append(
            f"    {name:<20} ours {ours:<30} peer {peer:<30} "
            f"ratio {ratio(compared)}, {better} is better"
        )
    return listed


def markdown(rows: Sequence[Row], environment: Mapping[str, str], rounds: int) -> str:
    """Two tables, of speed and of cost, under a paragraph that says how they came about."""
    about = ", ".join(f"{name} {value}" for name, value in environment.items())
    return "\n".join(
        (
            f"Median of {rounds} alternated rounds, both clusters up, with the range in brackets. The ratio is "
            "ours over the peer's: the median of the rounds' ratios, and the worst in brackets; above 1 is better "
            "for rates, below 1 for times, CPU and bytes written. What bookies wrote and their CPU, for three copies of "
            "each byte, are means over all rounds: much of it is done some rounds later.",
            "",
            f"{about}.",
            "",
            *_table("speed", [(row.heading, row.speeds) for row in rows]),
            "",
            *_table("cost", [(row.heading, row.costs) for row in rows]),
            "",
        )
    )


def _table(what: str, rows: Sequence[tuple[str, Sequence[Comparison]]]) -> list[str]:
    listed = [f"| {what} | ours | peer | ratio |", "|---|---|---|---|"]
    for title, comparisons in rows:
        for compared in comparisons:
            measure = compared.measure
            cells = (
                f"{title}, {measure.label}" if measure.label else title,
                span(compared.ours, measure.unit),
                span(compared.peer, measure.unit),
                ratio(compared),
            )
            listed.append(f"| {' | '.join(cells)} |")
        if not comparisons:
            listed.append(f"| {title} | - | - | - |")
    return listed
