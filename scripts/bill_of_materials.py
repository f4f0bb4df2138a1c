"""Writes what an installation is made of, beside the wheel: ``python -m scripts.bill_of_materials dist``.

A document of CycloneDX 1.6 in JSON for each wheel in the folder: the product with its files, and
what a plain ``pip install`` of it brings along, with versions, licences and the hashes of
requirements.lock. Made twice from the same files it is the same, byte for byte: it has a time
only where ``SOURCE_DATE_EPOCH`` gives one, and its serial number comes from its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import cast

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lock_requirements import LOCK, Locked, parse_lock

PYTHON = "Programming Language :: Python :: 3."
LICENSE = "License :: OSI Approved :: "
SPELLINGS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "MIT License": "MIT",
}
"""What packages call a licence, where SPDX has another name for just the same."""


def closure(product: Distribution) -> dict[str, set[str]]:
    """What the product and each package it needs ask for, by canonical name.

    On Linux, under any of the Pythons that the product's classifiers name: the document does not
    depend on the one that makes it.

    Raises:
        PackageNotFoundError: one of them is not installed here.
    """
    environments = [
        {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
        | {"python_version": version, "python_full_version": f"{version}.0"}
        for version in _pythons(product)
    ]
    needs: dict[str, set[str]] = {}
    ahead = [(product, "")]
    seen = set()
    while ahead:
        package, extra = ahead.pop()
        seen.add((package.name, extra))
        found = needs.setdefault(_name_of(package), set())
        for requirement in map(Requirement, package.requires or ()):
            marker = requirement.marker
            if marker and not any(
                marker.evaluate({**each, "extra": extra}) for each in environments
            ):
                continue
            other = distribution(requirement.name)
            found.add(_name_of(other))
            extras = ("", *requirement.extras)
            ahead += [(other, each) for each in extras if (other.name, each) not in seen]
    return needs


def _pythons(product: Distribution) -> Iterator[str]:
    for classifier in _stated(product, "Classifier"):
        if classifier.startswith(PYTHON):
            yield classifier.rpartition(" ")[2]


def _stated(package: Distribution, field: str) -> list[str]:
    """Every value of a field of the metadata; an index of one that is missing is deprecated."""
    return package.metadata.get_all(field) or []


def _name_of(package: Distribution) -> str:
    return str(canonicalize_name(package.name))


def license_of(package: Distribution) -> License:
    """What its metadata declare, newest form first; a name of no licence in particular stays as it is."""
    classifiers = _stated(package, "Classifier")
    approved = [each.removeprefix(LICENSE) for each in classifiers if each.startswith(LICENSE)]
    texts = [*_stated(package, "License-Expression"), *_stated(package, "License"), *approved]
    stated = next((text for text in texts if text and "\n" not in text), "unknown")
    return LicenseFactory().make_from_string(
        SPELLINGS.get(stated, stated), license_acknowledgement=LicenseAcknowledgement.DECLARED
    )


def bill_of(
    product: Distribution, files: Iterable[Path], lock: Mapping[str, Locked], made_at_s: int | None
) -> str:
    """The document, for the product that these files distribute, made at a time of Unix or at none.

    Raises:
        ValueError: an installed package is not of the locked version.
    """
    needs = closure(product)
    own = _name_of(product)
    references = [_reference(path.name, [hash_of(path)]) for path in files]
    components = {own: _component(product, ComponentType.APPLICATION, references)}
    for name in needs.keys() - {own}:
        package = distribution(name)
        if name not in lock or lock[name].version != package.version:
            raise ValueError(f"{name} {package.version} is installed and not locked")
        # An address that fits every index: which one served the files does not matter, their hashes do.
        reference = _reference(str(_address(package)), lock[name].hashes)
        components[name] = _component(package, ComponentType.LIBRARY, [reference])
    bom = Bom(
        components=[component for name, component in components.items() if name != own],
        metadata=BomMetaData(
            component=components[own],
            tools=ToolRepository(components=[this_component()]),
            timestamp=datetime.fromtimestamp(made_at_s or 0, UTC),
        ),
    )
    for name, needed in needs.items():
        bom.register_dependency(components[name], [components[each] for each in needed])
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    if made_at_s is None:
        del document["metadata"]["timestamp"]
    return _with_serial_number(document)


def _with_serial_number(document: dict[str, object]) -> str:
    document.pop("serialNumber")
    content = json.dumps(document, sort_keys=True)
    serial = uuid.uuid5(uuid.NAMESPACE_OID, hashlib.sha256(content.encode()).hexdigest())
    return json.dumps({**document, "serialNumber": serial.urn}, indent=2, sort_keys=True) + "\n"


def hash_of(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reference(url: str, hashes: Iterable[str]) -> ExternalReference:
    return ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(url),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in hashes],
    )


def _address(package: Distribution) -> PackageURL:
    return PackageURL("pypi", None, _name_of(package), package.version)


def _component(
    package: Distribution, kind: ComponentType, references: Iterable[ExternalReference]
) -> Component:
    address = _address(package)
    return Component(
        type=kind,
        name=_name_of(package),
        version=package.version,
        bom_ref=str(address),
        purl=address,
        description=next(iter(_stated(package, "Summary")), None),
        licenses=[license_of(package)],
        external_references=references,
    )


def product_of(wheel: Path) -> Distribution:
    """What the wheel will be once it is installed."""
    root = zipfile.Path(wheel)
    (metadata,) = (each for each in root.iterdir() if each.name.endswith(".dist-info"))
    return PathDistribution(cast(Path, metadata))


def main(folder: Path) -> None:
    """Writes the document of each wheel in the folder."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    lock = parse_lock(LOCK.read_text(encoding="utf-8"))
    for wheel in folder.glob("*.whl"):
        product = product_of(wheel)
        files = [wheel, *folder.glob("*.tar.gz")]
        text = bill_of(product, files, lock, int(epoch) if epoch else None)
        (folder / f"{product.name}-{product.version}.cdx.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
