"""Runs the notebooks in ``examples/`` from clean and keeps what they print: ``make notebooks``.

Each runs in a kernel of its own, started in an empty folder. What is written back is the notebook
as it is in a fresh Jupyter: no times, no machine's paths, execution counts from 1. A cell whose
output legitimately differs between two runs (a time, a port, a plot) is tagged ``varies``; all other
outputs must be what they were, and the test suite holds them to it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from spark_bookkeeper.local.environment import child_environment

ROOT = Path(__file__).resolve().parent.parent
VARIES = "varies"
CELL_TIMEOUT_S = 600


def notebooks() -> list[Path]:
    """Every notebook of the examples, sorted."""
    return sorted((ROOT / "examples").glob("*.ipynb"))


def run(path: Path, directory: Path) -> Any:
    """The notebook with the outputs of a run in ``directory``.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in _code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    # Sockets in a folder of our own: over TCP everybody on the machine could listen.
    with tempfile.TemporaryDirectory() as sockets:
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            resources={"metadata": {"path": str(directory)}},
            record_timing=False,
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
        )
        client.execute(env=child_environment())
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in _code_cells(notebook):
        cell.outputs = _joined(cell.outputs)
    return notebook


def stable_outputs(notebook: Any) -> dict[str, list[str]]:
    """Per cell, the text that every run must print; cells tagged ``varies`` are left out."""
    return {
        cell.id: [_text(output) for output in _joined(cell.outputs)]
        for cell in _code_cells(notebook)
        if VARIES not in cell.metadata.get("tags", [])
    }


def _code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _joined(outputs: list[Any]) -> list[Any]:
    """Neighbouring pieces of one stream as one: how a kernel cuts them is chance."""
    joined: list[Any] = []
    for output in outputs:
        is_more = (
            output.output_type == "stream" and joined and joined[-1].get("name") == output.name
        )
        if is_more:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return f"{output.name}: {output.text}"
    return str(output.get("data", {}).get("text/plain", output))


def main() -> int:
    """Run and rewrite all of them; 1 if a stable output changed."""
    changed = []
    for path in notebooks():
        print(f"run {path.name}", flush=True)
        before = stable_outputs(nbformat.read(path, as_version=4))
        with tempfile.TemporaryDirectory() as directory:
            ran = run(path, Path(directory))
        nbformat.write(ran, path)
        after = stable_outputs(ran)
        changed += [f"{path.name} {cell}" for cell in after if after[cell] != before.get(cell)]
    print("\n".join(f"changed: {each}" for each in changed))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
