"""Apache BookKeeper's jars by Maven and the client compiled against them, fetched once and kept.

They are no part of the project's environment: a comparison is for those who want one. What cannot be
had ends in one error that says what is missing; nothing here is worth a traceback.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_bookkeeper.local.java import JavaNotFoundError, find_java

BOOKKEEPER_VERSION = "4.18.0"
CLIENT_SOURCE = Path(__file__).with_name("PeerClient.java")
CLIENT_CLASS = "PeerClient"
FETCH_TIMEOUT_S = 900
"""Seventy jars, 80 MB, over a slow line."""
COMPILE_TIMEOUT_S = 120

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId>
  <artifactId>peers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>{exclusions}
    </dependency>"""
_NOTHING_ELSE = """
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""


class PeerUnavailableError(Exception):
    """Something that a comparison needs is not on this machine and could not be fetched."""


@dataclass(frozen=True)
class Jar:
    """A jar of Maven's, with what it needs unless it ``is_alone``."""

    group: str
    artifact: str
    version: str
    is_alone: bool = False

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True)
class Artifacts:
    """What runs Apache's bookies and its client."""

    java: Path
    jars: Path
    """Folder of all jars."""
    classes: Path
    """Folder of the compiled client."""

    def command(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """Runs a class with a ``main``, of the jars or the client's."""
        path = os.pathsep.join((str(self.classes), f"{self.jars}/*"))
        return [str(self.java), *options, "-cp", path, main, *arguments]


def cache_directory() -> Path:
    """Where fetched artifacts are kept, for all clones of one user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "spark-bookkeeper" / "peers"


def prepare(cache: Path, source: Path = CLIENT_SOURCE, beside: Sequence[Jar] = ()) -> Artifacts:
    """Fetch, and compile a client, what is not in ``cache`` yet; ``beside`` are further jars that the client needs.

    Raises:
        PeerUnavailableError: says what is missing.
    """
    try:
        java = find_java()
    except JavaNotFoundError as error:
        raise PeerUnavailableError(str(error)) from error
    name = "".join(f"+{jar.artifact}-{jar.version}" for jar in beside)
    jars = cache / f"bookkeeper-{BOOKKEEPER_VERSION}{name}"
    if not jars.is_dir():
        server = Jar("org.apache.bookkeeper", "bookkeeper-server", BOOKKEEPER_VERSION)
        fetch([server, *beside], jars)
    # Named after what it is made of: another version of either is compiled anew.
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    classes = cache / f"client-{BOOKKEEPER_VERSION}-{digest}"
    if not classes.is_dir():
        _compile(java, jars, source, classes)
    return Artifacts(java, jars, classes)


def fetch(jars: Sequence[Jar], target: Path) -> None:
    """Fetch ``jars`` into the folder ``target``, which is not there yet.

    Raises:
        PeerUnavailableError: says which.
    """
    what = str(jars[0])
    maven = _tool(shutil.which("mvn"), "mvn", f"to fetch {what}", "apt-get install maven")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        pom = Path(place, "pom.xml")
        listed = "\n".join(map(_dependency, jars))
        pom.write_text(_POM.format(dependencies=listed), encoding="utf-8")
        # Strict: a file that its repository's checksum does not fit is refused, and no warning passed over.
        command = [maven, "-q", "-B", "-C", "-f", str(pom), "dependency:copy-dependencies"]
        command.append(f"-DoutputDirectory={place}/jars")
        run(command, FETCH_TIMEOUT_S, f"Maven could not fetch {what}")
        # Whole or not at all: a fetch that was interrupted must not pass for one.
        Path(place, "jars").replace(target)


def _dependency(jar: Jar) -> str:
    return _DEPENDENCY.format(
        group=jar.group,
        artifact=jar.artifact,
        version=jar.version,
        exclusions=_NOTHING_ELSE if jar.is_alone else "",
    )


def _compile(java: Path, jars: Path, source: Path, target: Path) -> None:
    beside = java.with_name("javac")
    found = str(beside) if beside.exists() else shutil.which("javac")
    javac = _tool(
        found, "javac", f"to compile {source.name}", "apt-get install default-jdk-headless"
    )
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        command = [javac, "-nowarn", "-d", f"{place}/classes", "-cp", f"{jars}/*"]
        command.append(str(source))
        run(command, COMPILE_TIMEOUT_S, f"javac could not compile {source.name}")
        Path(place, "classes").replace(target)


def _tool(found: str | None, name: str, purpose: str, advice: str) -> str:
    if found is None:
        raise PeerUnavailableError(f"{name} is missing, {purpose}; on Debian or Ubuntu: {advice}")
    return found


def run(command: list[str], timeout_s: float, failure: str) -> None:
    """Run a command to its end.

    Raises:
        PeerUnavailableError: it failed; says why, by its first line of output that is an error, or its last.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailableError(f"{failure} within {timeout_s:.0f} s") from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = next((line for line in lines if "ERROR" in line or "error:" in line), None)
        raise PeerUnavailableError(f"{failure}: {reason or ' '.join(lines[-1:])}")
