"""What the peers run on: a PySpark of their own with Delta's and Kafka's connectors, and Kafka's brokers.

Their connectors are for Spark 4.0, so that is the Spark they get; ours has the project's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.artifacts import Jar, PeerUnavailableError, fetch, run
from spark_bookkeeper.local.java import JavaNotFoundError, find_java

SPARK_VERSION = "4.0.0"
DELTA_VERSION = "4.0.0"
KAFKA_VERSION = "4.1.0"
_KAFKA_CLIENT_VERSION = "3.9.1"
"""That the connector was made with."""
_PIP_TIMEOUT_S = 1_200

CONNECTORS = (
    Jar("io.delta", "delta-spark_2.13", DELTA_VERSION, is_alone=True),
    Jar("io.delta", "delta-storage", DELTA_VERSION, is_alone=True),
    Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION, is_alone=True),
    Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", SPARK_VERSION, is_alone=True),
    Jar("org.apache.spark", "spark-avro_2.13", SPARK_VERSION, is_alone=True),
    Jar("org.apache.kafka", "kafka-clients", _KAFKA_CLIENT_VERSION),
    Jar("org.apache.commons", "commons-pool2", "2.12.1"),
)


@dataclass(frozen=True)
class SparkArtifacts:
    """Where they are."""

    java: Path
    python: Path
    """The interpreter that has the peers' PySpark."""
    connectors: Path
    kafka: Path
    """Folder of the brokers' jars."""

    @property
    def connector_jars(self) -> str:
        """As ``spark.jars`` takes them."""
        return ",".join(map(str, sorted(self.connectors.glob("*.jar"))))


def prepare(cache: Path) -> SparkArtifacts:
    """Fetch and install what is not in ``cache`` yet.

    Raises:
        PeerUnavailableError: says what is missing.
    """
    try:
        java = find_java()
    except JavaNotFoundError as error:
        raise PeerUnavailableError(str(error)) from error
    connectors = cache / f"spark-{SPARK_VERSION}-delta-{DELTA_VERSION}-kafka"
    if not connectors.is_dir():
        fetch(CONNECTORS, connectors)
    kafka = cache / f"kafka-{KAFKA_VERSION}"
    if not kafka.is_dir():
        fetch([Jar("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)], kafka)
    return SparkArtifacts(java, _environment(cache), connectors, kafka)


def _environment(cache: Path) -> Path:
    """A virtual environment with the peers' PySpark; it cannot be moved, so a mark says that it is whole."""
    place = cache / f"pyspark-{SPARK_VERSION}"
    python, mark = place / "bin" / "python", place / "whole"
    if not mark.exists():
        run([sys.executable, "-m", "venv", "--clear", str(place)], 120, "no virtual environment")
        pip = [str(python), "-m", "pip", "install", "-q", f"pyspark=={SPARK_VERSION}", "pyarrow"]
        run(pip, _PIP_TIMEOUT_S, f"pip could not install pyspark {SPARK_VERSION}")
        mark.touch()
    return python
