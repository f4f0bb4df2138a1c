"""Figure: one measured workload and the baseline it is held against."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version


@dataclass(frozen=True)
class Figure:
    """``value`` and ``baseline`` in ``unit``; ``notes`` are further figures of the same run."""

    workload: str
    what: str
    value: float
    unit: str
    baseline: float | None = None
    baseline_is: str = ""
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """``value`` over ``baseline``; above 1 is better than it."""
        return self.value / self.baseline if self.baseline else None

    def as_line(self) -> str:
        """For people."""
        line = f"{self.workload:<3} {self.what:<44} {self.value:>12,.0f} {self.unit:<8}"
        if self.ratio is not None:
            line += f" {self.ratio:5.2f} x {self.baseline_is} ({self.baseline:,.0f})"
        for name, value in self.notes.items():
            line += f"  {name}={value:,.1f}"
        return line


def environment() -> dict[str, str]:
    """What a figure depends on besides the code."""
    packages = ("pyspark", "pyarrow", "grpcio", "protobuf", "numpy", "google-crc32c")
    return {
        "python": platform.python_version(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "fsync": "fdatasync before every acknowledgement",
    } | {name: version(name) for name in packages}


def document(figures: Sequence[Figure]) -> str:
    """For machines: one JSON document."""
    listed = [asdict(figure) | {"ratio": figure.ratio} for figure in figures]
    return json.dumps({"environment": environment(), "figures": listed}, indent=2)


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The value at ``share`` (0..1) of an ascending list."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]
