"""``python -m tests.mutants [--write]``: plant each directed mutant and run the test that must notice it.

All in one process, whose modules are the mutated ones; ``--write`` renews the part of docs/mutants.md.
The last line is JSON: what became of each, and of all the tests without a mutant.
"""

from __future__ import annotations

import argparse
import json
import sys

import pytest

from tests.mutants.directed import DIRECTED
from tests.mutants.page import directed_page
from tests.simulation.kit.kills import PAGE, renew

FAILED = int(pytest.ExitCode.TESTS_FAILED)
_QUIET = ("-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "--timeout=120")


def outcome_of(*tests: str) -> int:
    """Pytest's exit code."""
    return int(pytest.main([*_QUIET, *tests]))


def main() -> int:
    """Returns 0 if every mutant was noticed, and nothing without one."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="all when none is given")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    chosen = {name: DIRECTED[name] for name in arguments.names or DIRECTED}
    outcomes = {"": outcome_of(*dict.fromkeys(each.test for each in chosen.values()))}
    for name, directed in chosen.items():
        with directed.mutant.planted():
            outcomes[name] = outcome_of(directed.test)
    if arguments.write:
        renew(PAGE, directed_page())
    sys.stdout.write(f"\n{json.dumps(outcomes)}\n")
    survived = [name for name, code in outcomes.items() if name and code != FAILED]
    if survived:
        sys.stderr.write(f"not noticed: {' '.join(survived)}\n")
    return 1 if survived or outcomes[""] else 0


if __name__ == "__main__":
    sys.exit(main())
