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


def model_with(text: str) -> Source:
    return Source("bookkeeper_metadata.model", "metadata/bookkeeper_metadata/model.py", text)


@pytest.mark.parametrize("rule", PER_FILE_RULES, ids=rule_name)
def test_each_rule_catches_what_it_is_for(rule: Rule) -> None:
    assert len(list(rule(model_with(BREAKS[rule])))) == 1


def test_dead_modules_are_noticed() -> None:
    path, imports = (
        "metadata/bookkeeper_metadata/serde.py",
        "from bookkeeper_metadata.model import X",
    )
    user = Source("bookkeeper_metadata.serde", path, imports)

    assert list(dead_module_offences((model_with(""), user))) == [f"{path} is imported by nobody"]


def test_a_file_may_have_four_hundred_lines_and_no_more() -> None:
    assert not list(size_offences(model_with("\n" * FILE_LINES_MAX)))
    assert len(list(size_offences(model_with("\n" * (FILE_LINES_MAX + 1))))) == 1
