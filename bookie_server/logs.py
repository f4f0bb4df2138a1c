"""How a process logs: one line per event on standard error, for people or for machines."""

from __future__ import annotations

import json
import logging
import re
import sys

_FACT = re.compile(r"\b(\w+)=([^\s;,]+)")


class JsonLines(logging.Formatter):
    """One JSON object a line: time (ms since the epoch), level, logger, message.

    The ``key=value`` facts of a message, by which lines of several processes are put together - ``ledger_id``,
    ``bookie_id``, ``log``, ``epoch``, ``query`` and ``batch`` - stand below ``facts`` as well, as text.
    """

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Of two of one name the first: a cause that is told at the end has facts of its own.
        if found := _FACT.findall(record.getMessage()):
            event["facts"] = dict(reversed(found))
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event)


def set_up_logging(level: str, log_format: str) -> None:
    """Send everything at ``level`` and above to standard error, as ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # kazoo logs every connection attempt; what matters of it is raised or logged by us.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
