"""Where a signing key is kept: a plain file, an encrypted one, or an SSH agent; what it signs is the same."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tasks.staged import land_rows, release

from dpcore.errors import WorkspaceError
from tasks.audit import audit_workspace
from tasks.keys import signing
from tasks.keys.passphrase import PASSPHRASE_VARIABLE
from tasks.keys.signing import KEY_FILE, PublicKey, SigningKey, read_signer, signing_key
from tasks.keys.ssh_agent import SOCKET_VARIABLE, sign_with_agent
from tasks.ledger.key_changes import encrypt_key, given_public_key, rotate_key
from tasks.spec import load_spec
from tasks.workspace.folders import Workspace

NO_AGENT = "ssh-agent, ssh-add and ssh-keygen are not installed"


def faults(workspace: Workspace) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in audit_workspace(workspace) if not check.ok]


@pytest.fixture(autouse=True)
def forget_opened_keys() -> None:
    """Keys that a test opened are not open in the next, as in another process."""
    signing._secret_key.cache_clear()


# ---------------------------------------------------------------- encrypted files


@pytest.fixture
def passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "passphrase"
    path.write_text("correct horse\n")
    monkeypatch.setenv(PASSPHRASE_VARIABLE, str(path))
    return path


def test_an_encrypted_key_stays_the_same_key_and_its_successor_is_encrypted_too(workspace: Workspace, passphrase: Path):
    before = signing_key(workspace.keys).public
    encrypt_key(workspace, b"correct horse")
    file = workspace.keys / KEY_FILE
    assert b"ENCRYPTED" in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert signing_key(workspace.keys).public == before
    rotate_key(workspace, load_spec(workspace.spec_path), who="operator")
    assert b"ENCRYPTED" in file.read_bytes()
    land_rows(workspace.root, "2026-03")
    release(workspace, "2026-03")
    assert faults(workspace) == []


@pytest.mark.parametrize(("content", "rule"), [("wrong\n", "passphrase-wrong"), ("", "passphrase-missing")])
def test_a_wrong_or_empty_passphrase_opens_nothing(workspace: Workspace, passphrase: Path, content: str, rule: str):
    encrypt_key(workspace, b"correct horse")
    passphrase.write_text(content)
    with pytest.raises(WorkspaceError) as caught:
        signing_key(workspace.keys)
    assert caught.value.rule == rule
    assert "correct" not in str(caught.value.as_json())


def test_without_terminal_or_file_nobody_is_asked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    encrypt_key(workspace, b"correct horse")
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    monkeypatch.setattr(os, "isatty", lambda _: False)
    with pytest.raises(WorkspaceError) as caught:
        signing_key(workspace.keys)
    assert (caught.value.rule, PASSPHRASE_VARIABLE in caught.value.hint) == ("passphrase-missing", True)


# ---------------------------------------------------------------- public keys


def test_a_public_key_is_read_in_every_form_that_people_have(tmp_path: Path):
    public = SigningKey.fresh().public
    (tmp_path / "key.pub").write_text(f"{public.ssh} ada@example\n")
    for text in (public.pem, public.text, public.ssh, str(tmp_path / "key.pub")):
        assert given_public_key(text) == public
    assert PublicKey.from_text(public.ssh) == public


# ---------------------------------------------------------------- an SSH agent


@pytest.fixture
def agent_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The public key file of a key that a real agent keeps, and nobody else."""
    if not all(shutil.which(name) for name in ("ssh-agent", "ssh-add", "ssh-keygen")):
        pytest.skip(NO_AGENT)
    folder = Path(f"/tmp/dprelease-agent-{os.getpid()}")  # noqa: S108  a socket's path must be short
    folder.mkdir(mode=0o700)
    key = folder / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(key)], check=True)
    try:
        with subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(folder / "socket")], stdout=subprocess.PIPE, text=True
        ) as agent:
            assert agent.stdout is not None
            agent.stdout.readline()  # it says where it listens, once it does
            monkeypatch.setenv(SOCKET_VARIABLE, str(folder / "socket"))
            subprocess.run(["ssh-add", "-q", str(key)], check=True, capture_output=True)
            key.unlink()
            yield key.with_suffix(".pub")
            agent.terminate()
    finally:
        shutil.rmtree(folder)


def test_a_workspace_releases_with_a_key_that_an_agent_keeps(workspace: Workspace, agent_key: Path):
    public, _ = rotate_key(
        workspace, load_spec(workspace.spec_path), who="operator", agent=given_public_key(str(agent_key))
    )
    assert (workspace.keys / KEY_FILE).read_text().startswith("ssh-ed25519 ")
    land_rows(workspace.root, "2026-03")
    release(workspace, "2026-03")
    assert signing_key(workspace.keys).public == public
    assert faults(workspace) == []


def test_an_agents_signature_is_an_ordinary_one_and_a_foreign_key_gets_none(agent_key: Path):
    signer = read_signer(agent_key)
    assert signer.public.verifies(signer.sign(b"message"), b"message")
    with pytest.raises(WorkspaceError) as caught:
        sign_with_agent(SigningKey.fresh().public.raw, b"message")
    assert (caught.value.rule, caught.value.where) == ("agent-refused", SOCKET_VARIABLE)


def test_a_workspace_whose_agent_is_gone_says_so_and_keeps_its_ledger(
    workspace: Workspace, agent_key: Path, monkeypatch: pytest.MonkeyPatch
):
    spec = load_spec(workspace.spec_path)
    with monkeypatch.context() as patch:
        patch.delenv(SOCKET_VARIABLE)
        with pytest.raises(WorkspaceError, match="agent"):
            rotate_key(workspace, spec, who="operator", agent=given_public_key(str(agent_key)))
    land_rows(workspace.root, "2026-03")
    release(workspace, "2026-03")
    assert faults(workspace) == [], "the rotation was undone"


ANSWERS = {
    "nothing": b"",
    "failure": b"\0\0\0\1\5",
    "an empty message": b"\0\0\0\0",
    "a message without end": b"\0\0\0\x09\x0e",
    "an impossible length": b"\xff\xff\xff\xff\x0e",
    "a string longer than its message": b"\0\0\0\5\x0e\0\0\0\xff",
    "a short signature": b"\0\0\0\x1b\x0e\0\0\0\x16\0\0\0\x0bssh-ed25519\0\0\0\3abc",
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_agent_that_answers_nonsense_is_refused(case: str, monkeypatch: pytest.MonkeyPatch):
    path = Path(f"/tmp/dprelease-false-agent-{os.getpid()}")  # noqa: S108  a socket's path must be short
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(1)

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(ANSWERS[case])

        serving = threading.Thread(target=answer)
        serving.start()
        monkeypatch.setenv(SOCKET_VARIABLE, str(path))
        try:
            with pytest.raises(WorkspaceError, match="did not sign"):
                sign_with_agent(b"k" * 32, b"message")
        finally:
            serving.join(10)
            path.unlink()
