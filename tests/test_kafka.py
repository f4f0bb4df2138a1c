"""A Kafka user finds every option of theirs, or a sentence about why not, in docs and errors alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_bookkeeper.datasource.options.parse import KAFKA_HABITS
from spark_bookkeeper.datasource.options.table import OPTIONS

KAFKA_OPTIONS = (
    "kafka.bootstrap.servers", "assign", "subscribe", "subscribePattern",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
    "failOnDataLoss", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "minPartitions", "maxRecordsPerPartition",
    "groupIdPrefix", "kafka.group.id", "includeHeaders", "topic",
)  # fmt: skip
"""Source: Structured Streaming + Kafka Integration Guide, Spark 4; SPARK-49259."""


@pytest.fixture(scope="module")
def table(repository: Path) -> dict[str, str]:
    """Kafka's option, as documented, and what is said of it."""
    text = (repository / "docs" / "kafka.md").read_text(encoding="utf-8")
    (rows,) = re.findall(r"<!-- kafka -->\n(.*?)\n<!-- /kafka -->", text, re.DOTALL)
    found = (re.fullmatch(r"\| `([\w.]+)` \| (.+) \|", row) for row in rows.splitlines())
    return {each[1]: each[2] for each in found if each is not None}


def test_every_option_of_sparks_kafka_connector_is_in_the_table(table: dict[str, str]) -> None:
    assert set(table) == set(KAFKA_OPTIONS)


def test_the_table_and_the_error_say_the_same(table: dict[str, str]) -> None:
    said = {name.lower(): text for name, text in table.items()}

    assert {name: said[name] for name in KAFKA_HABITS} == KAFKA_HABITS


def test_what_is_neither_an_error_nor_kafkas_client_is_an_option_of_ours(
    table: dict[str, str],
) -> None:
    accepted = {
        name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)
    }

    for name, text in table.items():
        if name.lower() not in KAFKA_HABITS and not name.startswith("kafka."):
            assert text.startswith(f"`{accepted[name.lower()].name}`"), name
