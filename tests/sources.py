"""Parsed source of everything we wrote, for the rules that a machine can check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = {
    "bookkeeper_metadata": "metadata/bookkeeper_metadata",
    "bookie_server": "bookie_server",
    "spark_bookkeeper": "spark_bookkeeper",
}
"""Where each package lies."""
TOP_LEVEL_MODULES = ("pyspark_bookkeeper.py",)


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
    places = [(REPOSITORY / name, REPOSITORY) for name in TOP_LEVEL_MODULES]
    for folder in PACKAGES.values():
        root = (REPOSITORY / folder).parent
        places += [(path, root) for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    return tuple(
        _read(*each) for each in places if not each[0].stem.endswith(("_pb2", "_pb2_grpc"))
    )


@cache
def sources_of_tests() -> tuple[Source, ...]:
    """Every module of the tests."""
    paths = sorted((REPOSITORY / "tests").rglob("*.py"))
    return tuple(_read(p, REPOSITORY) for p in paths)


def _read(path: Path, root: Path) -> Source:
    name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    return Source(name, str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8"))


@cache
def module_names() -> frozenset[str]:
    return frozenset(source.name for source in sources())


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


def modules_with(constant: str) -> list[str]:
    """Where this string is written, once for each time."""
    return [
        source.name
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and node.value == constant
    ]


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def modules_imported(source: Source) -> Iterator[tuple[int, str]]:
    """Line and name of each of our own modules imported; ``from package import module`` names it."""
    names = module_names()
    for line, imported in imports(source):
        name = imported if imported in names else imported.rpartition(".")[0]
        if name in names and name != source.name:
            yield line, name
