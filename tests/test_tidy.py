"""The rules of the house that a machine can check; each failure names the offender and the rule.

Layers import one way only, decisions stay free of clocks, chance and I/O, files and functions stay
small, every public thing says what it is for, and nothing lies around unused. The rules are
functions over parsed source, so that each has a negative control: a few lines that break it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.sources import (
    PACKAGES,
    REPOSITORY,
    TOP_LEVEL_MODULES,
    Source,
    functions,
    imports,
    is_within,
    modules_imported,
    sources,
    sources_of_tests,
)

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
POSITIONAL_PARAMETERS_MAX = 5

LAYERS: tuple[tuple[str, ...], ...] = (
    ("bookkeeper_metadata.foundation",),
    ("bookkeeper_metadata.errors", "bookkeeper_metadata.model", "bookkeeper_metadata.paths"),
    ("bookkeeper_metadata.store",),
    ("bookkeeper_metadata",),
    ("bookie_server.wire", "bookie_server.settings", "bookie_server.client.settings"),
    ("bookie_server.carrier",),
    ("bookie_server.core", "bookie_server.client", "bookie_server.memory"),
    ("bookie_server.storage.disk",),
    ("bookie_server.storage.journal", "bookie_server.storage.logs"),
    ("bookie_server.storage.index",),
    ("bookie_server.storage.identity",),
    ("bookie_server.storage",),
    ("bookie_server",),
    ("bookie_server.client.local",),
    ("spark_bookkeeper.ledger.errors", "spark_bookkeeper.local", "spark_bookkeeper.settings"),
    ("spark_bookkeeper.environment", "spark_bookkeeper.ledger.protocol"),
    ("spark_bookkeeper.ledger",),
    ("spark_bookkeeper.log.errors", "spark_bookkeeper.log.settings"),
    ("spark_bookkeeper.log.format",),
    ("spark_bookkeeper.log.rules", "spark_bookkeeper.log.ledgers"),
    ("spark_bookkeeper.log.nodes",),
    ("spark_bookkeeper.log.commits", "spark_bookkeeper.log.reading"),
    ("spark_bookkeeper.log.cleaning", "spark_bookkeeper.log.writing"),
    ("spark_bookkeeper.log",),
    ("spark_bookkeeper.errors", "spark_bookkeeper.aio"),
    ("spark_bookkeeper.blocking",),
    ("spark_bookkeeper.bookkeeper",),
    (
        "spark_bookkeeper.datasource.errors",
        "spark_bookkeeper.datasource.explanations",
        "spark_bookkeeper.datasource.listener",
        "spark_bookkeeper.datasource.nesting",
        "spark_bookkeeper.datasource.worker_logging",
    ),
    (
        "spark_bookkeeper.datasource.evolution",
        "spark_bookkeeper.datasource.options",
        "spark_bookkeeper.datasource.payload",
        "spark_bookkeeper.datasource.schema",
    ),
    ("spark_bookkeeper.datasource.session",),
    ("spark_bookkeeper.datasource.origins",),
    ("spark_bookkeeper.datasource.read", "spark_bookkeeper.datasource.write"),
    ("spark_bookkeeper.datasource",),
    ("spark_bookkeeper",),  # the public face
    ("spark_bookkeeper.admin",),
    ("spark_bookkeeper.demo",),
    ("spark_bookkeeper.cli.options", "spark_bookkeeper.cli.output", "spark_bookkeeper.cli.values"),
    ("spark_bookkeeper.cli.records",),
    ("spark_bookkeeper.cli.ledgers", "spark_bookkeeper.cli.logs"),
    ("spark_bookkeeper.cli",),
)
"""Every room, lowest first; a room's longest name counts. A module may import its own layer and those
below, and no circle of modules may arise within a layer."""

PURE = (
    "bookie_server.core",
    "bookie_server.wire",
    "bookie_server.storage.disk.group",
    "bookie_server.storage.index.delta",
    "bookie_server.storage.index.handle_state",
    "bookie_server.storage.journal.record",
    "bookie_server.storage.logs.id_pattern",
    "bookie_server.storage.logs.rows",
    "bookie_server.storage.logs.write_cache",
    "bookkeeper_metadata.errors",
    "bookkeeper_metadata.foundation.defects",
    "bookkeeper_metadata.foundation.errors",
    "bookkeeper_metadata.foundation.invariant",
    "bookkeeper_metadata.foundation.settings",
    "bookkeeper_metadata.model",
    "bookkeeper_metadata.paths",
    "bookkeeper_metadata.serde",
    "bookkeeper_metadata.store.memory_tree",
    "bookkeeper_metadata.store.operations",
    "spark_bookkeeper.datasource.evolution",
    "spark_bookkeeper.datasource.nesting",
    "spark_bookkeeper.datasource.options",
    "spark_bookkeeper.datasource.payload",
    "spark_bookkeeper.datasource.read.bounds",
    "spark_bookkeeper.datasource.read.limits",
    "spark_bookkeeper.datasource.read.offsets",
    "spark_bookkeeper.datasource.read.partitions",
    "spark_bookkeeper.datasource.read.pruning",
    "spark_bookkeeper.datasource.schema",
    "spark_bookkeeper.ledger.errors",
    "spark_bookkeeper.ledger.protocol",
    "spark_bookkeeper.log.errors",
    "spark_bookkeeper.log.format",
    "spark_bookkeeper.log.nodes.paths",
    "spark_bookkeeper.log.rules",
    "spark_bookkeeper.log.settings",
)
"""Where decisions are made, and what they are made of: values in, values out."""

IMPURE_IMPORTS = {
    "asyncio", "grpc", "kazoo", "multiprocessing", "os", "random", "shutil", "signal", "socket",
    "subprocess", "tempfile", "threading", "time",
}  # fmt: skip

FILES_MAX = 16
"""Files of a room, ``__init__`` and generated code aside; a room of more is two rooms."""

FILES_MAX_IN = {"bookie_server.storage": 12, "spark_bookkeeper.log": 12}
"""Stricter where rooms have grown flat before; a room's rooms count by themselves."""

