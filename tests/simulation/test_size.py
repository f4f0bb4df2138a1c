"""The simulations keep to the product's sizes of files and functions."""

from __future__ import annotations

from pathlib import Path

from tests.sources import Source
from tests.test_tidy import size_offences


def test_no_file_or_function_of_a_simulation_is_long() -> None:
    paths = sorted(Path(__file__).parent.rglob("*.py"))
    sources = [Source(path.stem, path.name, path.read_text(encoding="utf-8")) for path in paths]

    assert [offence for source in sources for offence in size_offences(source)] == []
    assert len(sources) > 50
