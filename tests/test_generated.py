"""Generated code is what its ``.proto`` says."""

from __future__ import annotations

from pathlib import Path

from scripts.generate_protobuf import ROOT, generate


def test_checked_in_protobuf_modules_are_what_the_compiler_makes_of_their_sources(
    tmp_path: Path,
) -> None:
    made = generate(tmp_path)

    stale = [
        str(path.relative_to(tmp_path))
        for path in made
        if path.read_text() != (ROOT / path.relative_to(tmp_path)).read_text()
    ]

    assert made
    assert stale == [], "run: python scripts/generate_protobuf.py"
