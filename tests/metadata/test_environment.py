"""One variable names the cluster, and the one that bookies used to read still does."""

from __future__ import annotations

import logging

import pytest

from bookkeeper_metadata.environment import read_metadata_uri
from spark_bookkeeper import BookKeeper
from spark_bookkeeper.cli import run
from spark_bookkeeper.datasource.options.parse import parse_read_options
from spark_bookkeeper.local.environment import child_environment
from tests.sources import modules_with

LOGGER = "bookkeeper_metadata"

NEW, OLD = "BOOKKEEPER_METADATA_URI", "BOOKKEEPER_METADATA_SERVICE_URI"
URI = "zk+hierarchical://127.0.0.1:1/ledgers"


@pytest.mark.parametrize(
    ("environment", "uri", "warning"),
    [
        ({}, None, None),
        ({NEW: "  "}, None, None),
        ({NEW: " zk://a/l "}, "zk://a/l", None),
        (
            {OLD: "zk://a/l"},
            "zk://a/l",
            f"{OLD} is now called {NEW}; the old variable is still read",
        ),
        ({NEW: "", OLD: "zk://a/l"}, "zk://a/l", "still read"),
        ({NEW: "zk://a/l", OLD: "zk://a/l"}, "zk://a/l", None),
        ({NEW: "zk://a/l", OLD: "zk://b/l"}, "zk://a/l", "ignored, for the new one is set too"),
    ],
)
def test_the_old_variable_is_read_with_a_warning_that_names_the_new_one(
    environment: dict[str, str],
    uri: str | None,
    warning: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)  # a demo in this process may have silenced it

    assert read_metadata_uri(environment) == uri

    assert len(caplog.messages) == (0 if warning is None else 1)
    assert warning is None or warning in caplog.text


def test_client_data_source_and_command_line_read_the_old_variable(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    monkeypatch.delenv(NEW, raising=False)
    monkeypatch.setenv(OLD, URI)

    assert BookKeeper().metadata_service_uri == URI
    assert parse_read_options({"log": "orders"}, {OLD: URI}).metadata_service_uri == URI
    assert run(["ledgers", "list", "--help"]) == 0
    assert f"[env var: {NEW}; required]" in " ".join(capfd.readouterr().out.split())
    assert len(caplog.messages) == 2

    # The cluster is named; what is wrong with its name is found later than wrong use is.
    monkeypatch.setenv(OLD, "zk+hierarchical://no port/ledgers")
    assert run(["ledgers", "list"]) != 0
    assert "no port" in capfd.readouterr().err


def test_no_bookie_of_a_local_cluster_inherits_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEW, URI)
    monkeypatch.setenv(OLD, URI)

    assert not {NEW, OLD} & set(child_environment())


@pytest.mark.parametrize("name", [NEW, OLD])
def test_the_name_is_defined_once(name: str) -> None:
    assert modules_with(name) == ["bookkeeper_metadata.environment"]
