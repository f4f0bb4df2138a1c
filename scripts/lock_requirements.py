"""Writes requirements.lock, the hashes of all that constraints.txt names: ``python -m scripts.lock_requirements``.

constraints.txt stays the one list of versions. The lock repeats each with the SHA-256 of every file
that the index has of it, for all platforms and Pythons, and says where it is needed. scripts/bootstrap.sh installs from the lock
alone. With ``--check`` nothing is asked for or written: it says what in the lock does not fit
constraints.txt and pyproject.toml, and fails if anything does not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
INSTALLERS = ("pip", "setuptools")
"""What scripts/bootstrap.sh installs first: pip, and what builds a source archive (PySpark has no wheel)."""
HEAD = """\
# The versions of constraints.txt with the hashes of their files. Written by
# `python -m scripts.lock_requirements`; CONTRIBUTING.md says how to change a version.
"""


@dataclass(frozen=True)
class Locked:
    """What the lock says of a package: ``hashes`` are hexadecimal SHA-256, an empty ``marker`` is: always."""

    version: str
    marker: str
    hashes: tuple[str, ...]


def parse_constraints(text: str) -> dict[str, str]:
    """Versions by canonical name."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {str(canonicalize_name(name)): version for name, version in pairs}


def parse_lock(text: str) -> dict[str, Locked]:
    """What is locked, by canonical name.

    Raises:
        ValueError: a line is none that this script writes.
    """
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    locked = {}
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        wanted, *options = line.split(" --hash=")
        pin, _, marker = wanted.partition(";")
        name, separator, version = pin.strip().partition("==")
        hashes = [option.strip() for option in options]
        if not separator or not all(each.startswith("sha256:") for each in hashes):
            raise ValueError(f"not a line of a lock: {line!r}")
        locked[str(canonicalize_name(name))] = Locked(
            version, marker.strip(), tuple(each.removeprefix("sha256:") for each in hashes)
        )
    return locked


def render(lock: Mapping[str, Locked]) -> str:
    """The file's text; the same lock always gives the same."""
    lines = [HEAD]
    for name, locked in sorted(lock.items()):
        marker = f" ; {locked.marker}" if locked.marker else ""
        hashes = (f" \\\n    --hash=sha256:{each}" for each in sorted(locked.hashes))
        lines.append(f"{name}=={locked.version}{marker}{''.join(hashes)}\n")
    return "".join(lines)


def requirements_of(project: Mapping[str, object]) -> Iterator[Requirement]:
    """What a parsed pyproject.toml asks for, with every extra and for the build; itself aside."""
    match project:
        case {
            "build-system": {"requires": [*of_build]},
            "project": {
                "name": str(own),
                "dependencies": [*dependencies],
                "optional-dependencies": dict(extras),
            },
        }:
            wanted = [
                *of_build,
                *dependencies,
                *(each for extra in extras.values() for each in extra),
            ]
        case _:
            raise ValueError("pyproject.toml lacks its dependencies")
    for requirement in map(Requirement, [*INSTALLERS, *wanted]):
        if requirement.name != own:
            yield requirement


def defects(
    pins: Mapping[str, str], lock: Mapping[str, Locked], wanted: Iterable[Requirement]
) -> Iterator[str]:
    """Why ``lock`` is not that of these pins and requirements, a sentence for each reason."""
    for name, version in pins.items():
        if name not in lock:
            yield f"{name}=={version} of constraints.txt is not locked"
        elif lock[name].version != version:
            yield f"{name} is locked at {lock[name].version}, constraints.txt has {version}"
    for name, locked in lock.items():
        if name not in pins:
            yield f"{name}=={locked.version} is locked and not in constraints.txt"
        if not locked.hashes:
            yield f"{name} has no hash"
    for requirement in wanted:
        found = lock.get(str(canonicalize_name(requirement.name)))
        if found is None or not requirement.specifier.contains(found.version, prereleases=True):
            has = found.version if found else "nothing"
            yield f"pyproject.toml asks for {requirement}, {has} is locked"


def resolve() -> dict[str, Locked]:
    """What constraints.txt and pyproject.toml come to, as uv finds it on the index."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    oldest = project["project"]["requires-python"].removeprefix(">=")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
    command += ["--python-version", oldest, "--all-extras", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--constraints", str(CONSTRAINTS)]
    command += [str(PROJECT), "-"]
    made = subprocess.run(
        command, input="\n".join(INSTALLERS), stdout=subprocess.PIPE, check=True, text=True
    )
    return parse_lock(made.stdout)


def main(arguments: Sequence[str]) -> int:
    """Writes or checks; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="only say what is stale, without a network"
    )
    is_check = parser.parse_args(arguments).check
    wanted = requirements_of(tomllib.loads(PROJECT.read_text(encoding="utf-8")))
    pins = parse_constraints(CONSTRAINTS.read_text(encoding="utf-8"))
    lock = parse_lock(LOCK.read_text(encoding="utf-8")) if is_check else resolve()
    found = list(defects(pins, lock, wanted))
    for defect in found:
        print(defect, file=sys.stderr)
    if found and is_check:
        print("run: python -m scripts.lock_requirements", file=sys.stderr)
    if not found and not is_check:
        LOCK.write_text(render(lock), encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
