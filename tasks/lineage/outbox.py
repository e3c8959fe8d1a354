"""The outbox: lineage events on their way to an OpenLineage endpoint.

The workspace's log is itself the outbox: a cursor holds the number of delivered bytes, so
no event is stored twice. Events are sent in the log's order, each at least once.

* The cursor advances after every accepted event; its file is written as a draft and renamed.
  A crash in between sends one event again; OpenLineage endpoints know it by its run id.
* If the endpoint is unreachable, slow or broken, the delivery ends and the next one continues.
* An event that is refused (4xx) is set aside in a file of its own, but only once the
  endpoint accepted a later one: an endpoint that refuses everything loses nothing. So is an
  event on which the endpoint broke down in several deliveries in a row.
* A cursor that does not fit the log (another endpoint, a log restored from a backup)
  starts again at the beginning. Removing the outbox's folder sends everything again.

Delivery runs in a thread that is abandoned when its time is over, so that neither an endpoint
nor a name server can delay a release.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tasks.lineage.endpoint import ACCEPTED, Answer, Endpoint
from tasks.lineage.events import append_line, parsed
from tasks.workspace.files import PRIVATE_FOLDER, write_atomically
from tasks.workspace.folders import Workspace
from tasks.workspace.locks import try_lock
from tasks.workspace.reading import open_regular, parse_json, read_text

ANSWER_SECONDS = 2.0
TRIES = 3
"""How often an event is offered before it counts as refused, and in how many deliveries it may break the endpoint."""

_GRACE_SECONDS = 0.5  # for the thread to notice that its connection was cut
_POLL_SECONDS = 0.05
_TAIL_BYTES = 4096  # more than enough to hold an event's run id

BUSY = Answer("unavailable", "another delivery is running")
LATE = Answer("unavailable", "the time for this delivery is over")
BROKEN = Answer("unavailable", "the outbox could not be read or written")


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a delivery ended: events sent, set aside, and still waiting; and why they wait."""

    sent: int
    set_aside: int
    waiting: int
    fault: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the log was delivered to one endpoint; `tail` is the digest of the last bytes before that."""

    endpoint: str
    delivered: int = 0
    tail: str = ""
    breakdowns: int = 0


@dataclass(slots=True)
class _Progress:
    """The progress of a delivery; its thread writes it, and the thread that waits reads it."""

    sent: int = 0
    set_aside: int = 0
    answer: Answer = LATE


class Outbox:
    """The events of a workspace's log that an endpoint has not accepted yet."""

    def __init__(self, workspace: Workspace) -> None:
        self._log = workspace.lineage_path
        self.folder = workspace.root / "lineage-outbox"

    @property
    def refused_path(self) -> Path:
        """The events that were set aside."""
        return self.folder / "refused.ndjson"

    def deliver(self, endpoint: Endpoint, *, seconds: float) -> Delivery:
        """Send the waiting events for at most `seconds`, then cut the endpoint; failures are part of the result."""
        progress = _Progress()
        worker = threading.Thread(target=self._work, args=(endpoint, time.monotonic() + seconds, progress), daemon=True)
        worker.start()
        worker.join(seconds)
        endpoint.cut()
        worker.join(_GRACE_SECONDS)
        waiting = sum(1 for line, _ in self._lines(self._cursor(endpoint).delivered) if parsed(line))
        return Delivery(progress.sent, progress.set_aside, waiting, progress.answer.reason if waiting else "")

    def _work(self, endpoint: Endpoint, deadline: float, progress: _Progress) -> None:
        try:
            with self._alone(deadline) as alone:
                progress.answer = self._send_all(endpoint, deadline, progress) if alone else BUSY
        except Exception:  # noqa: BLE001  nobody catches errors of a thread: the traceback would go to the terminal
            progress.answer = BROKEN
        finally:
            endpoint.close()

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[bool]:
        """Wait until no other process delivers; the operating system releases the lock when a process ends."""
        self.folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            while not (taken := try_lock(file)) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            yield taken

    def _send_all(self, endpoint: Endpoint, deadline: float, progress: _Progress) -> Answer:
        """Send events in order until one is not accepted; returns the last answer."""
        cursor, refused, answer = self._cursor(endpoint), list[bytes](), ACCEPTED
        for line, end in self._lines(cursor.delivered):
            if parsed(line) is None:  # left incomplete by a crash
                continue
            answer = _offer(endpoint, line, deadline)
            if answer == ACCEPTED:
                self._set_aside(refused, progress)
                progress.sent += 1
                cursor = self._keep(Cursor(cursor.endpoint, end, self._tail(end)))
            elif answer.is_refused or (not refused and self._gives_up(cursor)):
                refused.append(line)
            else:
                break
        return answer

    def _gives_up(self, cursor: Cursor) -> bool:
        """Count a delivery that failed on the event at the cursor; return whether the event is to be set aside."""
        self._keep(replace(cursor, breakdowns=cursor.breakdowns + 1))
        return cursor.breakdowns >= TRIES

    def _lines(self, start: int) -> Iterator[tuple[bytes, int]]:
        """The complete lines of the log from a byte offset on, each with the offset of its end."""
        if not self._log.is_file():
            return
        with open_regular(self._log) as file:
            file.seek(start)
            for line in file:
                start += len(line)
                if not line.endswith(b"\n"):  # still being written, or left incomplete by a crash
                    return
                yield line, start

    def _set_aside(self, refused: list[bytes], progress: _Progress) -> None:
        for line in refused:
            append_line(self.refused_path, line.decode(errors="replace").rstrip("\n"), durable=True)
        progress.set_aside += len(refused)
        refused.clear()

    def _cursor(self, endpoint: Endpoint) -> Cursor:
        """Where the last delivery to this endpoint ended; the beginning if the cursor does not fit the log."""
        fresh = Cursor(endpoint.digest)
        try:
            kept = Cursor(**parse_json(read_text(self._cursor_path)))
            fits = kept.endpoint == fresh.endpoint and kept.tail == self._tail(kept.delivered)
        except (OSError, ValueError, TypeError):
            return fresh
        return kept if fits else fresh

    def _keep(self, cursor: Cursor) -> Cursor:
        draft = self.folder / f".{secrets.token_hex(8)}"
        write_atomically(self._cursor_path, json.dumps(asdict(cursor)).encode(), draft=draft)
        return cursor

    @property
    def _cursor_path(self) -> Path:
        return self.folder / "cursor.json"

    def _tail(self, end: int) -> str:
        """The digest of the log's last bytes before an offset; empty at its beginning and beyond its end."""
        if not 0 < end <= (self._log.stat().st_size if self._log.is_file() else 0):
            return ""
        with open_regular(self._log) as file:
            file.seek(max(0, end - _TAIL_BYTES))
            return hashlib.sha256(file.read(min(end, _TAIL_BYTES))).hexdigest()


def _offer(endpoint: Endpoint, line: bytes, deadline: float) -> Answer:
    """Offer one event; after a refusal it is offered again, because a proxy may have caused the refusal."""
    answer = LATE
    for _ in range(TRIES):
        seconds = min(ANSWER_SECONDS, deadline - time.monotonic())
        answer = endpoint.offer(line.rstrip(b"\n"), seconds) if seconds > 0 else LATE
        if not answer.is_refused:
            break
    return answer
