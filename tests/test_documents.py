"""What documents name is there, and what they say of options, errors and commands is the code's."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.generate_documents import errors_document, limits_document, with_table
from scripts.package_page import with_absolute_links
from spark_bookkeeper.cli import commands
from tests.sources import REPOSITORY, sources_of_tests

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/**/*.md")
FOLDERS = "benchmarks|bookie_server|docs|examples|metadata|scripts|spark_bookkeeper|tests"
PATH = re.compile(rf"(?:(?:{FOLDERS})/[\w./-]*|pyspark_bookkeeper\.py|conftest\.py)")
STEP = re.compile(r"`([\w./]+\.py)`\s+`([A-Za-z_][\w.]*)`")
"""How a document names a class, function or method: its file, then its name."""
TEST = re.compile(r"`([\w./]+\.py)::([A-Za-z_][\w:]*)(?:\[[^`]*\])?`")
"""How it names a test: as pytest does."""


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def paths_named(text: str) -> Iterator[str]:
    """Everything in backquotes that is a path from the repository's root; no patterns."""
    for quoted in re.findall(r"`([^`\n]+)`", text):
        name = quoted.partition("::")[0]
        if PATH.fullmatch(name):
            yield name


def targets_of(text: str) -> Iterator[str]:
    """Where links lead that stay in the repository, without their anchors."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target) and not target.startswith("#"):
            yield target.partition("#")[0]


def anchor(heading: str) -> str:
    """The anchor a forge gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def names_defined(source: str) -> set[str]:
    """Classes and functions of a module, methods as ``Class.method``."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{each.name}" for each in inner}
    return found


def missing_files(_: Path, text: str) -> Iterator[str]:
    yield from (name for name in paths_named(text) if not (REPOSITORY / name).exists())


def links_astray(document: Path, text: str) -> Iterator[str]:
    yield from (link for link in targets_of(text) if not (document.parent / link).exists())


def anchors_astray(document: Path, text: str) -> Iterator[str]:
    for target, wanted in re.findall(r"\]\(([\w./-]*)#([^)\s]+)\)", text):
        page = document.parent / target if target else document
        headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        if wanted not in map(anchor, headings):
            yield f"{target}#{wanted}"


def names_undefined(_: Path, text: str) -> Iterator[str]:
    for file, name in STEP.findall(text):
        if not (REPOSITORY / file).is_file():
            yield f"there is no file {file}"
        elif name not in names_defined(text_of(file)):
            yield f"{file} defines no {name}"


def missing_tests(_: Path, text: str) -> Iterator[str]:
    for name in set(re.findall(r"`(test_\w+)`", text)):
        if not any(f"def {name}(" in source.text for source in sources_of_tests()):
            yield name


def names_of_tests_astray(_: Path, text: str) -> Iterator[str]:
    for file, name in TEST.findall(text):
        if not (REPOSITORY / file).is_file():
            yield f"there is no file {file}"
        elif not any(
            f".{each}".endswith(f".{name.replace('::', '.')}")
            for each in names_defined(text_of(file))
        ):
            yield f"{file} has no test {name}"


def missing_commands(_: Path, text: str) -> Iterator[str]:
    # "bookkeeper does not support …" is a message of Spark's.
    for group, command in set(re.findall(r"`bookkeeper (?!does not)(\w+) (\w[\w-]*)", text)):
        if command not in getattr(commands.commands.get(group), "commands", {}):
            yield f"bookkeeper {group} {command}"


def modules_not_run(_: Path, text: str) -> Iterator[str]:
    for name in sorted(set(re.findall(rf"python -m ((?:{FOLDERS})[\w.]*)", text))):
        package, module = (name.replace(".", "/") + end for end in ("/__main__.py", ".py"))
        runs = (REPOSITORY / module).is_file() and 'if __name__ == "__main__"' in text_of(module)
        if not runs and not (REPOSITORY / package).is_file():
            yield f"python -m {name}"


Rule = Callable[[Path, str], Iterator[str]]
RULES: tuple[Rule, ...] = (
    missing_files,
    links_astray,
    anchors_astray,
    names_undefined,
    missing_tests,
    names_of_tests_astray,
    missing_commands,
    modules_not_run,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_document_breaks_the_rule(rule: Rule) -> None:
    documents = {path for pattern in DOCUMENTS for path in REPOSITORY.glob(pattern)}
    offences = [
        f"{document}: {offence}"
        for document in sorted(documents)
        for offence in rule(document, document.read_text(encoding="utf-8"))
    ]

    assert documents
    assert offences == []


def test_every_step_of_the_guided_reading_names_what_to_read() -> None:
    text = text_of("docs/reading.md")

    assert len(STEP.findall(text)) >= len(re.findall(r"^\d+\. ", text, re.MULTILINE)) > 40


@pytest.mark.parametrize(
    ("text", "offence"),
    [
        ("`tests/test_documents.py` `no_such_thing`", "tests/test_documents.py defines no"),
        ("`tests/no_such_file.py` `test_x`", "there is no file tests/no_such_file.py"),
        ("`bookie_server/bookie.py`\n`Bookie.no_method`", "defines no Bookie.no_method"),
    ],
)
def test_a_name_that_is_gone_is_noticed(text: str, offence: str) -> None:
    (found,) = names_undefined(REPOSITORY, text)

    assert offence in found


@pytest.mark.parametrize(
    ("text", "offence"),
    [
        ("`tests/test_documents.py::test_gone`", "tests/test_documents.py has no test test_gone"),
        ("`tests/test_documents.py::test_gone[a b]`", "has no test test_gone"),
        ("`tests/integration/test_cli.py::TestLocal::test_gone`", "has no test TestLocal::test_go"),
        ("`tests/no_such_file.py::test_x`", "there is no file tests/no_such_file.py"),
    ],
)
def test_a_test_that_is_gone_is_noticed(text: str, offence: str) -> None:
    (found,) = names_of_tests_astray(REPOSITORY, text)

    assert offence in found


def test_a_module_that_does_nothing_when_run_is_noticed() -> None:
    text = (
        "`python -m tests.sources`, `python -m tests.gone`, `python -m scripts.generate_documents`"
    )

    assert [*modules_not_run(REPOSITORY, text)] == [
        "python -m tests.gone",
        "python -m tests.sources",
    ]


def test_every_row_of_what_is_shown_names_a_test_or_says_why_not() -> None:
    _, _, section = text_of("docs/reliability.md").partition("\n## Never wrong, never stuck\n")
    section, _, _ = section.partition("\n## ")
    rows = re.findall(r"^\|(?! what |---)(.*)\|$", section, re.MULTILINE)

    assert len(rows) > 80
    for row in rows:
        _, tests, why_not = map(str.strip, row.split("|"))
        assert TEST.search(tests) or why_not, row


def test_a_file_that_is_gone_is_noticed() -> None:
    text = "Read `docs/no_such_page.md` and `tests/x.py::test_y`, not `tests/*` or `a/b`."

    assert list(paths_named(text)) == ["docs/no_such_page.md", "tests/x.py"]
    assert list(targets_of("[a](docs/x.md#y) [b](https://x.y) [c](#z)")) == ["docs/x.md"]


def test_the_package_page_has_no_link_that_needs_the_repository() -> None:
    page = with_absolute_links(text_of("README.md"), "https://x.y/z/")

    assert list(targets_of(page)) == []
    assert "](https://x.y/z/blob/main/docs/spark.md)" in page
    kept = "[a](#b) [c](https://d.e)"
    assert with_absolute_links(kept, "https://x.y") == kept


def test_the_option_table_is_the_codes() -> None:
    text = text_of("docs/options.md")

    assert "<!-- options -->" in text
    assert text == with_table(text), "run: python -m scripts.generate_documents"


def test_the_document_of_errors_is_the_codes() -> None:
    stated = text_of("docs/errors.md")

    assert stated == errors_document(), "run: python -m scripts.generate_documents"


def test_the_document_of_limits_is_the_codes() -> None:
    stated = text_of("docs/limits.md")

    assert stated == limits_document(), "run: python -m scripts.generate_documents"


def test_every_make_target_in_the_readme_exists() -> None:
    for target in set(re.findall(r"`?make (\w+)", text_of("README.md"))):
        assert re.search(rf"^{target}:", text_of("Makefile"), re.MULTILINE), target
