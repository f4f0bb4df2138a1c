"""docs/conformance.md is what the tests prove; every rule of the protocol has one or a reason."""

from __future__ import annotations

import ast
import os
from collections import defaultdict

from tests.conformance.catalogue import NOT_APPLICABLE, NOT_YET, RULES
from tests.sources import REPOSITORY, functions, sources_of_tests


def marked_tests() -> dict[str, list[str]]:
    """By rule: the tests that name it, as ``file::test``."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in sources_of_tests():
        for function in functions(source):
            for decorator in function.decorator_list:
                if ast.unparse(decorator).startswith("pytest.mark.conformance("):
                    assert isinstance(decorator, ast.Call)
                    for rule in decorator.args:
                        found[ast.literal_eval(rule)].append(f"{source.path}::{function.name}")
    return found


def as_table(tests: dict[str, list[str]]) -> str:
    lines = [
        "# Conformance",
        "",
        "What the protocol demands, and the test that proves it here. R (recovery), F (fencing),",
        "W (writing), D (reading), S (a bookie's storage) and M (metadata) are the situations Apache",
        "BookKeeper's own suite covers; the names at the end are the actions of the TLA+ specification",
        "(BookKeeperProtocol.tla, Vanlightly/bookkeeper-tlaplus). Made from the tests: `REWRITE=1",
        "pytest tests/test_conformance.py`.",
        "",
        "| Rule | What it says | Proved by |",
        "|---|---|---|",
    ]
    for rule, text in RULES.items():
        proof = [f"`{name}`" for name in tests.get(rule, ())]
        if rule in NOT_APPLICABLE:
            proof.append(f"does not apply: {NOT_APPLICABLE[rule]}")
        if rule in NOT_YET:
            proof.append(f"not yet: {NOT_YET[rule]}")
        lines.append(f"| {rule} | {text} | {'<br>'.join(proof)} |")
    return "\n".join(lines) + "\n"


def test_every_rule_is_proved_or_says_why_it_is_not() -> None:
    tests = marked_tests()

    assert set(tests) <= set(RULES), "a test names a rule there is not"
    reasons = NOT_APPLICABLE.keys() | NOT_YET.keys()
    assert reasons <= set(RULES)
    assert NOT_APPLICABLE.keys().isdisjoint(NOT_YET)
    assert [rule for rule in RULES if rule not in tests and rule not in reasons] == []
    assert [rule for rule in NOT_APPLICABLE if rule in tests] == []


def test_the_page_is_what_the_tests_say() -> None:
    page = REPOSITORY / "docs" / "conformance.md"
    wanted = as_table(marked_tests())
    if os.environ.get("REWRITE"):
        page.write_text(wanted)

    assert page.read_text() == wanted
