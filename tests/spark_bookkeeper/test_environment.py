"""How settings of a client come from the environment, and reach executors as options."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from bookie_server.settings import load_bookie_settings
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper import BookKeeper, aio
from spark_bookkeeper.bookkeeper import shared
from spark_bookkeeper.datasource.errors import OptionsError, SourceError
from spark_bookkeeper.datasource.options.client import client_settings
from spark_bookkeeper.datasource.options.parse import parse_read_options, parse_write_options
from spark_bookkeeper.datasource.session import open_session
from spark_bookkeeper.datasource.write import batch as batch_write
from spark_bookkeeper.datasource.write.batch import BookKeeperBatchWriter
from spark_bookkeeper.environment import (
    CLIENT_VARIABLES,
    client_settings_from_environment,
    given_client_settings,
)
from spark_bookkeeper.replication.settings import auto_recovery_settings_table
from spark_bookkeeper.settings import ClientSettings
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch
from tests.spark_bookkeeper.datasource.world import HERE, FakeSpark

WAY_IN = {
    "BOOKKEEPER_ZOOKEEPER_TRUST_PATH": "/tls/trust.pem",
    "BOOKKEEPER_ZOOKEEPER_CERTIFICATE_PATH": "/tls/own.pem",
    "BOOKKEEPER_ZOOKEEPER_KEY_PATH": "/tls/own.key",
    "BOOKKEEPER_ZOOKEEPER_AUTH_PATH": "/secret/spark",
    "BOOKKEEPER_ZOOKEEPER_ACL": "world:anyone:r",
}
NAMES = {
    "zookeeper_trust_path": "/tls/trust.pem",
    "zookeeper_certificate_path": "/tls/own.pem",
    "zookeeper_key_path": "/tls/own.key",
    "zookeeper_auth_path": "/secret/spark",
    "zookeeper_acl": "world:anyone:r",
}
URI = HERE["BOOKKEEPER_METADATA_URI"]


def of(settings: ClientSettings) -> dict[str, str]:
    return settings.of_zookeeper()


def test_a_client_without_settings_has_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in WAY_IN.items():
        monkeypatch.setenv(variable, value)
    given = ClientSettings(zookeeper_auth_path="/secret/other")

    assert of(BookKeeper(URI).settings) == of(aio.BookKeeper(URI).settings) == NAMES
    assert of(shared(URI).settings) == NAMES
    assert BookKeeper(URI, settings=given).settings == given


def test_an_empty_variable_says_nothing() -> None:
    emptied = dict.fromkeys(CLIENT_VARIABLES.values(), " ")

    assert given_client_settings(emptied) == ()
    assert client_settings_from_environment(emptied) == ClientSettings()


def test_an_environment_that_makes_no_sense_is_named() -> None:
    with pytest.raises(ValueError, match="BOOKKEEPER_ZOOKEEPER_KEY_PATH"):
        client_settings_from_environment({"BOOKKEEPER_ZOOKEEPER_KEY_PATH": "/k"})


def test_every_process_reads_the_same_variables() -> None:
    own = {"BOOKKEEPER_AUTORECOVERY_ZOOKEEPER_AUTH_PATH": "/not/read"}
    bookie = load_bookie_settings(environment=WAY_IN, flags={})
    healer = auto_recovery_settings_table().load(environment={**WAY_IN, **own}, flags={})

    assert bookie.of_zookeeper() == healer.of_zookeeper() == NAMES


@pytest.mark.parametrize("parse", [parse_read_options, parse_write_options])
def test_what_the_drivers_environment_says_travels_as_options(parse: object) -> None:
    """An executor's environment is another: it is not asked."""
    assert callable(parse)
    options = parse({"log": "a"}, {**HERE, **WAY_IN})

    arrived = pickle.loads(pickle.dumps(options))

    assert of(client_settings(arrived.client_settings)) == NAMES


def test_an_option_beats_the_environment_however_it_is_written() -> None:
    given = {
        "log": "a",
        "bookkeeper.client.zookeeper_Auth_Path": "/secret/mine",
        "bookkeeper.client.zookeeperAcl": "",
    }

    options = parse_read_options(given, {**HERE, **WAY_IN})

    found = of(client_settings(options.client_settings))
    assert found == {**NAMES, "zookeeper_auth_path": "/secret/mine", "zookeeper_acl": ""}


@pytest.mark.parametrize("is_reversed", [False, True])
def test_settings_that_need_each_other_may_be_given_in_any_order(is_reversed: bool) -> None:
    given = [(name.replace("_", ""), value) for name, value in NAMES.items()]

    assert of(client_settings(reversed(given) if is_reversed else given)) == NAMES


def test_an_option_that_needs_another_is_named() -> None:
    given = {"log": "a", "bookkeeper.client.zookeeperCertificatePath": "/c"}

    with pytest.raises(OptionsError, match="zookeeper_certificate_path needs"):
        parse_read_options(given, HERE)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("BOOKKEEPER_ZOOKEEPER_AUTH_PATH", "BK_CREDENTIALS_FILE"),
        ("BOOKKEEPER_ZOOKEEPER_TRUST_PATH", "BK_TLS_FILES"),
    ],
)
def test_a_task_without_its_file_fails_by_its_name_before_it_claims(
    variable: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned where the file is, run where it is not."""
    missing = str(tmp_path / "missing")
    monkeypatch.setattr(batch_write, "batch_task", Mock())
    rows = iter([batch(0, 10)])
    with FakeSpark() as world:
        plan = world.plan(SCHEMA)
        nowhere = {**HERE, "BOOKKEEPER_METADATA_URI": "zk+hierarchical://127.0.0.1:1/ledgers"}
        elsewhere = parse_write_options({"log": "orders"}, {**nowhere, variable: missing})
        writer = BookKeeperBatchWriter(replace(plan, options=elsewhere))

        with pytest.raises(SourceError) as failed:
            pickle.loads(pickle.dumps(writer)).write(rows)

        assert str(failed.value).startswith(f"[{name}] ")
        assert f"path={missing}" in str(failed.value)
        assert isinstance(failed.value.__cause__, BookKeeperError)
        assert next(rows).num_rows == 10
        assert world.client.ledgers == {}


def test_a_read_without_its_file_fails_by_its_name(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    environment: Mapping[str, str] = {
        "BOOKKEEPER_METADATA_URI": "zk+hierarchical://127.0.0.1:1/ledgers",
        "BOOKKEEPER_ZOOKEEPER_AUTH_PATH": missing,
    }

    with pytest.raises(BookKeeperError, match=f"path={missing}"):
        open_session(parse_read_options({"log": "a"}, environment))
