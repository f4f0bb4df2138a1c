"""How a process logs: one line per event on standard error, for people or for machines.

Whoever logs never waits for whoever reads: behind a pipe that nobody reads, an event loop would stand still for ever.

Facts are taken from what was logged - the message with its places, the values, and errors among them - and not from the line
that was made of it: there nothing says where a value ends that holds spaces.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TextIO

from bookkeeper_metadata.foundation.errors import BookKeeperError

SIZE_MAX = 2 * 1024 * 1024
"""Characters that wait to be written; a line may always be longer that waits alone."""
_FLUSH_WITHIN_S = 2.0
ALIKE_MAX = 100
"""Lines of one message that are written in a minute, where strangers can have as many as they can connect."""
_MINUTE_S = 60.0
_OF_STRANGERS = ("bookie_server.serving.", "bookie_server.memory.")
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
        try:
            # Not through the stream's buffer: whoever hangs there holds a lock that the end of a process asks for.
            self._descriptor: int | None = stream.fileno()
        except (OSError, ValueError):
            self._descriptor = None
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._waiting_size = 0
        """Of the lines that are not written yet, in characters."""
        self._left_out = 0
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            with self._changed:
                if self._waiting_size and self._waiting_size + len(line) > SIZE_MAX:
                    self._left_out += 1
                    return
                self._tell_left_out()
                self._put(line)
        except Exception:  # noqa: BLE001 - as every handler of logging's
            self.handleError(record)

    def flush(self) -> None:
        """Wait until what was logged is written, a little: a reader that has stopped to read does not keep a process from ending."""
        with self._changed:
            self._tell_left_out()
            self._changed.wait_for(lambda: not self._waiting_size, _FLUSH_WITHIN_S)

    def _tell_left_out(self) -> None:
        if self._left_out:
            self._put(self.format(_left_out_record(self._left_out)) + "\n")
            self._left_out = 0

    def _put(self, line: str) -> None:
        self._lines.append(line)
        self._waiting_size += len(line)
        self._changed.notify_all()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line = self._lines.popleft()
            # The reader may have gone, the disk be full; the next line may fare better.
            with suppress(Exception):
                self._write(line)
            with self._changed:
                self._waiting_size -= len(line)
                self._changed.notify_all()

    def _write(self, line: str) -> None:
        if self._descriptor is None:
            self._stream.write(line)
            self._stream.flush()
            return
        left = line.encode(errors="backslashreplace")
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Whoever has the other end, or this one too, may have asked for that.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()


class FewAlike(logging.Filter):
    """Leaves out warnings about strangers of which there were ``ALIKE_MAX`` in a minute, and has the next tell how many."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._minutes: dict[str, tuple[float, int]] = {}
        """By message: when its minute began, and how many came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or not record.name.startswith(_OF_STRANGERS):
            return True
        message, now_s = str(record.msg), self._now_s()
        begun_s, count = self._minutes.get(message, (now_s, 0))
        left_out = 0
        if now_s - begun_s >= _MINUTE_S:
            left_out, begun_s, count = max(0, count - ALIKE_MAX), now_s, 0
        self._minutes[message] = begun_s, count + 1
        if left_out:
            record.msg = f"{message} alike_left_out={left_out}"
        elif count + 1 == ALIKE_MAX:
            record.msg = f"{message} (of these no more for up to a minute)"
        return count < ALIKE_MAX


def _left_out_record(count: int) -> logging.LogRecord:
    text = "lines of the log were left out: nobody reads it. count=%d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (count,), None)


def set_up_logging(level: str, log_format: str) -> None:
    """Send everything at ``level`` and above to standard error, as ``text`` or ``json``."""
    # Nobody has it where standard error was closed.
    handler = QueuedLines(sys.stderr) if sys.stderr else logging.NullHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s")
    handler.addFilter(FewAlike())
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # kazoo logs every connection attempt; what matters of it is raised or logged by us.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
