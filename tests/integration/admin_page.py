"""``bookkeeper admin`` as a process, and questions to it."""

from __future__ import annotations

import json
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spark_bookkeeper.local.environment import child_environment
from tests.patience import seconds


class AdminPage:
    """One that runs."""

    def __init__(
        self, process: subprocess.Popen[str], url: str, tls: ssl.SSLContext | None = None
    ) -> None:
        self.process = process
        self.url = url
        self._tls = tls

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body, whatever the status."""
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=seconds(30), context=self._tls) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def json(self, path: str) -> Any:
        """A document that is there."""
        status, body = self.get(f"/api/v1/{path}")
        assert status == 200, body
        return json.loads(body)


@contextmanager
def admin_page(uri: str, *flags: str, tls: ssl.SSLContext | None = None) -> Iterator[AdminPage]:
    """Serve the cluster at ``uri``; the process ends well when it is told to. ``tls`` is what it is asked with."""
    program = [sys.executable, "-m", "spark_bookkeeper.cli", "admin", "--port", "0"]
    with subprocess.Popen(
        [*program, *flags, "--metadata-service-uri", uri],
        env=child_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"(https?://\S+)/ shows ", line)
        assert found is not None, line
        try:
            yield AdminPage(process, found[1], tls)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(seconds(30)) == 0