BANNED_WORDS = {"base", "data", "helper", "helpers", "manager", "util", "utils"}
"""As a whole word of a module's or a class's name: they say nothing."""

ENTRY_POINTS = {
    "bookie_server.__main__",
    "spark_bookkeeper.cli.__main__",
    "spark_bookkeeper.aio",  # public faces: imported by users
    "spark_bookkeeper.errors",
    "spark_bookkeeper.datasource.listener",
    "spark_bookkeeper.datasource.query_metrics",
    "spark_bookkeeper.metrics",
    "pyspark_bookkeeper",
    "bookkeeper_metadata.store.memory",  # in-memory twins, for tests: ours and our users'
    "bookie_server.client.local",
}
"""Modules that are used without another module's import."""

FOREIGN_PATH = "/" + "work/"
"""A path of the machine this was written on has no place in the project."""


def layer_of(module: str) -> int | None:
    """Of the room with the longest name that the module is in."""
    rooms = [(room, index) for index, layer in enumerate(LAYERS) for room in layer]
    found = [(len(room), index) for room, index in rooms if is_within(module, room)]
    return max(found)[1] if found else None


def layering_offences(source: Source) -> Iterator[str]:
    own = layer_of(source.name)
    if own is None and source.path not in TOP_LEVEL_MODULES:
        yield f"{source.path} is in no room that LAYERS lists"
    for line, imported in imports(source):
        if imported.startswith("."):
            yield f"{source.path}:{line} relative import; name the whole path"
        other = layer_of(imported)
        if own is not None and other is not None and other > own:
            yield f"{source.path}:{line} imports {imported} from a higher layer"


