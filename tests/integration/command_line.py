"""The command line against one cluster, run in this process."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from spark_bookkeeper.cli import run


class CommandLine:
    def __init__(
        self, uri: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.uri = uri
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def at(self, uri: str) -> CommandLine:
        """The same against another cluster."""
        return CommandLine(uri, self._capfd, self._monkeypatch)

    def __call__(self, *arguments: object, stdin: bytes = b"") -> str:
        """Standard output of a command that succeeds."""
        code, out, err = self.outcome(*arguments, stdin=stdin)
        assert code == 0, err or out
        return out

    def json(self, *arguments: object, stdin: bytes = b"") -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin))

    def lines(self, *arguments: object) -> list[Any]:
        """The documents of a command that prints one per line."""
        return [json.loads(line) for line in self(*arguments).splitlines()]

    def refused(self, *arguments: object, code: int = 1, stdin: bytes = b"") -> str:
        """Standard error of a command that fails with this exit code."""
        found, _, err = self.outcome(*arguments, stdin=stdin)
        assert found == code, err
        return err

    def outcome(self, *arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        """Exit code and both outputs."""
        self._capfd.readouterr()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([*map(str, arguments), "--metadata-service-uri", self.uri])
        out, err = self._capfd.readouterr()
        return code, out, err
