"""Ed25519 signatures: the workspace's key signs every ledger entry and every bundle's statement.

The public key goes into the ledger as an event; a rotated key's successor is announced
by an entry that the old key signs. Whoever trusts one key of the chain can therefore
verify all of it, before and after that key's own time.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpcore.errors import WorkspaceError

KEY_FILE = "signing.key"
PUBLIC_FILE = "signing.pub"


def key_id_of(public: bytes) -> str:
    """The fingerprint of a public key: the first 16 bytes of its SHA-256."""
    return hashlib.sha256(public).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies."""

    raw: bytes

    @staticmethod
    def from_text(text: str) -> PublicKey:
        """A key from PEM, or from the base64 form that the ledger uses.

        Raises: ValueError.
        """
        if "BEGIN" in text:
            loaded = serialization.load_pem_public_key(text.encode())
            if not isinstance(loaded, Ed25519PublicKey):
                raise ValueError("the key must be an Ed25519 public key")
            return PublicKey(loaded.public_bytes_raw())
        key = PublicKey(base64.b64decode(text, validate=True))
        Ed25519PublicKey.from_public_bytes(key.raw)
        return key

    @property
    def key_id(self) -> str:
        """Its fingerprint."""
        return key_id_of(self.raw)

    @property
    def text(self) -> str:
        """Base64, as the ledger keeps it."""
        return base64.b64encode(self.raw).decode()

    @property
    def pem(self) -> str:
        """PEM, as other programs read it."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()

    def verifies(self, signature: str, message: bytes) -> bool:
        """Whether a base64 signature over the message is this key's."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(base64.b64decode(signature, validate=True), message)
        except (InvalidSignature, ValueError):
            return False
        return True


class SigningKey:
    """A key that signs; it does not print and is not serialised."""

    __slots__ = ("_key",)

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @staticmethod
    def fresh() -> SigningKey:
        """A new key of operating-system entropy."""
        return SigningKey(Ed25519PrivateKey.generate())

    @property
    def public(self) -> PublicKey:
        """The key that verifies its signatures."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> str:
        """A signature in base64."""
        return base64.b64encode(self._key.sign(message)).decode()

    def pem(self) -> bytes:
        """The secret key in PEM: for the key file alone."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def __repr__(self) -> str:
        return "SigningKey(<secret>)"


def signing_key(folder: Path) -> SigningKey:
    """The workspace's signing key, made on first use with mode 0600.

    Raises: WorkspaceError if it cannot be read, or is open to others.
    """
    path = folder / KEY_FILE
    if not path.exists():
        write_key(folder, SigningKey.fresh())
    fault = _loose_mode(path)
    key: Ed25519PrivateKey | None = None
    if not fault:
        try:
            loaded = serialization.load_pem_private_key(path.read_bytes(), password=None)
            key = loaded if isinstance(loaded, Ed25519PrivateKey) else None
        except (ValueError, TypeError, OSError):
            key = None
        fault = "" if key else "it is not a readable Ed25519 key in PEM"
    if key is None:
        raise WorkspaceError(
            f"the signing key cannot be used: {fault}",
            rule="signing-key-unusable",
            where=f"keys/{KEY_FILE}",
            hint="restore it from a backup with mode 0600; a new key cannot take the place of a lost one",
        )
    return SigningKey(key)


def _loose_mode(path: Path) -> str:
    return "others may read it (its mode must be 0600)" if path.stat().st_mode & 0o077 else ""


def write_key(folder: Path, key: SigningKey) -> None:
    """Put a key in its place: written beside, brought to disk, renamed; readable by its owner alone."""
    draft = folder / f".{KEY_FILE}.new"
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.pem())
        file.flush()
        os.fsync(file.fileno())
    draft.rename(folder / KEY_FILE)
    (folder / PUBLIC_FILE).write_text(key.public.pem)
