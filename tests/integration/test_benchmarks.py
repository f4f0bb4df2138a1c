"""The benchmarks run; what they measure is nobody's assertion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("workload", ["p4", "p6", "p8", "p9", "p10"])
def test_a_short_run_prints_and_writes_its_figures(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"

    assert main([workload, "--seconds", "0.05", "--json", str(file)]) == 0

    figures = json.loads(file.read_text())["figures"]
    assert {figure["workload"] for figure in figures} == {workload.upper()}
    assert all(figure["value"] > 0 for figure in figures)
    assert capsys.readouterr().out.count(workload.upper()) >= len(figures)
