"""A Spark driver made to be killed: streams a folder of Parquet files into a log, then ends.

Run as ``python -m spark_bookkeeper.demo.stream_driver SETTINGS`` with the settings as JSON. Started
again on the same checkpoint it goes on where the log and Spark's checkpoint say; nothing in here
knows about being killed.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from spark_bookkeeper.demo.session import spark_session


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """The settings of one run of the driver; they survive ``json.dumps(asdict(...))``."""

    metadata_service_uri: str
    log: str
    source: str
    """Folder of Parquet files."""
    files_per_batch: int
    directory: str
    """Of the checkpoint (``checkpoint``) and of Spark's files and log (``spark``)."""
    cores: int
    quorums: dict[str, int]
    """Write options."""


def stream(settings: StreamSettings) -> None:
    """Stream what is in the source and not in the log yet."""
    directory = Path(settings.directory)
    with spark_session(directory / "spark", settings.cores, is_brief=True) as spark:
        schema = spark.read.parquet(settings.source).schema
        reader = spark.readStream.schema(schema)
        reader = reader.option("maxFilesPerTrigger", settings.files_per_batch)
        frame = reader.parquet(settings.source)
        writer = frame.writeStream.format("bookkeeper").queryName(settings.log)
        writer = writer.options(
            metadataServiceUri=settings.metadata_service_uri,
            log=settings.log,
            checkpointLocation=str(directory / "checkpoint"),
            **settings.quorums,
        )
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    # A session of its own, so that `kill_session` finds the JVM and the workers too.
    os.setsid()
    stream(StreamSettings(**json.loads(sys.argv[1])))
