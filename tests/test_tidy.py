"""The rules of the house that a machine can check; each failure names the offender and the rule.

Layers import one way only, decisions stay free of clocks, chance and I/O, files and functions stay
small, every public thing says what it is for, and nothing lies around unused. The rules are
functions over parsed source, so that each has a negative control: a few lines that break it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("metadata", "bookie_server", "spark_bookkeeper")
TOP_LEVEL_MODULES = ("pyspark_bookkeeper.py",)

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
POSITIONAL_PARAMETERS_MAX = 5

LAYERS: tuple[tuple[str, ...], ...] = (
    ("metadata",),
    ("bookie_server",),
    ("spark_bookkeeper.ledger",),
    ("spark_bookkeeper.log",),
    ("spark_bookkeeper.aio", "spark_bookkeeper.bookkeeper"),
    ("spark_bookkeeper.datasource",),
    ("spark_bookkeeper.local", "spark_bookkeeper.cli", "spark_bookkeeper.demo"),
)
"""Lowest first. A module may import its own layer and those below; what is not listed is free."""

PURE = (
    "bookie_server.core",
    "bookie_server.wire",
    "metadata.errors",
    "metadata.invariant",
    "metadata.model",
    "metadata.paths",
    "metadata.serde",
    "spark_bookkeeper.ledger.protocol",
    "spark_bookkeeper.log.model",
    "spark_bookkeeper.log.paths",
)
"""Where decisions are made: values in, values out."""

IMPURE_IMPORTS = {"asyncio", "grpc", "kazoo", "os", "random", "socket", "threading", "time"}

BANNED_WORDS = {"base", "data", "helper", "helpers", "manager", "util", "utils"}
"""As a whole word of a module's or a class's name: they say nothing."""

ENTRY_POINTS = {
    "bookie_server.__main__",
    "spark_bookkeeper.cli.__main__",
    "spark_bookkeeper.aio",  # public faces: imported by users
    "spark_bookkeeper.errors",
    "spark_bookkeeper.datasource.listener",
    "pyspark_bookkeeper",
    "metadata.memory",  # in-memory twins, for tests: ours and our users'
    "bookie_server.client.local",
}
"""Modules that are used without another module's import."""

FOREIGN_PATH = "/" + "work/"
"""A path of the machine this was written on has no place in the project."""


@dataclass(frozen=True)
class Source:
    """One module: its dotted name, path and parsed text."""

    name: str
    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)


@cache
def sources() -> tuple[Source, ...]:
    """Every module we wrote; generated protobuf code is excluded."""
    paths = [REPOSITORY / name for name in TOP_LEVEL_MODULES]
    for package in PACKAGES:
        paths += sorted((REPOSITORY / package).rglob("*.py"))
    found = []
    for path in paths:
        if path.exists() and not path.stem.endswith(("_pb2", "_pb2_grpc")):
            relative = path.relative_to(REPOSITORY)
            name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            found.append(Source(name, str(relative), path.read_text(encoding="utf-8")))
    return tuple(found)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported; ``from a import b`` yields ``a.b``."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def layer_of(module: str) -> int | None:
    for index, packages in enumerate(LAYERS):
        if any(is_within(module, package) for package in packages):
            return index
    return None


def layering_offences(source: Source) -> Iterator[str]:
    own = layer_of(source.name)
    for line, imported in imports(source):
        if imported.startswith("."):
            yield f"{source.path}:{line} relative import; name the whole path"
        other = layer_of(imported)
        if own is not None and other is not None and other > own:
            yield f"{source.path}:{line} imports {imported} from a higher layer"


def purity_offences(source: Source) -> Iterator[str]:
    if any(is_within(source.name, package) for package in PURE):
        for line, imported in imports(source):
            if imported.split(".")[0] in IMPURE_IMPORTS:
                yield f"{source.path}:{line} a decision module imports {imported}"


