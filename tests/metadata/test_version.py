"""The version is stated once, and everything that shows one shows that."""

from __future__ import annotations

import importlib.metadata
import tomllib

import spark_bookkeeper
from bookie_server import server
from bookkeeper_metadata.version import __version__
from tests.sources import REPOSITORY, modules_with


def test_the_installed_distribution_the_package_and_a_bookie_have_one_version() -> None:
    shown = {
        importlib.metadata.version("spark-bookkeeper"),
        spark_bookkeeper.__version__,
        vars(server)["__version__"],  # what a bookie answers with
    }

    assert shown == {__version__}


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    assert modules_with(__version__) == ["bookkeeper_metadata.version"]
    assert "version" not in project
    assert "version" in project["dynamic"]
