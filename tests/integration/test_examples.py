"""The examples run as they stand and print what they promise; the benchmarks run and find figures."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from spark_bookkeeper.local.environment import child_environment
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples").glob("*.py"))
PRINTS = "Prints:\n"
LONG = ("exactly_once_restart", "foreach_batch", "shared_log", "spark_stream")
"""Start Spark for what other tests of `make test` show with the one that runs."""
INSTALL = "In an empty environment: pip install spark-bookkeeper"


def promised(example: Path) -> str:
    """The indented lines after ``Prints:`` in the example's docstring."""
    docstring = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    assert INSTALL in docstring
    _, found, lines = docstring.partition(PRINTS)
    assert found, f"{example.name} does not say what it prints"
    return "".join(f"{line.removeprefix('    ')}\n" for line in lines.splitlines())


def example_parameter(path: Path) -> object:
    marks = [pytest.mark.spark] if "pyspark" in path.read_text(encoding="utf-8") else []
    marks += [pytest.mark.full] if path.stem in LONG else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("example", [example_parameter(path) for path in EXAMPLES])
def test_an_example_prints_what_it_promises(example: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(example)],
        cwd=tmp_path,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=seconds(280),
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == promised(example).strip()


@pytest.mark.parametrize("workload", ["p4", "p6", "p8", "p9", "p10"])
def test_a_short_benchmark_prints_and_writes_its_figures(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"

    assert main([workload, "--seconds", "0.05", "--json", str(file)]) == 0

    figures = json.loads(file.read_text())["figures"]
    assert {figure["workload"] for figure in figures} == {workload.upper()}
    assert all(figure["value"] > 0 for figure in figures)
    assert capsys.readouterr().out.count(workload.upper()) >= len(figures)
