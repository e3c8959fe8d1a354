"""An OpenLineage endpoint over HTTP: one connection with short timeouts, which another thread can shut down.

The client is the standard library's. It reads no proxy or password from the environment and does not
send our token along a redirection. Only shutting its socket from another thread stops an endpoint that
answers one byte at a time.
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
"""Status codes that refuse a request at this time, not the event itself."""

_MOST_ANSWER_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of an offered event, with a reason in our own words; an endpoint's texts are never repeated."""

    kind: Literal["accepted", "refused", "unavailable"]
    reason: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether the endpoint rejected this event."""
        return self.kind == "refused"


ACCEPTED = Answer("accepted")
GONE = Answer("unavailable", "the connection failed")
SILENT = Answer("unavailable", "the endpoint did not answer in time")
GARBLED = Answer("unavailable", "the answer was not HTTP")


class Endpoint:
    """The HTTP endpoint to which events are sent."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._parts, self._token = urlsplit(url), token
        self._connection: HTTPConnection | None = None
        self._is_cut = False
        self.digest = hashlib.sha256(url.encode()).hexdigest()

    def offer(self, event: bytes, seconds: float) -> Answer:
        """Post one event; each step has at most `seconds` to finish.

        The endpoint may have closed a kept connection in the meantime, so a failure on one is tried again.
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
        except (OSError, ValueError):  # ValueError: an impossible host name
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
        if self._is_cut:  # during the name lookup or while connecting
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
        """Abort the current request from another thread; nothing is sent afterwards."""
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
    """Classify a status; a redirection counts as a failure, because events go only to the endpoint that is named."""
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
        raise _unusable("the endpoint does not use https, so the network could read the token", "use an https URL")
    return Endpoint(spec.url, token)


def _token(path: Path) -> str | None:
    if not path.is_file():
        return None
    if path.stat().st_mode & 0o077:
        raise _unusable("others may read it", "chmod it to 0600")
    token = read_text(path, errors="replace").strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise _unusable("it is not a single word of printable ASCII characters", "write the bare token into the file")
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
