"""How kazoo waits for a server: not for ever for one that says nothing, and without a descriptor of its own.

kazoo gives one attempt to connect the whole session timeout, divided among the servers. Of a single
one that accepts connections while it is still starting, and never answers on them, that is as long
as the request may take that waits for the connection. And its ``select`` opens a descriptor each time:
where there is none left, a connection that is lost would stay lost, and the session with it.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_ATTEMPTS = 3
"""To connect, that fit into a session timeout: the second and third may meet a server that has started."""
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLNVAL


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a patience of their own; see the module."""

    def __init__(self, session_timeout_s: float) -> None:
        super().__init__()
        self._attempt_s = session_timeout_s / _ATTEMPTS
        self.is_connected: Callable[[], bool] = lambda: False
        """Whether the session has a connection; until then what is waited for is an attempt."""

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        _exceptional: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As ``select.select``, but for numbers of any size, and for an attempt with a limit."""
        if not self.is_connected():
            timeout = self._attempt_s if timeout is None else min(timeout, self._attempt_s)
        poll = select.poll()
        for file in {*readers, *writers}:
            wanted = (select.POLLIN if file in readers else 0) | (
                select.POLLOUT if file in writers else 0
            )
            poll.register(file, wanted)
        found = dict(poll.poll(None if timeout is None else timeout * 1000))
        return (
            [file for file in readers if found.get(_number(file), 0) & _READABLE],
            [file for file in writers if found.get(_number(file), 0) & _WRITABLE],
            [],
        )

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> Any:
        """A connection to a server, within an attempt."""
        timeout = min(timeout, self._attempt_s)
        return super().create_connection(*arguments, timeout=timeout, **options)


def _number(file: Any) -> int:
    return file if isinstance(file, int) else int(file.fileno())
