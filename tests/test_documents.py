"""The documents name files, classes and functions that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.package_page import with_absolute_links

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/**/*.md")
FOLDERS = "benchmarks|bookie_server|docs|examples|metadata|scripts|spark_bookkeeper|tests"
PATH = re.compile(rf"(?:(?:{FOLDERS})/[\w./-]*|pyspark_bookkeeper\.py|conftest\.py)")
STEP = re.compile(r"`([\w./]+\.py)`\s+`([A-Za-z_][\w.]*)`")
"""How a document names a class, function or method: its file, then its name."""


def documents(root: Path) -> dict[Path, str]:
    """The text of every document."""
    paths = sorted(path for pattern in DOCUMENTS for path in root.glob(pattern))
    return {path: path.read_text(encoding="utf-8") for path in paths}


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


def step_offences(root: Path, text: str) -> Iterator[str]:
    for file, name in STEP.findall(text):
        if not (root / file).is_file():
            yield f"there is no file {file}"
        elif name not in names_defined((root / file).read_text(encoding="utf-8")):
            yield f"{file} defines no {name}"


def test_every_file_that_a_document_names_is_there(repository: Path) -> None:
    missing = [
        f"{document}: {name}"
        for document, text in documents(repository).items()
        for name in paths_named(text)
        if not (repository / name).exists()
    ]

    assert missing == []


def test_every_link_of_a_document_leads_somewhere(repository: Path) -> None:
    astray = [
        f"{document}: {target}"
        for document, text in documents(repository).items()
        for target in targets_of(text)
        if not (document.parent / target).exists()
    ]

    assert astray == []


def test_every_anchor_of_a_link_is_a_heading(repository: Path) -> None:
    astray = []
    for document, text in documents(repository).items():
        for target, wanted in re.findall(r"\]\(([\w./-]*)#([^)\s]+)\)", text):
            page = document.parent / target if target else document
            headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            if wanted not in map(anchor, headings):
                astray.append(f"{document}: {target}#{wanted}")

    assert astray == []


def test_every_step_of_the_guided_reading_names_what_its_file_defines(repository: Path) -> None:
    text = (repository / "docs" / "reading.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\d+\. ", text, re.MULTILINE)

    assert len(STEP.findall(text)) >= len(steps) > 40
    assert list(step_offences(repository, text)) == []


def test_every_class_and_function_that_a_document_names_is_defined(repository: Path) -> None:
    astray = [
        f"{document}: {offence}"
        for document, text in documents(repository).items()
        for offence in step_offences(repository, text)
    ]

    assert astray == []


@pytest.mark.parametrize(
    ("text", "offence"),
    [
        ("`tests/test_documents.py` `no_such_thing`", "tests/test_documents.py defines no"),
        ("`tests/no_such_file.py` `test_x`", "there is no file tests/no_such_file.py"),
        ("`bookie_server/bookie.py`\n`Bookie.no_method`", "defines no Bookie.no_method"),
    ],
)
def test_a_name_that_is_gone_is_noticed(repository: Path, text: str, offence: str) -> None:
    (found,) = step_offences(repository, text)

    assert offence in found


def test_a_file_that_is_gone_is_noticed() -> None:
    text = "Read `docs/no_such_page.md` and `tests/x.py::test_y`, not `tests/*` or `a/b`."

    assert list(paths_named(text)) == ["docs/no_such_page.md", "tests/x.py"]
    assert list(targets_of("[a](docs/x.md#y) [b](https://x.y) [c](#z)")) == ["docs/x.md"]


def test_the_package_page_has_no_link_that_needs_the_repository(repository: Path) -> None:
    page = with_absolute_links((repository / "README.md").read_text("utf-8"), "https://x.y/z/")

    assert list(targets_of(page)) == []
    assert "](https://x.y/z/blob/main/docs/spark.md)" in page
    kept = "[a](#b) [c](https://d.e)"
    assert with_absolute_links(kept, "https://x.y") == kept
