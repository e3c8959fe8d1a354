"""The bill of materials: a complete, valid CycloneDX document, equal on all machines and silent about them."""

from __future__ import annotations

import getpass
import importlib.metadata
import json
import socket
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from dpcore.errors import RefusedError
from flows.cli import main
from tasks.bundle.sbom import bill_of_materials
from tasks.workspace.build_identity import code_facts, dependencies_digest, installed_digest, installed_distributions

RECORD: dict[str, Any] = {"release_id": "small-2026-02-1", "created_at": "2026-03-01T06:00:00Z"}
WHEEL = ["pkg/__init__.py,sha256=AAAA,10", "pkg-1.0.dist-info/METADATA,sha256=BBBB,20", "hook.pth,sha256=CCCC,30"]


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return {**RECORD, "code": code_facts()}


@cache
def validator() -> jsonschema.Draft7Validator:
    """CycloneDX's own schema, with those that it refers to."""
    folder = files("cyclonedx.schema") / "_res"
    schemas = [
        json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text()) for name in ("bom-1.6", "spdx", "jsf-0.82")
    ]
    registry = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in schemas)
    return jsonschema.Draft7Validator(schemas[0], registry=registry)


def faults(bill: dict[str, Any]) -> list[str]:
    return [error.json_path for error in validator().iter_errors(bill)]


# ---------------------------------------------------------------- the document


def test_the_bill_is_a_valid_document_and_the_schema_would_tell(record: dict[str, Any]):
    bill = bill_of_materials(record)
    assert faults(bill) == []
    assert faults({**bill, "serialNumber": "7"}) == ["$.serialNumber"]
    bill["components"][1].pop("name")
    assert faults(bill) == ["$.components[1]"]


def test_the_bill_lists_the_program_the_interpreter_and_every_distribution_once(record: dict[str, Any]):
    bill = bill_of_materials(record)
    assert bill["metadata"]["component"]["name"] == "dprelease"
    code = {"name": "dprelease:code:sha256", "value": record["code"]["digest"]}
    assert bill["metadata"]["component"]["properties"] == [code]
    python, *libraries = bill["components"]
    assert python["version"] == record["code"]["python"]
    listed = {f"{c['name']}=={c['version']}" for c in libraries} | {f"dprelease=={record['code']['version']}"}
    assert listed == {line.split()[0] for line in record["code"]["dependencies"]}
    assert len({c["bom-ref"] for c in bill["components"]}) == len(bill["components"]) == len(listed)
    numpy = next(c for c in libraries if c["name"] == "numpy")
    assert numpy["purl"] == f"pkg:pypi/numpy@{importlib.metadata.version('numpy')}"


def test_the_same_record_gives_the_same_bill_and_another_release_another_number(record: dict[str, Any]):
    bill = bill_of_materials(record)
    assert bill_of_materials(json.loads(json.dumps(record))) == bill
    assert bill_of_materials({**record, "release_id": "other"})["serialNumber"] != bill["serialNumber"]


def test_a_local_version_is_escaped_in_its_address():
    code = {**code_facts(), "dependencies": ["torch==2.13.0+cpu"]}
    assert bill_of_materials({**RECORD, "code": code})["components"][1]["purl"] == "pkg:pypi/torch@2.13.0%2Bcpu"


def test_the_bill_says_nothing_of_the_machine(record: dict[str, Any]):
    text = json.dumps(bill_of_materials(record)).replace("http://cyclonedx.org/schema/", "")
    assert "://" not in text
    for secret in (sys.prefix, str(Path.home()), socket.gethostname(), f"/{getpass.getuser()}"):
        assert secret not in text


# ---------------------------------------------------------------- older records


def test_a_record_without_digests_still_has_its_bill(record: dict[str, Any]):
    lines = [line.split()[0] for line in record["code"]["dependencies"]]
    older = {**record["code"], "dependencies": lines, "dependencies_digest": dependencies_digest(lines)}
    bill = bill_of_materials({**record, "code": older})
    assert faults(bill) == []
    assert not any("properties" in component for component in bill["components"])


def test_a_record_that_does_not_list_what_was_installed_is_refused():
    with pytest.raises(RefusedError) as refusal:
        bill_of_materials(RECORD)
    assert refusal.value.rule == "sbom-absent"


# ---------------------------------------------------------------- digests of what is installed


def installed(folder: Path, *lines: str, **more: str) -> importlib.metadata.Distribution:
    """A distribution as an installer leaves it."""
    place = folder / "pkg-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: Pkg.Name\nVersion: 1.0\n")
    (place / "RECORD").write_text("".join(f"{line}\n" for line in lines))
    for name, text in more.items():
        (place / f"{name}.json").write_text(text)
    return importlib.metadata.PathDistribution(place)


PIP = [
    *WHEEL,
    "../../../bin/pkg,sha256=XX,1",
    "pkg/__pycache__/__init__.cpython-311.pyc,,",
    "pkg-1.0.dist-info/RECORD,,",
]
UV = [*reversed(WHEEL), "../../../bin/pkg,sha256=YY,2", "pkg-1.0.dist-info/uv_cache.json,sha256=ZZ,9"]
NOTES = ["pkg-1.0.dist-info/INSTALLER,sha256=II,3", "pkg-1.0.dist-info/REQUESTED,sha256=RR,0"]


@pytest.mark.parametrize("lines", [PIP, UV, [*WHEEL, *NOTES]], ids=["pip", "uv", "notes"])
def test_a_wheel_has_one_digest_whatever_installed_it(tmp_path: Path, lines: list[str]):
    expected = installed_digest(installed(tmp_path / "wheel", *WHEEL))
    assert expected is not None
    assert installed_digest(installed(tmp_path / "installed", *lines)) == expected


@pytest.mark.parametrize("line", range(len(WHEEL)), ids=["module", "metadata", "hook at start-up"])
def test_a_changed_or_missing_file_gives_another_digest(tmp_path: Path, line: int):
    changed, fewer = list(WHEEL), [other for other in WHEEL if other != WHEEL[line]]
    changed[line] = WHEEL[line].replace("sha256=", "sha256=x")
    digests = {
        installed_digest(installed(tmp_path / str(n), *lines)) for n, lines in enumerate((WHEEL, changed, fewer))
    }
    assert len(digests) == 3


def test_what_came_from_a_folder_or_an_address_is_listed_without_a_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    installed(tmp_path, *WHEEL, direct_url='{"url": "file:///home/somebody/pkg"}')
    monkeypatch.syspath_prepend(tmp_path)
    assert "pkg-name==1.0" in installed_distributions()


def test_the_first_of_two_on_the_path_counts_since_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second = installed(tmp_path / "a", *WHEEL), installed(tmp_path / "b", *WHEEL[1:])
    for folder in ("b", "a"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    mine = [line for line in installed_distributions() if line.startswith("pkg-name==")]
    assert mine == [f"pkg-name==1.0 sha256:{installed_digest(first)}"]
    assert installed_digest(first) != installed_digest(second)


# ---------------------------------------------------------------- the command


def test_show_prints_the_bill_of_a_published_release(
    published: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["dprelease", "show", "small-2026-02-1", "--sbom", "-w", str(published)])
    main()
    bill = json.loads(capsys.readouterr().out)
    assert faults(bill) == []
    assert next(c for c in bill["components"] if c["name"] == "numpy")["properties"]
