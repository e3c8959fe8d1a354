"""The wheel is the whole program: installed elsewhere, it releases, audits and writes pages without the checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from support.rooms import ROOMS

from tasks.workspace.build_identity import code_digest

BUILD = "import setuptools.build_meta as backend, sys; backend.build_wheel(sys.argv[1])"
WHERE = "from tasks.workspace import build_identity as b; print(b.code_digest(), b.__file__)"
COMMAND_SECONDS = 240


def files_below(root: Path) -> set[str]:
    """The files of the five packages, without what Python compiled or a desktop hid."""
    paths = [path for room in ROOMS for path in (root / room).rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix() for path in paths if path.suffix != ".pyc" and path.name[0] != "."}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the locked backend from a copy of the sources, so that the checkout stays as it is."""
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for room in ROOMS:
        shutil.copytree(ROOT / room, sources / room, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=sources, check=True, capture_output=True)
    return next(out.glob("dprelease-*-py3-none-any.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and this one's libraries without their .pth files."""
    if importlib.util.find_spec("ensurepip") is None:
        pytest.skip("this Python has no ensurepip to make an environment with")
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, capture_output=True)
    programs = environment / "bin"
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
        "--no-compile",
    ]
    subprocess.run([programs / "python", *install, wheel], check=True, capture_output=True)
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    packages = environment / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (packages / "libraries.pth").write_text("".join(f"{folder}\n" for folder in sorted(libraries)))
    return programs


def environment_of(folder: Path) -> dict[str, str]:
    """What commands get: nothing that leads to the checkout, and compiled modules for the next one."""
    foreign = ("PYTHONPATH", "VIRTUAL_ENV", "PREFECT_API_URL", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in foreign} | {"PWD": str(folder)}


def start(program: Path, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([program, *arguments], cwd=cwd, env=environment_of(cwd), **pipes)


def output(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode == 0, out + err
    return out


def test_the_wheel_holds_every_file_of_the_packages_and_the_license(wheel: Path) -> None:
    """A template, style sheet, schema or guide that package-data forgets is missing only where nobody tests."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    packaged = {name for name in inside if name.partition("/")[0] in ROOMS}
    assert packaged == files_below(ROOT)
    assert {f"{room}/py.typed" for room in ROOMS} <= packaged
    assert [name for name in inside if name.endswith(".dist-info/licenses/LICENSE")]


def test_the_installed_wheel_runs_the_demo_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    """Protects from data files that are read relative to the checkout or are not packaged.

    Also from modules that only the checkout has, and from a wheel whose build is another one than the checkout's:
    audits compare the digest of the code.
    """
    dprelease = installed / "dprelease"
    digest, file = output(start(installed / "python", "-c", WHERE, cwd=tmp_path)).split()
    assert Path(file).is_relative_to(installed.parent)
    assert digest == code_digest()

    output(start(dprelease, "init", "demo", "--demo", "clinic", cwd=tmp_path))
    released = json.loads(output(start(dprelease, "run", "-w", "demo", "--json", cwd=tmp_path)))
    assert released["status"] == "published"
    assert (Path(released["bundle"]) / "report.html").is_file()

    readers = (("audit", "-w", "demo", "--json"), ("site", "-w", "demo", "--json"), ("mechanisms", "--json"))
    started = [start(dprelease, *arguments, cwd=tmp_path) for arguments in readers]
    audited, site, mechanisms = (json.loads(output(process)) for process in started)
    assert audited["ok"]
    assert site["ok"]
    assert (tmp_path / "demo" / "site" / "index.html").is_file()
    assert {"wishart-difference", "gaussian"} <= {each["name"] for each in mechanisms["mechanisms"]}