def size_offences(source: Source) -> Iterator[str]:
    line_count = source.text.count("\n")
    if line_count > FILE_LINES_MAX:
        yield f"{source.path} has {line_count} lines, at most {FILE_LINES_MAX}"
    for function in functions(source):
        length = body_lines(function)
        if length > FUNCTION_LINES_MAX:
            yield (
                f"{source.path}:{function.lineno} {function.name} has {length} lines, "
                f"at most {FUNCTION_LINES_MAX}"
            )


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the last."""
    body = function.body
    if ast.get_docstring(function, clean=False) is not None:
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def parameter_offences(source: Source) -> Iterator[str]:
    for function in functions(source):
        arguments = [*function.args.posonlyargs, *function.args.args]
        positional = [each.arg for each in arguments if each.arg not in ("self", "cls")]
        if len(positional) > POSITIONAL_PARAMETERS_MAX:
            yield (
                f"{source.path}:{function.lineno} {function.name} takes {len(positional)} "
                f"positional parameters, at most {POSITIONAL_PARAMETERS_MAX}"
            )


def naming_offences(source: Source) -> Iterator[str]:
    for word in source.name.rsplit(".", 1)[-1].split("_"):
        if word in BANNED_WORDS:
            yield f"{source.path} is named {word}, which says nothing"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            for word in re.findall(r"[A-Z][a-z]*", node.name):
                # Spark's own words: its classes are called DataSource, and ours are kinds of it.
                is_ours = "DataSource" not in node.name and "DataLoss" not in node.name
                if word.lower() in BANNED_WORDS and is_ours:
                    yield f"{source.path}:{node.lineno} class {node.name}: {word} says nothing"


def docstring_offences(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree) and source.text.strip():
        yield f"{source.path} does not say what the module decides"
    yield from _undocumented(source, source.tree)


def _undocumented(source: Source, parent: ast.Module | ast.ClassDef) -> Iterator[str]:
    """Public classes and functions without a docstring; properties may speak by their name."""
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_"):
            continue
        is_overriding = isinstance(parent, ast.ClassDef) and parent.bases
        is_property = "property" in {ast.unparse(each) for each in node.decorator_list}
        is_class = isinstance(node, ast.ClassDef)
        if not ast.get_docstring(node) and not is_property and (is_class or not is_overriding):
            yield f"{source.path}:{node.lineno} {node.name} has no docstring"
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(source, node)


def dead_module_offences(all_sources: tuple[Source, ...]) -> Iterator[str]:
    imported = {name for source in all_sources for _, name in imports(source)}
    # Something run by its path or by ``-m`` is named in a string.
    texts = [source.text for source in all_sources]
    for source in all_sources:
        if source.name in ENTRY_POINTS or source.path.endswith("__init__.py"):
            continue
        is_imported = any(is_within(name, source.name) for name in imported)
        is_run = any(f'"{source.name}"' in text for text in texts)
        if not is_imported and not is_run:
            yield f"{source.path} is imported by nobody"


def foreign_path_offences(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if FOREIGN_PATH in line:
            yield f"{source.path}:{number} mentions {FOREIGN_PATH}"


Rule = Callable[[Source], Iterator[str]]

PER_FILE_RULES: tuple[Rule, ...] = (
    layering_offences,
    purity_offences,
    size_offences,
    parameter_offences,
    naming_offences,
    docstring_offences,
    foreign_path_offences,
)


def rule_name(rule: Rule) -> str:
    return rule.__name__


@pytest.mark.parametrize("rule", PER_FILE_RULES, ids=rule_name)
def test_no_module_breaks_the_rule(rule: Rule) -> None:
    offences = [offence for source in sources() for offence in rule(source)]

    assert not offences, "\n" + "\n".join(offences)


def test_every_module_is_used() -> None:
    assert not (offences := list(dead_module_offences(sources()))), "\n" + "\n".join(offences)


def test_tests_and_documents_name_no_path_of_another_machine() -> None:
    suffixes = {".py", ".md", ".toml", ".txt", ".sh", ".ipynb", ""}
    roots = [REPOSITORY / name for name in ("tests", "docs", "examples", "benchmarks", "scripts")]
    files = [path for root in roots for path in root.rglob("*")]
    files += [path for path in REPOSITORY.iterdir() if not path.name.startswith(".")]
    texts = [path for path in files if path.is_file() and path.suffix in suffixes]

    offenders = [
        str(path.relative_to(REPOSITORY))
        for path in texts
        if FOREIGN_PATH in path.read_text(encoding="utf-8", errors="replace")
    ]

    assert texts
    assert not offenders


def test_public_packages_ship_their_types() -> None:
    assert [name for name in PACKAGES if not (REPOSITORY / name / "py.typed").exists()] == []


BREAKS: dict[Rule, str] = {
    layering_offences: "from spark_bookkeeper.ledger import client\n",
    purity_offences: "import time\n",
    size_offences: "def long():\n" + "    x = 1\n" * 61,
    parameter_offences: "def many(a, b, c, d, e, f): ...\n",
    naming_offences: "class LedgerManager: ...\n",
    docstring_offences: '"""Module."""\ndef public(): ...\n',
    foreign_path_offences: f'x = "{FOREIGN_PATH}main"\n',
}


@pytest.mark.parametrize("rule", PER_FILE_RULES, ids=rule_name)
def test_each_rule_catches_what_it_is_for(rule: Rule) -> None:
    offender = Source("metadata.model", "metadata/model.py", BREAKS[rule])

    assert len(list(rule(offender))) == 1


def test_dead_modules_are_noticed() -> None:
    used = Source("metadata.model", "metadata/model.py", "")
    user = Source("metadata.serde", "metadata/serde.py", "from metadata.model import X\n")

    assert list(dead_module_offences((used, user))) == ["metadata/serde.py is imported by nobody"]


def test_a_file_may_have_four_hundred_lines_and_no_more() -> None:
    just_right = Source("metadata.model", "metadata/model.py", "\n" * FILE_LINES_MAX)
    too_long = Source("metadata.model", "metadata/model.py", "\n" * (FILE_LINES_MAX + 1))

    assert not list(size_offences(just_right))
    assert len(list(size_offences(too_long))) == 1
