"""Regenerates every checked-in protobuf module of the repository: ``python scripts/generate_protobuf.py``.

Generated files lie beside their ``.proto`` and are checked in, so that neither users nor
executors need a compiler. All are generated with the repository root as import path, which makes
each descriptor's name its path and every import absolute. ``--into DIR`` writes elsewhere; the
test suite compares such a copy with what is checked in.
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
FOLDERS = ("metadata/proto", "bookie_server/wire", "spark_bookkeeper/log")
"""Where ``.proto`` files may lie."""


def proto_files() -> list[str]:
    """Every ``.proto`` of the repository, relative to its root, sorted."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).glob("*.proto"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


def generate(target: Path) -> list[Path]:
    """Write the ``_pb2.py`` and ``_pb2.pyi`` of every ``.proto`` below ``target``.

    gRPC services are declared by hand in this project, so no ``_grpc.py`` is made.

    Raises:
        SystemExit: the compiler refused a file; its message is on standard error.
    """
    includes = [f"-I{ROOT}", f"-I{files('grpc_tools') / '_proto'}"]
    made: list[Path] = []
    for name in proto_files():
        arguments = ["protoc", *includes, f"--python_out={target}", f"--pyi_out={target}", name]
        if protoc.main(arguments) != 0:
            raise SystemExit(f"protoc refused {name}")
        stem = name.removesuffix(".proto")
        stub = target / f"{stem}_pb2.pyi"
        # protoc writes a bare Mapping, which strict mypy refuses.
        stub.write_text(re.sub(r"\b_Mapping\]", "_Mapping[str, object]]", stub.read_text()))
        made += [target / f"{stem}_pb2.py", stub]
    return made


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
