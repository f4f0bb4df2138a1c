"""A Spark of this machine for the demonstration: quiet, on loopback, with our own Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spark_bookkeeper.local.environment import child_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "2g"
BRIEF_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
"""The JVM's first compiler alone. The second one pays after minutes only: without it, start and
first micro-batch take half the CPU (13 s instead of 26 s)."""


@contextmanager
def spark_session(directory: Path, cores: int, *, is_brief: bool = False) -> Iterator[SparkSession]:
    """A ``local[cores]`` session whose scratch files and log (``spark.log``) lie in ``directory``.

    ``is_brief`` is for a session that does little: it starts sooner and never gets as fast.
    The JVM and its Python workers print to that log for their whole life, not to our terminal.
    """
    from pyspark.sql import SparkSession

    directory.mkdir(parents=True, exist_ok=True)
    # Workers must run what we run, from a clone as well as installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = child_environment()["PYTHONPATH"]
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bookkeeper demo")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": BRIEF_JAVA_OPTIONS if is_brief else "",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.local.dir": str(directory / "scratch"),
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    with _stderr_into(directory / "spark.log"):
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """File descriptor 2 is ``path`` for the block: what a process started in it inherits."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
