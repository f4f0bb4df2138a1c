"""Golden transcripts: the order of effects where the order is the point.

``REWRITE=1 pytest tests/simulation/test_transcripts.py`` writes them anew; read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.simulation.transcripts.conversation import retell

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "transcripts"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_machines_answer_as_the_transcript_says(path: Path) -> None:
    golden = path.read_text(encoding="utf-8")

    now = retell(golden)

    if os.environ.get("REWRITE"):
        path.write_text(now, encoding="utf-8")
    else:
        assert now == golden


def test_a_changed_answer_is_noticed() -> None:
    golden = retell("> writer 3/3/2\n> append a\n> answer b0 0 OK\n> answer b1 0 OK\n")

    assert "acknowledge up to 0" in golden
    assert retell(golden) == golden
    assert retell(golden.replace("acknowledge up to 0", "nothing")) == golden


def test_an_answer_nobody_waits_for_is_a_mistake_of_the_transcript() -> None:
    with pytest.raises(AssertionError, match="nobody waits for lac of b0"):
        retell("> recovery 3/3/2\n> begin\n> lac b0 1\n> lac b0 1\n")
