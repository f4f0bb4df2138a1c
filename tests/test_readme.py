"""The README says what is so: its options, its files, its commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.generate_documents import errors_document, with_table
from spark_bookkeeper.cli import commands

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/reading.md",
    "docs/architecture.md",
    "docs/reliability.md",
    "docs/performance.md",
    "docs/spark.md",
    "docs/kafka.md",
    "docs/options.md",
    "docs/failures.md",
)


def test_the_option_table_is_the_codes(repository: Path) -> None:
    text = (repository / "docs" / "options.md").read_text(encoding="utf-8")

    assert "<!-- options -->" in text
    assert text == with_table(text), "run: python -m scripts.generate_documents"


def test_the_document_of_errors_is_the_codes(repository: Path) -> None:
    text = (repository / "docs" / "errors.md").read_text(encoding="utf-8")

    assert text == errors_document(), "run: python -m scripts.generate_documents"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_named_in_the_documents_exists(repository: Path, document: str) -> None:
    text = (repository / document).read_text(encoding="utf-8")

    tests = "".join(path.read_text(encoding="utf-8") for path in repository.glob("tests/**/*.py"))
    for named in set(re.findall(r"`(test_\w+)`", text)):
        assert f"def {named}(" in tests, f"{document} names {named}"


def test_every_command_in_the_readme_exists(repository: Path) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")

    for group, command in set(re.findall(r"`bookkeeper (\w+) (\w+)", text)):
        found = commands.commands[group]
        assert command in getattr(found, "commands", {}), f"bookkeeper {group} {command}"


def test_every_make_target_in_the_readme_exists(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    text = (repository / "README.md").read_text(encoding="utf-8")

    for target in set(re.findall(r"`?make (\w+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
