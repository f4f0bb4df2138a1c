"""What the machine has that Spark and a bookie need; looked at where the command runs."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys

from bookkeeper_metadata.version import __version__
from spark_bookkeeper.admin.doctor.findings import Finding, good, problem, warning
from spark_bookkeeper.local.java import JavaNotFoundError, find_java

PYTHON_MIN = (3, 11)
DESCRIPTORS_MIN = 4_096
"""A bookie keeps storage's share of them free, and takes a connection for each of the others."""
_ASK_TIMEOUT_S = 60
_ASK = """
import json, sys
import pyarrow, pyspark
import spark_bookkeeper.datasource
from bookkeeper_metadata.version import __version__
print(json.dumps({"python": sys.version_info[:2], "product": __version__, "pyspark": pyspark.__version__,
                  "pyarrow": pyarrow.__version__}))
"""


def examine_machine() -> list[Finding]:
    """Python, Java, the Python that Spark's workers use, and how many files a process may open."""
    return [_python(), _java(), _workers_python(), _descriptors()]


def _python() -> Finding:
    found = f"Python {platform.python_version()}, spark-bookkeeper {__version__}"
    if sys.version_info[:2] < PYTHON_MIN:
        return problem("python", found, "PySpark needs Python 3.11 or newer")
    return good("python", found)


def _java() -> Finding:
    try:
        return good("java", str(find_java()))
    except JavaNotFoundError as missing:
        return problem("java", "none that runs Spark", str(missing))


def _workers_python() -> Finding:
    """What runs on executors; ``PYSPARK_PYTHON`` says which, as Spark takes it."""
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    advice = f"install spark-bookkeeper {__version__} in it, or set PYSPARK_PYTHON to a Python that has it"
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
            # What stands in the current folder is none of what Spark's workers have.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return problem("spark's python", f"{python} does not run: {error}", advice)
    if done.returncode:
        last_line = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return problem("spark's python", f"{python}: {last_line}", advice)
    answer = json.loads(done.stdout.splitlines()[-1])
    version = ".".join(map(str, answer["python"]))
    found = f"{python}: Python {version}, PySpark {answer['pyspark']}, pyarrow {answer['pyarrow']}"
    if answer["product"] != __version__:
        found += f", spark-bookkeeper {answer['product']}"
        return problem("spark's python", found, advice)
    if tuple(answer["python"]) != sys.version_info[:2]:
        return problem(
            "spark's python",
            found,
            f"driver and workers must have the same Python: here it is {platform.python_version()}",
        )
    return good("spark's python", found)


def _descriptors() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_MIN:
        return warning(
            "descriptors",
            f"a process may open {hard} files",
            f"raise the hard limit (ulimit -Hn) to {DESCRIPTORS_MIN} or more: a bookie refuses "
            "connections beyond it",
        )
    shown = "any number of" if hard == resource.RLIM_INFINITY else hard
    return good("descriptors", f"a process may open {shown} files")
