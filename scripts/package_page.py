"""The README as a package page shows it: a page without the repository, so its links name the forge.

A build hook of hatchling. The forge's address stands once, in pyproject.toml under ``[project.urls]``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


def with_absolute_links(text: str, repository: str) -> str:
    """``text`` with every link into the repository led to the forge; anchors stay."""
    return _RELATIVE.sub(rf"]({repository.rstrip('/')}/blob/main/\1)", text)


class PackagePage(MetadataHookInterface):
    """Sets the package's readme, in a wheel, a source archive and an editable installation alike."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = with_absolute_links(readme, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
