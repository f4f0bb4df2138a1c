"""Every mutant of every tier, and whether what it replaces is still what it was written against.

``python -m tests.simulation.mutants`` lists product code that was edited since a mutant replaced it by a
copy. Read these mutants again, bring them up to date, then ``--renew`` writes the new hashes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.simulation.commits.mutants import MUTANTS as COMMITS
from tests.simulation.kit.patching import Mutant, SourceChangedError
from tests.simulation.rules.mutants import MUTANTS as RULES
from tests.simulation.world.blind_mutants import BLIND
from tests.simulation.world.mutants import MUTANTS as WORLD

FAMILIES: Mapping[str, Mapping[str, Mutant]] = {
    "rules": RULES,
    "world": WORLD,
    "world, planted blindly": BLIND,
    "commits": COMMITS,
}


def stale() -> Iterable[tuple[str, SourceChangedError]]:
    """Mutants that replace code edited since, each with what was found."""
    for family, mutants in FAMILIES.items():
        for mutant in mutants.values():
            for error in mutant.changed_sources():
                yield f"{family}: {mutant.name}", error


def renew(paths: Iterable[Path], new: Mapping[str, str]) -> None:
    """Put new hashes in the place of old ones, wherever a replacement names one."""
    for path in paths:
        text = renewed = path.read_text(encoding="utf-8")
        for old, now in new.items():
            renewed = renewed.replace(f'source="{old}"', f'source="{now}"')
        if renewed != text:
            path.write_text(renewed, encoding="utf-8")


def main() -> int:
    """Returns 1 when a source changed and was not renewed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("--renew", action="store_true", help="write the new hashes")
    renews = parser.parse_args().renew
    found = list(stale())
    for name, error in found:
        sys.stdout.write(f"{name}: {error}\n")
    if renews:
        new = {error.old: error.new for _, error in found if error.old}
        renew(Path(__file__).parent.rglob("*mutants*.py"), new)
        return int(any(not error.old for _, error in found))
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
