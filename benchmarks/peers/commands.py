"""Drives a client process: a command goes to its input as a line, its answer comes as a line of JSON.

The commands, the same for both clients: ``add HOW SIZE WINDOW SECONDS EVERY`` (latency of each
EVERY-th), ``paced SIZE PER_S SECONDS``, ``prepare SIZE COUNT``, ``read HOW SIZE LEDGER SECONDS``,
``recover ENTRIES WINDOW SECONDS``, ``life SECONDS``, ``forget`` (deletes all ledgers made so far).
"""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from spark_bookkeeper.local.errors import log_tail

ANSWER_TIMEOUT_S = 180.0
"""Longest a command may take: a hundred times the seconds it is usually given."""
STOP_TIMEOUT_S = 20.0


class ClientFailedError(Exception):
    """A client process ended, or did not answer."""

    def __init__(self, name: str, detail: str, log: str) -> None:
        super().__init__(name, detail, log)
        self.name = name
        self.detail = detail
        self.log = log

    def __str__(self) -> str:
        return f"client of {self.name} failed: {self.detail}\n{self.log}".rstrip()


class CommandFailedError(ClientFailedError):
    """A client answered with an error, and takes the next command."""


class CommandedClient:
    """A client process; it ends with its ``with`` block, and when whoever started it is gone."""

    def __init__(
        self, name: str, command: Sequence[str], log_path: Path, env: Mapping[str, str]
    ) -> None:
        self._name = name
        self._log_path = log_path
        with log_path.open("ab") as log:
            # A session of its own: Ctrl-C is for the benchmark, whose end is the end of its input.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                bufsize=0,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def ask(self, *words: object) -> dict[str, float]:
        """One command and its answer, which is numbers.

        Raises:
            CommandFailedError: it is an error.
            ClientFailedError: there is none.
        """
        self.tell(*words)
        return self.greet()

    def tell(self, *words: object) -> None:
        """Give a command; its answer is the next. Raises ClientFailedError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        except BrokenPipeError as error:
            raise self._failure("its process ended") from error

    def greet(self) -> dict[str, float]:
        """The next answer; of a client that says when it is ready, the first.

        Raises: as :meth:`ask`.
        """
        return {key: float(value) for key, value in self.next_answer().items()}

    def next_answer(self) -> dict[str, Any]:
        """The next answer, whatever it holds; raises as :meth:`ask` does."""
        assert self._process.stdout is not None
        is_answered, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        if not is_answered:
            raise self._failure(f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._failure("its process ended")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise self._failure(f"it answered {line!r}") from error
        if "error" in answer:
            raise CommandFailedError(self._name, answer["error"], log_tail(self._log_path))
        return answer

    def stop(self) -> None:
        """End its input and wait until it has ended; one that does not in time is killed. Idempotent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        finally:  # a second Ctrl-C must not leave it behind either
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def _failure(self, detail: str) -> ClientFailedError:
        return ClientFailedError(self._name, detail, log_tail(self._log_path))
