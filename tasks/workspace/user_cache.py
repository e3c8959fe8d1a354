"""The cache of an account: results that are the same in all of its workspaces. It contains nothing private.

An entry is used only if it is authenticated with a key that only this account can read: a file that was
damaged, renamed or written by somebody else counts as missing, and is computed again. Anybody who can read
the key can also change the program itself, so the cache need not be protected against the account's owner.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.workspace.files import PRIVATE_FOLDER, WRITABLE_BY_OTHERS, create_once, write_atomically
from tasks.workspace.reading import open_regular

FOLDER, KEY = "dprelease", "cache.key"
KEY_BYTES = MARK_BYTES = 32
OF_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class UserCache:
    """A private folder, and the key that authenticates its entries."""

    folder: Path
    key: bytes

    @staticmethod
    def of(environment: Mapping[str, str] = os.environ) -> UserCache | None:
        """The cache of the current account; None if the account has no private folder for it."""
        try:
            folder = _base(environment) / FOLDER
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            _require_private(folder)
            return UserCache(folder, _key_of(folder / KEY))
        except (OSError, RuntimeError):  # RuntimeError: the account has no home
            return None

    def read(self, name: str) -> bytes | None:
        """An entry; None if there is none that this account made under that name."""
        try:
            content = _read_own(self.folder / name)
        except OSError:
            return None
        mark, entry = content[:MARK_BYTES], content[MARK_BYTES:]
        return entry if hmac.compare_digest(mark, self._mark(name, entry)) else None

    def keep(self, name: str, entry: bytes) -> None:
        """Write an entry, whole or not at all; a cache that cannot be written keeps none."""
        part = self.folder / f".part-{secrets.token_hex(8)}"
        with suppress(OSError):
            try:
                write_atomically(self.folder / name, self._mark(name, entry) + entry, draft=part)
            finally:
                part.unlink(missing_ok=True)

    def _mark(self, name: str, entry: bytes) -> bytes:
        return hmac.digest(self.key, name.encode() + b"\0" + entry, hashlib.sha256)


def _base(environment: Mapping[str, str]) -> Path:
    """The folder of the account's caches; a relative path is ignored, as the XDG specification requires."""
    named = Path(environment.get("XDG_CACHE_HOME") or "")
    return named if named.is_absolute() else Path.home() / ".cache"


def _require_private(folder: Path) -> None:
    """Ensure that nobody else can write to the folder or replace it.

    Raises: OSError.
    """
    found, above = folder.lstat(), folder.parent.stat()
    exchangeable = above.st_mode & WRITABLE_BY_OTHERS and not above.st_mode & stat.S_ISVTX
    own = found.st_uid == os.geteuid() and above.st_uid in (0, os.geteuid())
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & OF_OTHERS or exchangeable or not own:
        raise PermissionError("the folder is not this account's alone")


def _key_of(path: Path) -> bytes:
    """The key, which is created if it is missing; if two processes create it at the same time, the first one counts.

    Raises: OSError.
    """
    if not path.exists():
        with suppress(FileExistsError):
            create_once(path, secrets.token_bytes(KEY_BYTES))
    key = _read_own(path)
    if len(key) != KEY_BYTES:
        raise PermissionError("the key is damaged")
    return key


def _read_own(path: Path) -> bytes:
    """The content of a regular file that belongs to this account, and that nobody else can open.

    Raises: OSError.
    """
    with open_regular(path) as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or found.st_mode & OF_OTHERS:
            raise PermissionError("the file is not this account's alone")
        return file.read()
