"""Metrics of logs: how far they reach, and how far behind their consumers are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client.metrics_core import Metric

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.families import Labelled, gauge, gauges
from spark_bookkeeper.admin.log_documents import survey_logs
from spark_bookkeeper.datasource.session import Session

_LOGGER = logging.getLogger(__name__)


class LogsExposition:
    """A collector of ``prometheus_client``'s registry; asks the cluster at each scrape."""

    def __init__(self, open_session: Callable[[], Session]) -> None:
        self._open_session = open_session

    def collect(self) -> Iterator[Metric]:
        """All families; of a cluster that cannot be reached only that it cannot."""
        try:
            found = survey_logs(self._open_session())
        except BookKeeperError as error:
            _LOGGER.warning("no metrics of logs. error=%s detail=%s", error.name, error)
            yield gauge("bookkeeper_logs_up", "1 if the logs could be listed", 0)
            return
        logs = [each for each in found if each["error"] is None]
        yield gauge("bookkeeper_logs_up", "1 if the logs could be listed", 1)
        unread = len(found) - len(logs)
        yield gauge("bookkeeper_logs_unreadable", "Logs whose metadata nobody understands", unread)
        for key, what in _OF_LOGS.items():
            values = [({"log": each["log"]}, each[key]) for each in logs]
            yield gauges(f"bookkeeper_log_{key}", what, values)
        for key, what in _OF_CONSUMERS.items():
            yield gauges(f"bookkeeper_consumer_{key}", what, _by_consumer(logs, key))


_OF_LOGS = {
    "rows": "Rows that can be read",
    "next_row": "Number of the next row",
    "size_bytes": "Payload bytes, of one copy",
    "last_commit_ms": "Of the last commit, ms since the epoch",
}
_OF_CONSUMERS = {
    "lag": "Committed rows that the consumer has not read",
    "is_live": "1 if retention that waits for consumers waits for it",
    "touched_ms": "When it moved or said that it lives, ms since the epoch",
}


def _by_consumer(logs: Iterable[dict[str, Any]], key: str) -> Labelled:
    for log in logs:
        for each in log["consumers"]:
            yield {"log": log["log"], "consumer": each["consumer"]}, float(each[key])
