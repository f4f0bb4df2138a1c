"""The runbooks of ``docs/operations.md``, read by a machine and walked by tests as an operator would.

Below the heading ``## Runbooks`` each ``###`` heading is a runbook, and each fenced block with a name behind its
language a *step* of it: a block of ``sh`` is run, one of ``toml`` is saved. The words behind the name say what else
is known of it: ``service`` (it goes on until it is ended), ``exit=N`` (the code that the runbook announces). Blocks
without a language show what is printed.

Variables of the shell stand for what the operator knows; the table at the beginning of the chapter lists them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Self

import pytest

from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from spark_bookkeeper.local.environment import child_environment
from tests.patience import seconds
from tests.sources import REPOSITORY

DOCUMENT = "docs/operations.md"
CHAPTER = "\n## Runbooks\n"
PROGRAMS = ("bash", "curl", "tar")
"""What the runbooks use besides ours."""
STEP_TIMEOUT_S = 300.0
"""On a quiet machine; a step that waits for the cluster has no end of its own."""
SERVICE_END_S = 30.0
_BLOCK = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"\$\{?([A-Z][A-Z_]*)")


@dataclass(frozen=True)
class Step:
    """One block of a runbook: a name, and what to do."""

    name: str
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def variables(self) -> frozenset[str]:
        """Those that it needs."""
        return frozenset(_VARIABLE.findall(self.text))

    @property
    def is_service(self) -> bool:
        """It runs until it is ended."""
        return "service" in self.words

    @property
    def exit_code(self) -> int:
        """What the runbook says that it ends with."""
        announced = [word.removeprefix("exit=") for word in self.words if word.startswith("exit=")]
        return int(announced[0]) if announced else 0


@dataclass(frozen=True)
class Runbook:
    """One situation: its heading, its steps in their order, and its text without them."""

    title: str
    steps: tuple[Step, ...]
    prose: str

    def step(self, name: str) -> Step:
        """The step of that name."""
        (found,) = (each for each in self.steps if each.name == name)
        return found


def chapter() -> str:
    """The text below the heading of the runbooks, up to the next chapter."""
    text = (REPOSITORY / DOCUMENT).read_text(encoding="utf-8")
    return text.partition(CHAPTER)[2].partition("\n## ")[0]


def read_runbooks(text: str) -> dict[str, Runbook]:
    """Every runbook of a chapter by its title."""
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    titles, bodies = parts[1::2], parts[2::2]
    return {
        title: Runbook(title, tuple(_steps(body)), _BLOCK.sub("", body))
        for title, body in zip(titles, bodies, strict=True)
    }


def _steps(body: str) -> Iterator[Step]:
    for block in _BLOCK.finditer(body):
        language, *words = block["info"].split()
        name = words[0] if words else ""
        yield Step(name, language, tuple(words[1:]), block["text"])


def missing_programs() -> list[str]:
    """Programs that a walk needs and this machine lacks."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


class Walk:
    """A way through one runbook, step by step in its order, with what the operator of this cluster knows.

    Steps may be left out - a runbook has branches - and repeated, for one bookie after the other.
    """

    def __init__(self, title: str, uri: str, directory: Path, **variables: object) -> None:
        self._runbook = read_runbooks(chapter())[title]
        self._variables: Mapping[str, str] = {name: str(each) for name, each in variables.items()}
        self._uri = uri
        self._directory = directory
        self._reached = 0
        self._services = ExitStack()

    def __enter__(self) -> Self:
        if missing := missing_programs():
            pytest.skip(f"programs that the runbooks use are not here: {missing}")
        programs = self._directory / "programs"
        programs.mkdir(exist_ok=True)
        command = programs / "bookkeeper"
        line = f'exec "{sys.executable}" -W ignore -m spark_bookkeeper.cli "$@"'
        command.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        command.chmod(0o755)
        return self

    def __exit__(self, *exception: object) -> None:
        self._services.close()

    def do(self, name: str, **variables: object) -> str:
        """Run a step to its end, which must be the one announced; returns what it printed, errors too."""
        step = self._next(name, "sh")
        ended = subprocess.run(
            self._command(step),
            env=self._environment(step, variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds(STEP_TIMEOUT_S),
            text=True,
            check=False,
        )
        assert ended.returncode == step.exit_code, f"{name}: {ended.stdout}"
        return ended.stdout

    def begin(self, name: str, **variables: object) -> subprocess.Popen[bytes]:
        """Start a step that is a service; it is ended with the walk."""
        step = self._next(name, "sh")
        assert step.is_service
        with (self._directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._command(step),
                env=self._environment(step, variables),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._services.callback(_end, process)
        return process

    def save(self, name: str, path: Path, **variables: object) -> None:
        """Save a step that is a file, its variables replaced."""
        step = self._next(name, "toml")
        known = {**self._variables, **{each: str(value) for each, value in variables.items()}}
        known[METADATA_URI_VARIABLE] = self._uri
        path.write_text(Template(step.text).substitute(known), encoding="utf-8")

    def _next(self, name: str, language: str) -> Step:
        step = self._runbook.step(name)
        place = self._runbook.steps.index(step)
        assert step.language == language
        assert place >= self._reached or self._is_repeated(name), f"{name} comes earlier"
        self._reached = place
        return step

    def _is_repeated(self, name: str) -> bool:
        """Whether the way leads back on purpose: the step is part of what is done for each bookie."""
        return "each" in self._runbook.step(name).words

    def _command(self, step: Step) -> list[str]:
        # Pipes fail with any of their parts, which a person would see.
        return ["bash", "-euo", "pipefail", "-c", step.text]

    def _environment(self, step: Step, variables: Mapping[str, object]) -> dict[str, str]:
        own = {name: str(value) for name, value in variables.items()}
        path = f"{self._directory / 'programs'}{os.pathsep}{os.environ['PATH']}"
        found = {**self._variables, **own, METADATA_URI_VARIABLE: self._uri, "PATH": path}
        missing = step.variables - found.keys()
        assert not missing, f"{step.name} needs {missing}"
        return {**child_environment(), **found}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing is left of it, nor of what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(seconds(SERVICE_END_S))
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
