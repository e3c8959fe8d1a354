"""What is installed is fixed: every file has its hash in locks/, and the locks hold all that the project asks for."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import ROOT
from support.rooms import ROOMS, all_imports, modules

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
EXTRAS = {"run": (), "extras": ("dask", "s3", "postgres"), "dev": tuple(OPTIONAL)}
"""Which extras each lock holds."""
each_lock = pytest.mark.parametrize("lock", EXTRAS)


def text_of(lock: str) -> str:
    return (ROOT / "locks" / f"{lock}.txt").read_text()


def locked(lock: str) -> dict[str, Requirement]:
    """The requirements of a lock by name, without their hashes."""
    heads = [Requirement(line.removesuffix(" \\")) for line in text_of(lock).splitlines() if not line.startswith(" ")]
    assert len({head.name for head in heads}) == len(heads)
    return {head.name: head for head in heads}


def asked_for(lock: str) -> list[Requirement]:
    """What pyproject.toml asks for, of the project itself and of whatever builds it."""
    lines = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    lines += [line for extra in EXTRAS[lock] for line in OPTIONAL[extra]]
    return [needed for line in lines if (needed := Requirement(line)).name != "dprelease"]


def is_met(needed: Requirement, pins: dict[str, Requirement]) -> bool:
    pin = pins.get(canonicalize_name(needed.name))
    return pin is not None and needed.specifier.contains(next(iter(pin.specifier)).version, prereleases=True)


def applies(needed: Requirement, extras: set[str]) -> bool:
    """Whether a requirement of a distribution with these extras holds on this machine."""
    environment = dict(default_environment())
    return needed.marker is None or any(needed.marker.evaluate({**environment, "extra": e}) for e in {"", *extras})


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize("lock", [*EXTRAS, "uv"])
def test_every_entry_is_one_version_with_hashes_and_there_is_nothing_else(lock: str):
    """So there is no address, no option, and no folder of somebody's machine."""
    pin = r"[a-z0-9][a-z0-9-]*==[a-z0-9.]+(?: ; [^\n\\]+)?"
    assert re.fullmatch(rf"(?:{pin}(?: \\\n    --hash=sha256:[0-9a-f]{{64}})+\n)+", text_of(lock))


@each_lock
def test_a_lock_meets_every_requirement_of_the_project(lock: str):
    pins = locked(lock)
    assert [str(needed) for needed in asked_for(lock) if not is_met(needed, pins)] == []


@each_lock
def test_a_lock_is_complete_so_that_it_installs_without_resolving(lock: str):
    """Whatever the locked distributions require, as far as they are installed here, is locked too."""
    pins, missing = locked(lock), []
    asked = {canonicalize_name(needed.name): needed.extras for needed in asked_for(lock)}
    todo = [(name, frozenset(asked.get(name, ()))) for name in pins]
    seen = set(todo)
    while todo:
        name, extras = todo.pop()
        try:
            requires = map(Requirement, importlib.metadata.requires(name) or [])
        except importlib.metadata.PackageNotFoundError:  # of another platform
            continue
        for needed in (r for r in requires if applies(r, set(extras))):
            missing += [] if is_met(needed, pins) else [f"{name}: {needed}"]
            step = (canonicalize_name(needed.name), frozenset(needed.extras))
            if step not in seen:
                seen.add(step)
                todo.append(step)
    assert missing == []


def test_the_locks_agree_on_every_version_and_hash():
    entries = {lock: set(text_of(lock).replace(" \\\n", " ").splitlines()) for lock in EXTRAS}
    assert entries["run"] < entries["extras"] < entries["dev"]


# ---------------------------------------------------------------- the project


def test_what_the_program_imports_it_asks_for_by_name():
    """What only comes along with something else may vanish with its next version."""
    owners = importlib.metadata.packages_distributions()
    used = {module.split(".")[0] for room in ROOMS for path in modules(room) for module in all_imports(path)}
    foreign = used - set(ROOMS) - sys.stdlib_module_names
    asked = {canonicalize_name(needed.name) for needed in asked_for("extras")}
    assert [module for module in foreign if not asked & {canonicalize_name(o) for o in owners.get(module, [])}] == []


def test_nobody_is_told_to_install_without_hashes():
    """Neither by a guide nor by a hint; and the project's name in a public index is somebody else's."""
    texts = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".md", ".yaml")]
    lines = [line for path in [ROOT / "README.md", *texts] for line in path.read_text().splitlines()]
    told = [line for line in lines if "pip install -" in line or re.search(r"pip install ['\"\w]", line)]
    assert [line for line in told if "--require-hashes" not in line and "--no-index" not in line] == []
