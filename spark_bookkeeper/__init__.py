"""BookKeeper ledgers in Python and Spark.

``BookKeeper`` is the client, ``LocalCluster`` a cluster to try it on; the same as coroutines is in
:mod:`spark_bookkeeper.aio`, errors are in :mod:`spark_bookkeeper.errors`. Names are imported when
they are first used, so that Spark's look for data sources loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bookkeeper_metadata.version import __version__

if TYPE_CHECKING:
    from spark_bookkeeper.blocking.log import Log
    from spark_bookkeeper.blocking.log_reader import LogReader
    from spark_bookkeeper.blocking.log_writer import LogWriter
    from spark_bookkeeper.blocking.read_handle import ReadHandle
    from spark_bookkeeper.blocking.write_handle import WriteHandle
    from spark_bookkeeper.bookkeeper import BookKeeper
    from spark_bookkeeper.datasource.optimize.spark_job import optimize
    from spark_bookkeeper.ledger.entry import Entry
    from spark_bookkeeper.local.cluster import LocalCluster
    from spark_bookkeeper.log.format.model import LogSettings, Retention
    from spark_bookkeeper.log.format.position import Position
    from spark_bookkeeper.log.settings import LogWriterSettings
    from spark_bookkeeper.settings import ClientSettings

_HOMES = {
    "BookKeeper": "spark_bookkeeper.bookkeeper",
    "ClientSettings": "spark_bookkeeper.settings",
    "Entry": "spark_bookkeeper.ledger.entry",
    "Log": "spark_bookkeeper.blocking.log",
    "LocalCluster": "spark_bookkeeper.local.cluster",
    "LogReader": "spark_bookkeeper.blocking.log_reader",
    "LogSettings": "spark_bookkeeper.log.format.model",
    "LogWriter": "spark_bookkeeper.blocking.log_writer",
    "LogWriterSettings": "spark_bookkeeper.log.settings",
    "Position": "spark_bookkeeper.log.format.position",
    "ReadHandle": "spark_bookkeeper.blocking.read_handle",
    "Retention": "spark_bookkeeper.log.format.model",
    "WriteHandle": "spark_bookkeeper.blocking.write_handle",
    "optimize": "spark_bookkeeper.datasource.optimize.spark_job",
}

__all__ = [
    "BookKeeper",
    "ClientSettings",
    "Entry",
    "LocalCluster",
    "Log",
    "LogReader",
    "LogSettings",
    "LogWriter",
    "LogWriterSettings",
    "Position",
    "ReadHandle",
    "Retention",
    "WriteHandle",
    "__version__",
    "optimize",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
