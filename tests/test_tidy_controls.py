"""Each rule of the house catches a few lines that break it."""

from __future__ import annotations

import pytest

from tests.sources import Source
from tests.test_tidy import (
    FILE_LINES_MAX,
    FOREIGN_PATH,
    PER_FILE_RULES,
    Rule,
    dead_module_offences,
    docstring_offences,
    foreign_path_offences,
    layering_offences,
    naming_offences,
    page_offences,
    parameter_offences,
    purity_offences,
    rule_name,
    size_offences,
)

BREAKS: dict[Rule, str] = {
    layering_offences: "from spark_bookkeeper.ledger import client\n",
    purity_offences: "import time\n",
    size_offences: "def long():\n" + "    x = 1\n" * 61,
    parameter_offences: "def many(a, b, c, d, e, f): ...\n",
    naming_offences: "class LedgerManager: ...\n",
    docstring_offences: '"""Module."""\ndef public(): ...\n',
    foreign_path_offences: f'x = "{FOREIGN_PATH}main"\n',
    page_offences: '"""See docs/a.md."""\nraise ValueError(f"{1}, see docs/options.md")\n',
}


@pytest.mark.parametrize("rule", PER_FILE_RULES, ids=rule_name)
def test_each_rule_catches_what_it_is_for(rule: Rule) -> None:
    offender = Source(
        "bookkeeper_metadata.model", "metadata/bookkeeper_metadata/model.py", BREAKS[rule]
    )

    assert len(list(rule(offender))) == 1


def test_dead_modules_are_noticed() -> None:
    used = Source("bookkeeper_metadata.model", "metadata/bookkeeper_metadata/model.py", "")
    user = Source(
        "bookkeeper_metadata.serde",
        "metadata/bookkeeper_metadata/serde.py",
        "from bookkeeper_metadata.model import X\n",
    )

    assert list(dead_module_offences((used, user))) == [
        "metadata/bookkeeper_metadata/serde.py is imported by nobody"
    ]


def test_a_file_may_have_four_hundred_lines_and_no_more() -> None:
    just_right = Source(
        "bookkeeper_metadata.model", "metadata/bookkeeper_metadata/model.py", "\n" * FILE_LINES_MAX
    )
    too_long = Source(
        "bookkeeper_metadata.model",
        "metadata/bookkeeper_metadata/model.py",
        "\n" * (FILE_LINES_MAX + 1),
    )

    assert not list(size_offences(just_right))
    assert len(list(size_offences(too_long))) == 1
