"""The README says what is so: its options, its files, its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper_metadata.errors import BookKeeperError
from spark_bookkeeper.cli import commands
from spark_bookkeeper.datasource.errors import report
from spark_bookkeeper.datasource.explanations import EXPLANATIONS, errors_document
from spark_bookkeeper.datasource.options.table import option_table

DOCUMENTS = (
    "README.md",
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

    (table,) = re.findall(r"<!-- options -->\n(.*?)\n<!-- /options -->", text, re.DOTALL)

    assert table == option_table()


def test_the_document_of_errors_is_the_codes(repository: Path) -> None:
    text = (repository / "docs" / "errors.md").read_text(encoding="utf-8")

    assert text == errors_document(), "run: python -m spark_bookkeeper.datasource.explanations"


def test_every_error_that_reaches_spark_is_explained_and_no_other(repository: Path) -> None:
    modules = (
        "bookkeeper_metadata.errors",
        "spark_bookkeeper.log.errors",
        "spark_bookkeeper.datasource.errors",
    )
    names = {kind.name for kind in _subclasses(BookKeeperError) if kind.__module__ in modules}
    source = (repository / "spark_bookkeeper/datasource/errors.py").read_text(encoding="utf-8")
    names |= set(re.findall(r'SourceError\(\s*"(BK_\w+)"', source))

    assert set(EXPLANATIONS) == names | {BookKeeperError.name}
    for name, found in EXPLANATIONS.items():
        for text in (found.cause, found.safety, found.action):
            assert re.fullmatch(r"[A-Z`].*\.", text), f"{name}: a sentence, please: {text}"


def test_an_error_tells_spark_its_name_whether_data_is_safe_and_what_to_do() -> None:
    class Lost(BookKeeperError):
        name = "BK_ENTRY_UNREADABLE"

        def __str__(self) -> str:
            return "no replica returned the entry. ledger_id=7"

    class Said(BookKeeperError):
        name = "BK_LOG_CONFLICT"

    assert str(report(Lost())) == (
        "[BK_ENTRY_UNREADABLE] no replica returned the entry. ledger_id=7. Nothing is known to be "
        "lost. Bring the ledger's bookies back, and read again."
    )
    assert str(report(Said("run it again. log=orders"))) == (
        "[BK_LOG_CONFLICT] run it again. log=orders"
    )


def _subclasses(of: type[BookKeeperError]) -> Iterator[type[BookKeeperError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _subclasses(kind)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_named_in_the_documents_exists(repository: Path, document: str) -> None:
    text = (repository / document).read_text(encoding="utf-8")

    for named in set(re.findall(r"`(tests/[\w./]+)`", text)):
        assert (repository / named).exists(), f"{document} names {named}"
    tests = "".join(path.read_text(encoding="utf-8") for path in repository.glob("tests/**/*.py"))
    for named in set(re.findall(r"`(test_\w+)`", text)):
        assert f"def {named}(" in tests, f"{document} names {named}"
    for target in set(re.findall(r"\]\(([\w./]+)(?:#[\w-]+)?\)", text)):
        assert (repository / document).parent.joinpath(target).exists(), f"{document}: {target}"


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
