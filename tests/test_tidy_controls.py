"""Each rule of the house catches a few lines that break it."""

from __future__ import annotations

from tests.sources import Source
from tests.test_tidy import (
    FILE_LINES_MAX,
    PER_FILE_RULES,
    Rule,
    dead_module_offences,
    per_file_rule,
    size_offences,
)


def model_with(text: str) -> Source:
    return Source("bookkeeper_metadata.model", "metadata/bookkeeper_metadata/model.py", text)


@per_file_rule
def test_each_rule_catches_what_it_is_for(rule: Rule) -> None:
    assert len(list(rule(model_with(PER_FILE_RULES[rule])))) == 1


def test_dead_modules_are_noticed() -> None:
    path = "metadata/bookkeeper_metadata/serde.py"
    user = Source("bookkeeper_metadata.serde", path, "from bookkeeper_metadata.model import X")

    assert list(dead_module_offences((model_with(""), user))) == [f"{path} is imported by nobody"]


def test_a_file_may_have_four_hundred_lines_and_no_more() -> None:
    assert not list(size_offences(model_with("\n" * FILE_LINES_MAX)))
    assert len(list(size_offences(model_with("\n" * (FILE_LINES_MAX + 1))))) == 1
