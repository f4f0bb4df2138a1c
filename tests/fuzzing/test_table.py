"""No decoder is forgotten: each has its row in the table, or a reason for having none."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache

from tests.fuzzing.decoders import DECODERS, NOT_FUZZED
from tests.sources import Source, is_within, sources

ROOMS = (
    "bookie_server.wire",
    "bookie_server.storage",
    "bookkeeper_metadata",
    "spark_bookkeeper.datasource.payload",
    "spark_bookkeeper.log",
)
_NAME = re.compile(r"(?:parse|decode)(?:_\w+)?")


def decoders_in(source: Source) -> Iterator[str]:
    """Full names of the public functions and methods that are called decoders."""
    body = source.tree.body
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _named(node.body, f"{source.name}.{node.name}")
    yield from _named(body, source.name)


def _named(body: list[ast.stmt], within: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _NAME.fullmatch(node.name):
            yield f"{within}.{node.name}"


@cache
def found() -> set[str]:
    return {
        name
        for source in sources()
        if any(is_within(source.name, room) for room in ROOMS)
        for name in decoders_in(source)
    }


def covered() -> set[str]:
    return {name for decoder in DECODERS.values() for name in decoder.covers}


def test_every_decoder_is_fuzzed() -> None:
    assert len(found()) > 40
    assert found() - covered() - set(NOT_FUZZED) == set()


def test_nothing_is_excused_that_is_fuzzed_or_gone() -> None:
    assert set(NOT_FUZZED) <= found() - covered()


def test_what_the_table_covers_exists() -> None:
    for name in covered():
        module, _, rest = name.rpartition(".")
        try:
            of: object = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, of_class = module.rpartition(".")
            of = getattr(importlib.import_module(module), of_class)
        assert callable(getattr(of, rest)), name


def test_a_new_decoder_without_a_row_is_noticed() -> None:
    text = "def parse_x(): ...\ndef _parse_y(): ...\nclass A:\n    def decode(self): ...\n"

    assert set(decoders_in(Source("m", "m.py", text))) == {"m.parse_x", "m.A.decode"}
