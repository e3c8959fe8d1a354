"""The workspace: private where it must be, emptied after every run, and one release of a name at a time."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dpcore.errors import WorkspaceError
from tasks.workspace.folders import Workspace

PRIVATE_FOLDERS = ("landing", "vault", "keys", "prefect")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "workspace")
    workspace.create()
    return workspace


# ---------------------------------------------------------------- folders and keys


@pytest.mark.parametrize("mask", [0o022, 0o000, 0o077])
def test_private_folders_and_keys_are_their_owners_alone(tmp_path: Path, mask: int):
    before = os.umask(mask)
    try:
        Workspace(tmp_path / "workspace").create()
    finally:
        os.umask(before)
    root = tmp_path / "workspace"
    assert {name: oct(mode(root / name)) for name in PRIVATE_FOLDERS} == dict.fromkeys(PRIVATE_FOLDERS, "0o700")
    assert oct(mode(root / "keys" / "fingerprint.key")) == "0o600"


def test_creating_again_keeps_the_key_and_closes_what_was_opened(place: Workspace):
    key = place.fingerprint_key()
    place.vault.chmod(0o755)
    place.create()
    assert place.fingerprint_key() == key
    assert mode(place.vault) == 0o700


def test_every_workspace_has_a_key_of_its_own(place: Workspace, tmp_path: Path):
    other = Workspace(tmp_path / "other")
    other.create()
    assert len(place.fingerprint_key()) == 32
    assert other.fingerprint_key() != place.fingerprint_key()


def test_bundles_lie_by_name_and_release(place: Workspace):
    assert place.bundle("visits", "visits-2026-01-1") == place.root / "releases" / "visits" / "visits-2026-01-1"


# ---------------------------------------------------------------- refusals

REQUIRES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no-folder": (lambda root: None, "workspace-missing"),
    "a-file": (lambda root: root.touch(), "workspace-missing"),
    "no-spec": (lambda root: root.mkdir(), "workspace-without-spec"),
}


@pytest.mark.parametrize("case", REQUIRES)
def test_a_folder_without_a_specification_is_refused(tmp_path: Path, case: str):
    prepare, rule = REQUIRES[case]
    prepare(tmp_path / "workspace")
    with pytest.raises(WorkspaceError) as caught:
        Workspace(tmp_path / "workspace").require()
    assert caught.value.rule == rule
    assert "init" in caught.value.hint
    assert str(tmp_path) not in str(caught.value)


def test_a_folder_with_a_specification_is_a_workspace(place: Workspace):
    place.spec_path.touch()
    place.require()
    place.require_writable()
    assert not list(place.root.rglob(".probe*")), "nothing is left of the trial"


BLOCKED: dict[str, str] = {"root": "", "vault": "vault", "releases": "releases", "keys": "keys", "home": "prefect"}


@pytest.mark.parametrize("case", BLOCKED)
def test_a_workspace_that_cannot_be_written_is_refused(tmp_path: Path, case: str):
    blocked = tmp_path / "workspace" / BLOCKED[case]
    blocked.parent.mkdir(exist_ok=True)
    blocked.touch()
    with pytest.raises(WorkspaceError) as caught:
        Workspace(tmp_path / "workspace").require_writable()
    assert (caught.value.rule, caught.value.where) == ("workspace-unwritable", "--workspace")
    assert str(tmp_path) not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("name", ["", "vault", "releases", "prefect"])
def test_a_folder_without_write_permission_is_refused(place: Workspace, name: str):
    (place.root / name).chmod(0o500)
    try:
        with pytest.raises(WorkspaceError, match="cannot be written"):
            place.require_writable()
    finally:
        (place.root / name).chmod(0o700)


@pytest.mark.parametrize("name", ["vault", "keys", "prefect"])
@pytest.mark.parametrize("loose", [0o777, 0o770, 0o702])
def test_a_private_folder_that_others_can_write_to_is_refused(place: Workspace, name: str, loose: int):
    (place.root / name).chmod(loose)
    with pytest.raises(WorkspaceError) as caught:
        place.require_writable()
    assert (caught.value.rule, caught.value.where) == ("folder-not-private", f"{name}/")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another account")
@pytest.mark.parametrize("name", ["vault", "keys", "prefect"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_private_folder_that_another_account_put_there_is_refused(place: Workspace, name: str, linked: bool):
    folder = place.root / name
    if linked:  # to a folder of ours that they can fill
        folder.rename(place.root / "elsewhere")
        folder.symlink_to("elsewhere")
    os.chown(folder, 65534, 65534, follow_symlinks=False)
    with pytest.raises(WorkspaceError) as caught:
        place.require_writable()
    assert (caught.value.rule, caught.value.where) == ("folder-not-private", f"{name}/")


# ---------------------------------------------------------------- scratch and notes


def test_scratch_is_private_and_gone_afterwards(place: Workspace):
    with place.scratch() as folder:
        (folder / "points.npy").write_bytes(b"rows")
        assert (folder.parent, mode(folder)) == (place.vault, 0o700)
    assert list(place.vault.iterdir()) == []


@pytest.mark.parametrize("fault", [ValueError, KeyboardInterrupt, SystemExit])
def test_scratch_is_gone_after_every_fault(place: Workspace, fault: type[BaseException]):
    def fail() -> None:
        with place.scratch() as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "rows").write_bytes(b"rows")
            raise fault

    with pytest.raises(fault):
        fail()
    assert list(place.vault.iterdir()) == []


def test_runs_do_not_share_their_scratch(place: Workspace):
    with place.scratch() as one, place.scratch() as other:
        assert one != other


def test_verdicts_stay_beside_the_private_data(place: Workspace):
    path = place.keep_verdicts("visits-2026-01-1", [{"column": "age", "rule": "bounds", "ok": False}])
    assert path.is_relative_to(place.landing)
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert json.loads(path.read_text())["verdicts"] == [{"column": "age", "rule": "bounds", "ok": False}]


# ---------------------------------------------------------------- one at a time


def test_the_lock_is_free_after_an_error(place: Workspace):
    def fail() -> None:
        with place.exclusive("visits"):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  it is the one raised above
        fail()
    with place.exclusive("visits"):
        pass
