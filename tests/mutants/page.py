"""The directed mutants' part of docs/mutants.md."""

from __future__ import annotations

from tests.mutants.directed import DIRECTED

_PREFACE = """# Mutants of what directed tests show

Bugs of a bookie's identity, of limbo, held places, freshness, LAC limits, admission, deletion, garbage collection and compaction, each
with the test that must fail when it is planted. Made by `python -m tests.mutants --write`; `make test`
plants each of them again.

| mutant | the bug it stands for | noticed by |
|---|---|---|
"""


def directed_page() -> str:
    """The whole part."""
    rows = (
        f"| `{name}` | {each.mutant.stands_for} | `{each.test}` |\n"
        for name, each in sorted(DIRECTED.items())
    )
    return _PREFACE + "".join(rows)
