"""An OpenLineage endpoint over HTTP: one connection, short timeouts, and a way to cut it.

It is the standard library's client: it reads no proxy or password from the environment,
follows no redirection with our token, and its socket can be shut from another thread,
which alone ends an endpoint that answers a byte at a time.
"""

from __future__ import annotations

import hashlib
import ipaddress
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from dpcore.errors import WorkspaceError
from tasks.spec.operations import LineageSpec
from tasks.workspace.folders import Workspace
from tasks.workspace.reading import read_text

API = "/api/v1/lineage"
TOKEN_FILE = "lineage.token"  # noqa: S105  the name of the file, not the token
LATER = frozenset({408, 425, 429})
"""Refusals that are about the time, not about the event."""

_MOST_ANSWER_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an offered event, and why in our own words: an endpoint's are never repeated."""

    kind: Literal["accepted", "refused", "unavailable"]
    reason: str = ""

    @property
    def is_refused(self) -> bool:
        """The endpoint does not want this event."""
        return self.kind == "refused"


ACCEPTED = Answer("accepted")
GONE = Answer("unavailable", "the connection failed")
SILENT = Answer("unavailable", "the endpoint did not answer in time")
GARBLED = Answer("unavailable", "the answer was not HTTP")


class Endpoint:
    """Where events go."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._parts, self._token = urlsplit(url), token
        self._connection: HTTPConnection | None = None
        self._is_cut = False
        self.digest = hashlib.sha256(url.encode()).hexdigest()

    def offer(self, event: bytes, seconds: float) -> Answer:
        """Post one event, each step of it within so many seconds.

        A kept connection may have been closed by the other side meanwhile: that is worth a second try.
        """
        if self._connection is not None:
            answer = self._post(event, seconds)
            if answer is not GONE:
                return answer
        return self._post(event, seconds)

    def _post(self, event: bytes, seconds: float) -> Answer:
        try:
            status = self._status_of(event, seconds)
        except TimeoutError:
            answer = SILENT
        except HTTPException as error:
            answer = GONE if isinstance(error, ConnectionError) else GARBLED
        except (OSError, ValueError):  # ValueError: a host name that cannot be one
            answer = GONE
        else:
            return _judged(status)
        self.close()
        return SILENT if self._is_cut else answer

    def _status_of(self, event: bytes, seconds: float) -> int:
        connection = self._connect(seconds)
        connection.request("POST", self._path, body=event, headers=self._headers())
        response = connection.getresponse()
        if not response.will_close:  # read to its end, so that the connection can be used again
            response.read(_MOST_ANSWER_BYTES)
        if not response.isclosed():
            response.close()
            self.close()
        return response.status

    def _connect(self, seconds: float) -> HTTPConnection:
        if self._connection is None:
            self._connection = self._open(seconds)
            self._connection.connect()
        if self._is_cut:  # while the name was looked up or the connection made
            raise TimeoutError
        if self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)
        return self._connection

    def _open(self, seconds: float) -> HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            return HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())
        return HTTPConnection(host, port, timeout=seconds)

    @property
    def _path(self) -> str:
        return self._parts.path.rstrip("/").removesuffix(API) + API

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "dprelease"}
        return headers | ({"Authorization": f"Bearer {self._token}"} if self._token else {})

    def cut(self) -> None:
        """End whatever goes on, from another thread; nothing is sent afterwards."""
        self._is_cut = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _judged(status: int) -> Answer:
    """A redirection is no success: the specification names the endpoint, and nobody else is told."""
    if 200 <= status < 300:
        return ACCEPTED
    is_refusal = 400 <= status < 500 and status not in LATER
    return Answer("refused" if is_refusal else "unavailable", f"the endpoint answered with status {status}")


def endpoint_of(workspace: Workspace, spec: LineageSpec) -> Endpoint:
    """The endpoint that a specification names, with the token that the workspace keeps for it.

    Raises: WorkspaceError if the token cannot be used.
    """
    token = _token(workspace.keys / TOKEN_FILE)
    if token and not _is_confidential(spec.url):
        raise _unusable("the endpoint has no https, so everybody on the way could read it", "use an https URL")
    return Endpoint(spec.url, token)


def _token(path: Path) -> str | None:
    if not path.is_file():
        return None
    if path.stat().st_mode & 0o077:
        raise _unusable("others may read it", "chmod it to 0600")
    token = read_text(path, errors="replace").strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise _unusable("it is not one line of letters, digits and signs", "write the bare token into the file")
    return token


def _is_confidential(url: str) -> bool:
    parts = urlsplit(url)
    try:
        is_here = ipaddress.ip_address(str(parts.hostname)).is_loopback
    except ValueError:
        is_here = parts.hostname == "localhost"
    return is_here or parts.scheme == "https"


def _unusable(fault: str, hint: str) -> WorkspaceError:
    return WorkspaceError(
        f"the lineage token cannot be used: {fault}",
        rule="lineage-token-unusable",
        where=f"keys/{TOKEN_FILE}",
        hint=hint,
    )
