"""How a process logs: one line per event on standard error, for people or for machines.

Whoever logs never waits for whoever reads: behind a pipe that nobody reads, an event loop would stand still for ever.

Facts are taken from what was logged - the message with its places, the values, and errors among them - and not from the line
that was made of it: there nothing says where a value ends that holds spaces.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import sys
import threading
from contextlib import suppress
from itertools import islice
from typing import TextIO

from bookkeeper_metadata.foundation.errors import BookKeeperError

LINES_MAX = 10_000
"""Lines that wait to be written, about 2 MiB."""
_FLUSH_WITHIN_S = 2.0
_PLACE = re.compile(r"%(%|[-#0+]*\d*(?:\.\d+)?[a-zA-Z])")
_KEYED_PLACE = re.compile(r"\b(\w+)=([^\s;,%]*%[^\s;,]*)")
"""A fact of a message that is not filled in yet: its value is what its places are filled with, whatever that holds."""
_FACT = re.compile(
    r"""\b(\w+)=(
        \[[^\]]*\] | \([^)]*\) | \{[^}]*\} | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*"
        | (?:[^\s;,] | [;,](?!\s|\w+=|$))+
    )""",
    re.VERBOSE,
)
"""A fact of a text that is: the value ends where the next word begins, but for a list or what is quoted."""
_TOLD = frozenset(("cause", "detail", "error", "reason"))
"""What these say is a text with facts of its own; what others say is nothing but their value."""


class JsonLines(logging.Formatter):
    """One JSON object a line: time (ms since the epoch), level, logger, message.

    The ``key=value`` facts of a message, by which lines of several processes are put together - ``ledger_id``,
    ``bookie_id``, ``log``, ``epoch``, ``query`` and ``batch`` - stand below ``facts`` as well, as text. Those of errors that it
    tells of are there, too; of two of one name the message's own.
    """

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if facts := _facts(record):
            event["facts"] = facts
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event)


def _facts(record: logging.LogRecord) -> dict[str, str]:
    """The facts of a message, and of errors and texts in it: of two of one name the first."""
    values = record.args if isinstance(record.args, tuple) else ()
    found: dict[str, str] = {}
    texts = [record.getMessage()]
    if values:
        # Other libraries' messages may have places of other kinds; of those the text is looked at.
        with suppress(TypeError, ValueError):
            found, texts = _facts_of_places(str(record.msg), values)
    for error in values:
        if isinstance(error, BookKeeperError):
            found = {**error.facts(), **found}
        if isinstance(error, Exception):
            found = {**_facts_of_text(str(error)), **found}
    for each in texts:
        found = {**_facts_of_text(each), **found}
    return found


def _facts_of_places(template: str, values: tuple[object, ...]) -> tuple[dict[str, str], list[str]]:
    """The facts whose values are to be filled in, and the texts beside them, which may hold further ones."""
    found: dict[str, str] = {}
    texts = []
    left, end = iter(values), 0

    def fill(part: str) -> str:
        count = sum(place != "%" for place in _PLACE.findall(part))
        return part % tuple(islice(left, count))

    for place in _KEYED_PLACE.finditer(template):
        texts.append(fill(template[end : place.start()]))
        name, value = place[1], fill(place[2].rstrip(".:)"))
        found.setdefault(name, value)
        if name in _TOLD:
            texts.append(value)
        end = place.end()
    return found, [*texts, fill(template[end:])]


def _facts_of_text(text: str) -> dict[str, str]:
    return dict(reversed(_FACT.findall(text)))


class QueuedLines(logging.Handler):
    """Writes lines to a stream by a thread of its own. Those that there is no room for are left out, and counted in the log."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str] = queue.Queue(LINES_MAX)
        self._left_out = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._left_out and not self._lines.full():
                left_out, self._left_out = self._left_out, 0
                self._put(_left_out_record(left_out))
            self._put(record)
        except Exception:  # noqa: BLE001 - as every handler of logging's
            self.handleError(record)

    def flush(self) -> None:
        """Wait until what was logged is written, a little: a reader that has stopped to read does not keep a process from ending."""
        lines = self._lines
        with lines.all_tasks_done:
            lines.all_tasks_done.wait_for(lambda: not lines.unfinished_tasks, _FLUSH_WITHIN_S)

    def _put(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._left_out += 1

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            # The reader may have gone.
            with suppress(OSError, ValueError):
                self._stream.write(line + "\n")
                self._stream.flush()
            self._lines.task_done()


def _left_out_record(count: int) -> logging.LogRecord:
    text = "lines of the log were left out: nobody reads it. count=%d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (count,), None)


def set_up_logging(level: str, log_format: str) -> None:
    """Send everything at ``level`` and above to standard error, as ``text`` or ``json``."""
    handler = QueuedLines(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # kazoo logs every connection attempt; what matters of it is raised or logged by us.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
