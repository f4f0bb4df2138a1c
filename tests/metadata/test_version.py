"""The version is stated once, and everything that shows one shows that."""

from __future__ import annotations

import ast
import importlib.metadata
import tomllib

import spark_bookkeeper
from bookie_server import server
from bookkeeper_metadata.version import __version__
from tests.sources import REPOSITORY, sources


def test_the_installed_distribution_the_package_and_a_bookie_have_one_version() -> None:
    shown = {
        importlib.metadata.version("spark-bookkeeper"),
        spark_bookkeeper.__version__,
        vars(server)["__version__"],  # what a bookie answers with
    }

    assert shown == {__version__}


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    stated = [
        source.name
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and node.value == __version__
    ]

    assert stated == ["bookkeeper_metadata.version"]
    assert "version" not in project
    assert "version" in project["dynamic"]
