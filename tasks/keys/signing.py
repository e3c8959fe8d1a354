"""Ed25519 signatures: the workspace's key signs every ledger entry and every bundle's statement.

A `Signer` signs with a key file, encrypted or not, or through an SSH agent. The module
`tasks.ledger.entries.keys` decides which keys a ledger accepts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpcore.errors import WorkspaceError
from tasks.keys.passphrase import PASSPHRASE_VARIABLE, ask_passphrase
from tasks.keys.ssh_agent import SSH_TYPE, sign_with_agent
from tasks.workspace.files import flush_to_disk, write_atomically
from tasks.workspace.locks import hold_lock
from tasks.workspace.reading import read_bytes
from tasks.workspace.redaction import ErrorBoundary

KEY_FILE = "signing.key"
NEXT_FILE = "signing.key.next"
PUBLIC_FILE = "signing.pub"
ANCHOR_FILE = "ledger.pub"
"""The owner's key of a ledger that this workspace shares."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, which verifies signatures."""

    raw: bytes

    @staticmethod
    def from_text(text: str) -> PublicKey:
        """A key from PEM, from an OpenSSH line, or from the base64 form that the ledger uses.

        Raises: ValueError.
        """
        is_line = text.startswith(SSH_TYPE.decode())
        if is_line or "BEGIN" in text:
            load = serialization.load_ssh_public_key if is_line else serialization.load_pem_public_key
            loaded = load(text.encode())
            if not isinstance(loaded, Ed25519PublicKey):
                raise ValueError("the key must be an Ed25519 public key")
            return PublicKey(loaded.public_bytes_raw())
        key = PublicKey(base64.b64decode(text, validate=True))
        Ed25519PublicKey.from_public_bytes(key.raw)
        return key

    @property
    def key_id(self) -> str:
        """Its fingerprint: the first 16 bytes of its SHA-256."""
        return hashlib.sha256(self.raw).hexdigest()[:32]

    @property
    def text(self) -> str:
        """The key in base64, as in the ledger."""
        return base64.b64encode(self.raw).decode()

    @property
    def pem(self) -> str:
        """The key in PEM, for other programs."""
        return self._encode(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    @property
    def ssh(self) -> str:
        """The key as a line in OpenSSH's format."""
        return self._encode(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)

    def _encode(self, encoding: serialization.Encoding, form: serialization.PublicFormat) -> str:
        return Ed25519PublicKey.from_public_bytes(self.raw).public_bytes(encoding, form).decode()

    def verifies(self, signature: str, message: bytes) -> bool:
        """Whether a base64 signature over the message is this key's."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(base64.b64decode(signature, validate=True), message)
        except (InvalidSignature, ValueError):
            return False
        return True


def read_public(read: Callable[[], str], *, where: str, hint: str) -> PublicKey:
    """The public key in the text that `read` returns.

    Raises: WorkspaceError with the given place and hint.
    """
    fault = WorkspaceError(
        "there is no readable Ed25519 public key", rule="public-key-unreadable", where=where, hint=hint
    )
    with ErrorBoundary(OSError, ValueError, refusal=lambda _: fault):
        return PublicKey.from_text(read().strip())


class Signer(Protocol):
    """A key that signs: in a file, in an agent or in a token."""

    @property
    def public(self) -> PublicKey:
        """The key that verifies its signatures."""

    def sign(self, message: bytes) -> str:
        """A signature in base64."""


class SigningKey:
    """A key in this process's memory; it is neither printed nor serialised."""

    __slots__ = ("_key", "_passphrase")

    def __init__(self, key: Ed25519PrivateKey, passphrase: bytes | None = None) -> None:
        self._key, self._passphrase = key, passphrase

    @staticmethod
    def fresh() -> SigningKey:
        """A new key from the operating system's entropy."""
        return SigningKey(Ed25519PrivateKey.generate())

    def encrypted(self, passphrase: bytes) -> SigningKey:
        """The same key, whose file is encrypted."""
        return SigningKey(self._key, passphrase)

    def successor(self) -> SigningKey:
        """A new key whose file is encrypted as this one's is."""
        return SigningKey(Ed25519PrivateKey.generate(), self._passphrase)

    @property
    def public(self) -> PublicKey:
        """The key that verifies its signatures."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> str:
        """A signature in base64."""
        return base64.b64encode(self._key.sign(message)).decode()

    def stored(self) -> bytes:
        """The secret key in PEM, for the key file only."""
        phrase = self._passphrase
        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(phrase) if phrase else serialization.NoEncryption(),
        )

    def __repr__(self) -> str:
        return "SigningKey(<secret>)"


@dataclass(frozen=True, slots=True)
class AgentKey:
    """A key whose secret is in an SSH agent or in a token behind it."""

    public: PublicKey

    def sign(self, message: bytes) -> str:
        """A signature in base64.

        Raises: WorkspaceError if the agent does not give one.
        """
        return base64.b64encode(sign_with_agent(self.public.raw, message)).decode()

    def stored(self) -> bytes:
        """The content of the key file: only the public key."""
        return self.public.ssh.encode() + b"\n"


def signing_key(folder: Path) -> Signer:
    """The workspace's signing key, made on first use with mode 0600.

    Raises: WorkspaceError if it cannot be read, or is open to others.
    """
    path = folder / KEY_FILE
    if not path.exists():
        write_key(folder, SigningKey.fresh())
    return read_signer(path)


def read_signer(path: Path) -> Signer:
    """The key of a file: a secret in PEM, encrypted or not, or an OpenSSH public key whose secret an agent keeps.

    Raises: WorkspaceError.
    """
    fault, content = "", b""
    try:
        content = read_bytes(path)
        if content.startswith(SSH_TYPE):
            return AgentKey(PublicKey.from_text(content.decode().strip()))
        fault = _loose_mode(path)
    except (ValueError, OSError):
        fault = "it cannot be read"
    key = None if fault else _secret_key(content)
    if key is None:
        raise WorkspaceError(
            f"the signing key cannot be used: {fault or 'it is not a readable Ed25519 key in PEM'}",
            rule="signing-key-unusable",
            where=f"keys/{path.name}",
            hint="restore it from a backup with mode 0600; if it is lost, a key with the role cap enrols another",
        )
    return key


@lru_cache(maxsize=8)
def _secret_key(content: bytes) -> SigningKey | None:
    """The key in a PEM text; cached, so that a process asks for the passphrase only once."""
    phrase = ask_passphrase("passphrase of the signing key: ") if b"BEGIN ENCRYPTED PRIVATE KEY" in content else None
    try:
        loaded = serialization.load_pem_private_key(content, password=phrase)
    except (ValueError, TypeError):
        loaded = None
    if phrase is not None and loaded is None:
        raise WorkspaceError(
            "the passphrase does not decrypt the signing key",
            rule="passphrase-wrong",
            where=PASSPHRASE_VARIABLE,
            hint="enter the passphrase that was set with `dprelease keys encrypt`",
        )
    return SigningKey(loaded, phrase) if isinstance(loaded, Ed25519PrivateKey) else None


def _loose_mode(path: Path) -> str:
    return "others may read it (its mode must be 0600)" if path.stat().st_mode & 0o077 else ""


def write_key(folder: Path, key: SigningKey) -> None:
    """Put a key in its place, readable by its owner alone, and its public half beside it.

    The public half is written first: if the process is killed in between, the next start creates both anew.
    """
    _write_durably(folder / PUBLIC_FILE, key.public.pem.encode())
    _write_durably(folder / KEY_FILE, key.stored())


def write_anchor(folder: Path, public: PublicKey) -> None:
    """Store the owner's key of a shared ledger."""
    _write_durably(folder / ANCHOR_FILE, public.pem.encode())


# ---------------------------------------------------------------- rotation
#
# 1. The successor is brought to disk as signing.key.next.
# 2. The ledger enrols it in an entry that the old key signs; the new key signs the old one's revocation.
# 3. The file takes the old one's place.
# A crash after 1 leaves a key that nobody knows: it is removed. A crash after 2 leaves one that
# the ledger knows: it is put in its place. `settle_rotation` does either, before a ledger is opened.


def rotation_lock(folder: Path) -> AbstractContextManager[int]:
    """Wait until no other process changes the keys."""
    return hold_lock(folder / ".rotation")


def write_successor(folder: Path, key: SigningKey | AgentKey) -> None:
    """Step 1: the next key on disk, beside the present one."""
    _write_durably(folder / NEXT_FILE, key.stored())


def install_successor(folder: Path, public: PublicKey) -> None:
    """Step 3: the next key takes its place."""
    _write_durably(folder / PUBLIC_FILE, public.pem.encode())
    (folder / NEXT_FILE).rename(folder / KEY_FILE)
    flush_to_disk(folder)


def settle_rotation(folder: Path, is_announced: Callable[[PublicKey], bool]) -> None:
    """Finish a rotation that a crash interrupted, or undo it if the ledger does not contain the new key.

    Raises: the errors of reading the ledger; both keys are kept then.
    """
    if not (folder / NEXT_FILE).exists():
        return
    with rotation_lock(folder):
        if not (folder / NEXT_FILE).exists():
            return  # its own process finished meanwhile
        public = read_signer(folder / NEXT_FILE).public
        if is_announced(public):
            install_successor(folder, public)
        else:
            (folder / NEXT_FILE).unlink()


def _write_durably(path: Path, content: bytes) -> None:
    """Write a private file atomically, so that it survives a power cut."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    write_atomically(path, content, draft=draft)
    flush_to_disk(path.parent)
