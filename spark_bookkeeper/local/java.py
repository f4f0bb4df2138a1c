"""Finds the one thing pip cannot install: a Java that runs Spark and the ZooKeeper in its jars."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from bookkeeper_metadata.foundation.errors import BookKeeperError

JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_TIMEOUT_S = 30


class JavaNotFoundError(BookKeeperError):
    """There is no Java new enough; install one, or name it in JAVA_HOME."""

    name = "BK_NO_JAVA"
    definite = True

    found: str
    message = (
        f"Java {JAVA_VERSION_MIN} or newer is needed; on Debian or Ubuntu type "
        "`apt-get install default-jre-headless`, or set JAVA_HOME. found={found}"
    )


def find_java() -> Path:
    """The ``java`` to run: JAVA_HOME's if it is new enough, else the PATH's.

    Raises:
        JavaNotFoundError: neither is Java 17 or newer; it says what was found.
    """
    found: list[str] = []
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None and version >= JAVA_VERSION_MIN:
            return candidate
        found.append(f"{candidate} (version {version or 'unknown'})")
    raise JavaNotFoundError(", ".join(found) or "none")


def pyspark_jars() -> Path:
    """The folder of jars in PySpark's wheel, ZooKeeper's among them; does not import pyspark.

    Raises:
        ModuleNotFoundError: PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("PySpark is not installed; type `pip install pyspark`")
    return Path(spec.submodule_search_locations[0]) / "jars"


def _candidates() -> list[Path]:
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    paths = (home and Path(home, "bin", "java"), found and Path(found))
    return [path for path in paths if path and path.exists()]


def _version(java: Path) -> int | None:
    """The major version ``java`` reports, ``None`` when it does not run."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match else None
