"""Regenerates every checked-in protobuf module of the repository: ``python scripts/generate_protobuf.py``.

Generated files lie beside their ``.proto`` and are checked in, so that neither users nor
executors need a compiler. Each is generated with the folder its package lies in as import path, which
makes the descriptor's name that of the module and every import absolute. ``--into DIR`` writes
elsewhere; the test suite compares such a copy with what is checked in.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "": ("bookie_server/wire", "spark_bookkeeper/log/format"),
    "metadata": ("bookkeeper_metadata/proto",),
}
"""By import path, relative to the repository's root: folders of ``.proto`` files in it."""


def generate(target: Path) -> list[Path]:
    """Write the ``_pb2.py`` and ``_pb2.pyi`` of every ``.proto`` below ``target``.

    gRPC services are declared by hand in this project, so no ``_grpc.py`` is made.

    Raises:
        SystemExit: the compiler refused a file; its message is on standard error.
    """
    made: list[Path] = []
    for import_path, folders in FOLDERS.items():
        source, destination = ROOT / import_path, target / import_path
        destination.mkdir(parents=True, exist_ok=True)
        protos = (proto for folder in folders for proto in (source / folder).glob("*.proto"))
        names = sorted(str(proto.relative_to(source)) for proto in protos)
        made += [path for name in names for path in _compile(name, source, destination)]
    return made


def _compile(name: str, source: Path, destination: Path) -> tuple[Path, Path]:
    """The two modules of one ``.proto``, written below ``destination``."""
    includes = [f"-I{source}", f"-I{files('grpc_tools') / '_proto'}"]
    written = [f"--python_out={destination}", f"--pyi_out={destination}"]
    if protoc.main(["protoc", *includes, *written, name]) != 0:
        raise SystemExit(f"protoc refused {name}")
    stem = name.removesuffix(".proto")
    stub = destination / f"{stem}_pb2.pyi"
    # protoc writes a bare Mapping, which strict mypy refuses.
    stub.write_text(re.sub(r"\b_Mapping\]", "_Mapping[str, object]]", stub.read_text()))
    return destination / f"{stem}_pb2.py", stub


def main(arguments: Sequence[str]) -> int:
    """Generate in place, or below ``--into``; prints what it wrote."""
    parser = argparse.ArgumentParser(description="regenerate the protobuf modules")
    parser.add_argument("--into", type=Path, default=ROOT, help="folder to write below")
    target = parser.parse_args(arguments).into
    target.mkdir(parents=True, exist_ok=True)
    for path in generate(target):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
