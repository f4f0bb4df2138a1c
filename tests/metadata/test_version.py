"""The version is stated once, and everything that shows one shows that."""

from __future__ import annotations

import ast
import importlib.metadata
import tomllib
from pathlib import Path

import spark_bookkeeper
from bookie_server import server
from bookkeeper_metadata.version import __version__

REPOSITORY = Path(__file__).parents[2]


def test_the_installed_distribution_the_package_and_a_bookie_have_one_version() -> None:
    shown = {
        importlib.metadata.version("spark-bookkeeper"),
        spark_bookkeeper.__version__,
        vars(server)["__version__"],  # what a bookie answers with
    }

    assert shown == {__version__}


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    folders = ("metadata", "bookie_server", "spark_bookkeeper")
    paths = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]

    stated = [
        path.name
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == __version__
    ]

    assert stated == ["version.py"]
    assert "version" not in project
    assert "version" in project["dynamic"]
