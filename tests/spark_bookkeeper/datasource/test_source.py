"""The face Spark sees: found without registration, harmless at import, errors with their names."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from pyspark.sql.pandas.utils import require_minimum_pandas_version
from pyspark.sql.types import StructType

import pyspark_bookkeeper
from spark_bookkeeper.datasource.errors import OptionsError, SourceError, source_errors
from spark_bookkeeper.datasource.options.client import client_settings
from spark_bookkeeper.datasource.source import BookKeeperSource
from spark_bookkeeper.datasource.write.stream import BookKeeperStreamWriter
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError
from spark_bookkeeper.log.errors import LogRecreatedError
from spark_bookkeeper.settings import ClientSettings

WITHOUT_PACKAGES = """
import sys
for missing in ("grpc", "kazoo", "pyarrow", "google_crc32c", "google.protobuf", "numpy"):
    sys.modules[missing] = None
import pyspark_bookkeeper
source = pyspark_bookkeeper.DefaultSource({"log": "x", "metadataserviceuri": "zk://h/l"})
assert source.name() == "bookkeeper"
try:
    source.schema()
except Exception as error:
    print(error)
"""


@pytest.mark.slow
def test_importing_the_source_never_fails_and_using_it_names_what_is_missing(
    repository: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGES], cwd=repository, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[BK_PACKAGE_MISSING] ")
    assert "PYSPARK_PYTHON" in done.stdout
    assert sys.executable in done.stdout


def test_spark_finds_the_format_by_its_name_and_sends_its_options_along() -> None:
    source = pyspark_bookkeeper.DefaultSource({"log": "orders"})

    assert source.name() == BookKeeperSource.name() == "bookkeeper"
    assert pickle.loads(pickle.dumps(source)).options == {"log": "orders"}


def test_wrong_options_are_told_before_any_cluster_is_looked_for() -> None:
    source = pyspark_bookkeeper.DefaultSource({"lgo": "orders", "metadataserviceuri": "zk://h/l"})

    with pytest.raises(SourceError, match=r"\[BK_OPTION_UNKNOWN\] unknown option lgo"):
        source.schema()


@pytest.mark.parametrize("kind", [pyspark_bookkeeper.DefaultSource, BookKeeperSource])
def test_the_copy_of_a_source_that_spark_commits_with_plans_no_write(kind: type) -> None:
    # No cluster is there to plan with: the copy must not ask for one.
    options = {"log": "orders", "metadataserviceuri": "zk+hierarchical://127.0.0.1:1/l"}
    copy = pickle.loads(pickle.dumps(kind(options)))

    assert isinstance(copy.streamWriter(StructType([]), False), BookKeeperStreamWriter)


def test_a_reported_error_has_its_name_first_and_what_to_do_last() -> None:
    @source_errors()
    def fails() -> None:
        raise NotEnoughBookiesError(3, ("b1",))

    with pytest.raises(SourceError) as caught:
        fails()

    message = str(caught.value)
    assert message.startswith("[BK_NOT_ENOUGH_BOOKIES] not enough bookies")
    assert message.endswith("run it again.")
    assert isinstance(caught.value.__cause__, NotEnoughBookiesError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_an_error_of_a_streams_planning_comes_without_the_tracebacks_of_its_causes() -> None:
    """Spark prints all of a traceback there, and what is to be done must not stand at its end."""

    @source_errors(has_cause=False)
    def fails() -> None:
        raise LogRecreatedError("orders", 1, 2)

    with pytest.raises(SourceError) as caught:
        fails()

    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("Traceback (most recent call last)") == 1
    assert "LogRecreatedError" not in printed
    assert "[BK_LOG_RECREATED] the position belongs to another log" in printed
    assert "start with a new checkpoint" in printed


def test_pyspark_supports_the_pandas_that_its_connect_client_gets() -> None:
    """It warns of one that it does not, and warnings are errors here."""
    require_minimum_pandas_version()


def test_client_settings_are_set_by_name_without_case() -> None:
    found = client_settings(
        [("readsinflight", "9"), ("add_timeout_ms", "1234"), ("bookieProtocol", "grpc")]
    )

    assert found.reads_in_flight == 9
    assert found.connection.add_timeout_ms == 1234
    assert found.bookie_protocol == "grpc"
    assert found.read_size_bytes == ClientSettings().read_size_bytes


def test_wrong_client_settings_are_all_told() -> None:
    wrong = (
        ("readsinflight", "many"),
        ("readsinflights", "9"),
        ("metadatatimeoutms", "0"),
        ("bookieprotocol", "socket"),
    )

    with pytest.raises(OptionsError) as caught:
        client_settings(wrong)

    message = str(caught.value)
    assert "option bookkeeper.client.readsinflight: must be a whole number; value=" in message
    assert "unknown option bookkeeper.client.readsinflights; settings are" in message
    assert "metadata_timeout_ms=0" in message
    assert "bookie_protocol must be one of auto, grpc, v2, v3; bookie_protocol=socket" in message
