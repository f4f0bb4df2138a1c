"""The notebooks run from clean, print what they were checked in with, and show no machine's paths."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

from scripts.run_notebooks import notebooks, run, stable_outputs

NOTEBOOKS = [pytest.param(path, id=path.stem) for path in notebooks()]
FOREIGN = re.compile(r"/home/|/root/|/tmp/|/var/folders|[Tt]raceback|\bWARN\b")


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # the notebook machinery's own
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_prints_again_what_it_was_checked_in_with(
    notebook: Path, tmp_path: Path
) -> None:
    checked_in = nbformat.read(notebook, as_version=4)

    ran = run(notebook, tmp_path)

    assert stable_outputs(ran) == stable_outputs(checked_in)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_is_checked_in_with_its_outputs_and_without_noise(notebook: Path) -> None:
    document = json.loads(notebook.read_text(encoding="utf-8"))
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    texts = [
        "".join(output.get("text", []) or output.get("data", {}).get("text/plain", []))
        for output in outputs
    ]

    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert [text for text in texts if FOREIGN.search(text)] == []
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1
    assert "pip install" in "".join(document["cells"][0]["source"])


def test_there_are_notebooks_to_check() -> None:
    assert len(NOTEBOOKS) == 3
