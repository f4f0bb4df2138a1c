"""Every file that an installation takes from the index has its hash in requirements.lock, and the bill
of materials names what an installation consists of."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import lock_requirements
from scripts.bill_of_materials import bill_of, hash_of, license_of, main
from scripts.lock_requirements import (
    CONSTRAINTS,
    LOCK,
    PROJECT,
    Locked,
    defects,
    parse_constraints,
    parse_lock,
    render,
    requirements_of,
)

PRODUCT = "spark-bookkeeper"
HASH = "0" * 64
PINS = parse_constraints(CONSTRAINTS.read_text(encoding="utf-8"))
LOCKED = parse_lock(LOCK.read_text(encoding="utf-8"))


def test_the_lock_is_that_of_the_constraints_and_of_what_the_project_asks_for() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))

    assert list(defects(PINS, LOCKED, requirements_of(project))) == [], (
        "run: python -m scripts.lock_requirements"
    )


def test_every_locked_package_has_hashes_and_the_file_is_as_the_script_writes_it() -> None:
    hashes = [each for locked in LOCKED.values() for each in locked.hashes]

    assert all(locked.hashes for locked in LOCKED.values())
    assert all(re.fullmatch("[0-9a-f]{64}", each) for each in hashes)
    assert render(LOCKED) == LOCK.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("pins", "lock", "wanted", "defect"),
    [
        ({"a": "1"}, {}, [], "a==1 of constraints.txt is not locked"),
        ({"a": "2"}, {"a": "1"}, [], "a is locked at 1, constraints.txt has 2"),
        ({}, {"a": "1"}, [], "a==1 is locked and not in constraints.txt"),
        ({"a": "1"}, {"a": "1"}, ["a>=2"], "pyproject.toml asks for a>=2, 1 is locked"),
        ({}, {}, ["b"], "pyproject.toml asks for b, nothing is locked"),
        ({"a.b": "1"}, {"a_b": "1"}, ["A-b"], None),
    ],
)
def test_a_stale_lock_is_told_why(
    pins: dict[str, str], lock: dict[str, str], wanted: list[str], defect: str | None
) -> None:
    pins = parse_constraints("".join(f"{name}=={version}\n" for name, version in pins.items()))
    text = "".join(f"{name}=={v} \\\n    --hash=sha256:{HASH}\n" for name, v in lock.items())

    found = list(defects(pins, parse_lock(text), map(Requirement, wanted)))

    assert found == ([defect] if defect else [])


def test_a_package_without_a_hash_is_a_defect_and_other_options_are_refused() -> None:
    assert list(defects({"a": "1"}, parse_lock("a==1\n"), [])) == ["a has no hash"]
    with pytest.raises(ValueError, match="not a line of a lock"):
        parse_lock("a==1 --hash=md5:0\n")
    with pytest.raises(ValueError, match="not a line of a lock"):
        parse_lock("a>=1\n")


def test_a_marker_survives_reading_and_writing() -> None:
    lock = {"a": Locked("1", "sys_platform == 'darwin'", (HASH,)), "b": Locked("2", "", (HASH,))}

    assert parse_lock(render(lock)) == lock


def test_check_asks_nobody_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("started a program")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert lock_requirements.main(["--check"]) == 0

    stale = tmp_path / "requirements.lock"
    text = LOCK.read_text(encoding="utf-8").replace("\nclick==", "\nclick==0.")
    stale.write_text(text, encoding="utf-8")
    monkeypatch.setattr(lock_requirements, "LOCK", stale)

    assert lock_requirements.main(["--check"]) == 1
    assert "click is locked at 0." in capsys.readouterr().err
    assert stale.read_text(encoding="utf-8") == text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make dist`` has built when it comes to the bill: a wheel with our metadata, an archive."""
    made = tmp_path_factory.mktemp("dist")
    product = distribution(PRODUCT)
    name = f"spark_bookkeeper-{product.version}"
    with zipfile.ZipFile(made / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("spark_bookkeeper/__init__.py", "")
        wheel.writestr(f"{name}.dist-info/METADATA", product.read_text("METADATA") or "")
    (made / f"{name}.tar.gz").write_bytes(b"archive")
    return made


@pytest.fixture
def bill(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The document, parsed."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    main(folder)
    path = folder / f"{PRODUCT}-{distribution(PRODUCT).version}.cdx.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def installed_with(name: str) -> set[str]:
    """What pip brings along for a package in this environment, itself aside."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for requirement in map(Requirement, distribution(ahead.pop()).requires or ()):
            needed = str(canonicalize_name(requirement.name))
            is_for_us = not requirement.marker or requirement.marker.evaluate({"extra": ""})
            if is_for_us and needed not in found:
                found.add(needed)
                ahead.append(needed)
    return found


def test_the_bill_names_what_an_installation_of_the_wheel_brings(bill: dict[str, Any]) -> None:
    names = [component["name"] for component in bill["components"]]

    assert set(names) == installed_with(PRODUCT)
    assert len(names) == len(set(names))
    assert {"pyspark", "py4j", "mdurl"} < set(names)
    assert not {"pytest", "matplotlib", "grpcio-status"} & set(names)


def test_the_bill_has_the_versions_hashes_and_licences(bill: dict[str, Any]) -> None:
    for component in bill["components"]:
        name, version = component["name"], component["version"]
        (files,) = component["externalReferences"]

        assert version == PINS[name]
        assert component["purl"] == f"pkg:pypi/{name}@{version}"
        assert {each["content"] for each in files["hashes"]} == set(LOCKED[name].hashes)
        assert component["licenses"]
        assert "unknown" not in str(component["licenses"])


def test_the_bill_names_the_product_with_the_files_it_is_distributed_as(
    bill: dict[str, Any], folder: Path
) -> None:
    product = bill["metadata"]["component"]
    files = {each["url"]: each["hashes"][0]["content"] for each in product["externalReferences"]}
    (needs,) = (each for each in bill["dependencies"] if each["ref"] == product["bom-ref"])

    assert (product["name"], product["version"]) == (PRODUCT, distribution(PRODUCT).version)
    assert product["licenses"][0]["license"]["id"] == "Apache-2.0"
    assert files == {p.name: hash_of(p) for p in folder.iterdir() if p.suffix != ".json"}
    assert {f"pkg:pypi/{name}@{PINS[name]}" for name in ("pyspark", "kazoo")} < {
        *needs["dependsOn"]
    }


def test_the_bill_is_valid_cyclonedx_1_6(bill: dict[str, Any]) -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)

    assert bill["specVersion"] == "1.6"
    assert validator.validate_str(json.dumps(bill)) is None
    assert validator.validate_str(json.dumps({**bill, "components": [{"name": "a"}]})) is not None


def test_the_same_files_make_the_same_bill() -> None:
    product = distribution(PRODUCT)

    first, again = (bill_of(product, [LOCK], LOCKED, None) for _ in range(2))
    dated = json.loads(bill_of(product, [LOCK], LOCKED, 86_400))
    of_others = json.loads(bill_of(product, [CONSTRAINTS], LOCKED, None))
    document = json.loads(first)

    assert first == again
    assert "timestamp" not in document["metadata"]
    assert dated["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", document["serialNumber"])
    assert len({each["serialNumber"] for each in (document, dated, of_others)}) == 3


def test_an_installation_of_other_versions_than_the_lock_has_no_bill() -> None:
    others = {**LOCKED, "click": Locked("0", "", (HASH,))}

    with pytest.raises(ValueError, match=r"click .* is installed and not locked"):
        bill_of(distribution(PRODUCT), [], others, None)


def test_a_licence_is_named_as_spdx_does_where_it_is_the_same() -> None:
    stated = {name: str(license_of(distribution(name))) for name in ("kazoo", "py4j", "numpy")}

    assert "id='Apache-2.0'" in stated["kazoo"]
    assert "name='BSD License'" in stated["py4j"]
    assert "BSD-3-Clause AND" in stated["numpy"]
