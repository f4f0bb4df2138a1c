"""A real browser without a window: Debian's Chromium, told what to do by its driver over the W3C WebDriver protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark_bookkeeper.local.ports import free_port
from tests.patience import Deadline, seconds

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")
FLAGS = (
    # As root, in a container: there is no sandbox to be had. And nobody is called, whom it would look for.
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--window-size=1300,1500"),
)


class Browser:
    """One session."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        options = {"binary": BROWSER, "args": list(FLAGS)}
        logs = {"goog:loggingPrefs": {"browser": "ALL"}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, **logs}
        found = self._ask("POST", "/session", capabilities={"alwaysMatch": wanted})
        self._session = f"/session/{found['sessionId']}"

    def open(self, url: str) -> None:
        """Load a page."""
        self._ask("POST", f"{self._session}/url", url=url)

    def run(self, script: str, *arguments: object) -> Any:
        """What a piece of JavaScript returns."""
        path = f"{self._session}/execute/sync"
        return self._ask("POST", path, script=script, args=list(arguments))

    def text(self, selector: str) -> str:
        """What a person reads there."""
        return str(
            self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        )

    def click(self, selector: str) -> None:
        """The first that matches."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Until the page has come to show it."""
        waited = Deadline(60)
        while not condition():
            assert not waited.has_passed, f"{what}: {self.text('body')}"
            time.sleep(0.1)

    def screenshot(self, path: Path) -> None:
        """The window as a person sees it."""
        found = self._ask("GET", f"{self._session}/screenshot")
        path.write_bytes(base64.b64decode(found))

    def complaints(self) -> list[str]:
        """What the browser had to say since it was asked last: errors of scripts, refused requests."""
        found = self._ask("POST", f"{self._session}/se/log", type="browser")
        return [each["message"] for each in found]

    def close(self) -> None:
        self._ask("DELETE", self._session)

    def _ask(self, method: str, path: str, **body: object) -> Any:
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(self._driver + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=seconds(120)) as answer:
            return json.load(answer)["value"]


@contextmanager
def browser() -> Iterator[Browser]:
    """One that is closed afterwards."""
    assert DRIVER is not None
    port = free_port(set())
    with subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "started successfully" in line:
                    break
            session = Browser(f"http://127.0.0.1:{port}")
            yield session
            session.close()
        finally:
            process.terminate()