@cache
def impurities(module: str) -> dict[str, str]:
    """What a module reaches of :data:`IMPURE_IMPORTS`, and by way of which modules."""
    by_name = {source.name: source for source in sources()}
    found: dict[str, str] = {}
    seen, ahead = {module}, [(module, module)]
    while ahead:
        name, way = ahead.pop()
        for _, imported in imports(by_name[name]):
            if (top := imported.split(".")[0]) in IMPURE_IMPORTS:
                found.setdefault(top, way)
        for _, other in modules_imported(by_name[name]):
            if other not in seen:
                seen.add(other)
                ahead.append((other, f"{way} -> {other}"))
    return found


def purity_offences(source: Source) -> Iterator[str]:
    """A decision that reaches a clock, chance or I/O, however far down, is none."""
    if any(is_within(source.name, package) for package in PURE):
        for line, imported in imports(source):
            if imported.split(".")[0] in IMPURE_IMPORTS:
                yield f"{source.path}:{line} a decision module imports {imported}"
        for _, other in modules_imported(source):
            for imported, way in impurities(other).items():
                yield f"{source.path} reaches {imported} by way of {way}"


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


def page_offences(source: Source) -> Iterator[str]:
    """A message must not send people to a page that only a clone of the repository has."""
    # Docstrings are for those who have the source, but for help texts made of them.
    is_help = is_within(source.name, "spark_bookkeeper.cli") or source.name.endswith(".settings")
    tree = source.tree
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            page = re.search(r"[\w/]+\.md\b", node.value)
            if page and (is_help or id(node) not in statements):
                yield f"{source.path}:{node.lineno} names {page[0]}, which an installation lacks"


Rule = Callable[[Source], Iterator[str]]

PER_FILE_RULES: dict[Rule, str] = {
    layering_offences: "from spark_bookkeeper.ledger import client\n",
    purity_offences: "import time\n",
    size_offences: "def long():\n" + "    x = 1\n" * 61,
    parameter_offences: "def many(a, b, c, d, e, f): ...\n",
    naming_offences: "class LedgerManager: ...\n",
    docstring_offences: '"""Module."""\ndef public(): ...\n',
    foreign_path_offences: f'x = "{FOREIGN_PATH}main"\n',
    page_offences: '"""See docs/a.md."""\nraise ValueError(f"{1}, see docs/options.md")\n',
}
"""Each with a few lines that break it once."""

per_file_rule = pytest.mark.parametrize("rule", PER_FILE_RULES, ids=lambda rule: rule.__name__)


@per_file_rule
def test_no_module_breaks_the_rule(rule: Rule) -> None:
    offences = [offence for source in sources() for offence in rule(source)]

    assert not offences, "\n" + "\n".join(offences)


def test_no_file_or_function_of_the_tests_is_too_long() -> None:
    offences = [offence for source in sources_of_tests() for offence in size_offences(source)]
    simulated = [source for source in sources_of_tests() if ".simulation." in source.name]

    assert len(simulated) > 50
    assert not offences, "\n" + "\n".join(offences)


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Groups of modules that import each other in a circle."""
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        return [error.args[1]]
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {source.name: {name for _, name in modules_imported(source)} for source in sources()}

    assert circles(graph) == []
    assert circles({"a": ["b"], "b": ["c"], "c": ["a"]}) != []


def room_offences(names: Collection[str]) -> Iterator[str]:
    """Rooms with more files than can be taken in at a glance; ``names`` are modules, no packages."""
    rooms = Counter(name.rpartition(".")[0] for name in names)
    for room, count in rooms.items():
        limit = min([FILES_MAX, *(n for top, n in FILES_MAX_IN.items() if is_within(room, top))])
        if count > limit:
            yield f"{room} has {count} files, at most {limit}"


def test_no_room_is_too_full() -> None:
    files = [s.name for s in sources() if not s.path.endswith("__init__.py")]

    assert list(room_offences(files)) == []
    assert list(room_offences([f"spark_bookkeeper.log.x.{n}" for n in range(13)])) != []


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
    folders = [REPOSITORY / folder for folder in PACKAGES.values()]

    assert [folder for folder in folders if not (folder / "py.typed").exists()] == []
