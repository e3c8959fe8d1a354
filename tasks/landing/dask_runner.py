"""The workers of a Dask cluster: each sums a piece of the data and returns the exact sum.

They draw no noise. If a worker is lost, another one sums its piece again, with the same bits and at no
privacy cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from threadpoolctl import threadpool_limits

from dpcore.errors import LandingError, RefusedError
from tasks.landing.fragments import portable_version
from tasks.landing.passes import Pass, Piece
from tasks.workspace.build_identity import code_digest
from tasks.workspace.redaction import ErrorBoundary, own_error

if TYPE_CHECKING:
    from distributed import Client

S = TypeVar("S")

LEAST_AHEAD = 4
PATIENCE = 60.0
"""Seconds to wait for a worker when none is left."""


def refused(message: str, rule: str, hint: str) -> RefusedError:
    """The refusal of a run whose cluster cannot be used."""
    return RefusedError(message, rule=rule, where="runner.dask", hint=hint)


def _failed() -> RefusedError:
    hint = "install the same version of dprelease on every worker, and give workers enough memory"
    return refused("the Dask cluster could not process a part of the data", "runner-failed", hint)


@dataclass(frozen=True, slots=True)
class WorkerAnswer(Generic[S]):
    """The answer of a worker: the identity of its program, and the sum of a piece or the reason for its absence."""

    build: str
    sum: S | None = None
    refusal: dict[str, str] | None = None
    fault: str | None = None

    def __repr__(self) -> str:
        return "WorkerAnswer(<private>)"


def answered(work: Pass[S], piece: Piece) -> WorkerAnswer[S]:
    """The sum of a piece, computed on a worker; it raises no error, because Dask would log text and arguments."""
    build = code_digest()
    try:
        with threadpool_limits(1, user_api="blas"):
            _require_seen(piece)
            total = work.of(piece)
            _require_seen(piece)
            return WorkerAnswer(build, total)
    except RefusedError as error:
        return WorkerAnswer(build, refusal=error.as_json())
    except Exception as error:  # noqa: BLE001  no foreign error passes this boundary
        return WorkerAnswer(build, fault=str(own_error(error, "pass")))


def _require_seen(piece: Piece) -> None:
    """Check that this worker sees the files of the run, and not other files with the same names.

    Raises: RefusedError.
    """
    if any(portable_version(part.file) != part.version for part in piece.fragment.parts):
        hint = (
            "give workers the same files under the same paths (a shared folder), or use a store that all reach by URL"
        )
        raise refused("a worker sees other landing data than this machine", "runner-blind", hint)


class Dask:
    """A cluster's workers; each processes one piece at a time."""

    size = 1 << 29

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        self._client, self._patience = client, patience

    def sums(self, work: Pass[S], pieces: Sequence[Piece]) -> Iterator[S]:
        """The sums of all pieces, in the order of completion.

        Raises: LandingError, RefusedError; unfinished work is cancelled.
        """
        waiting, pending = iter(pieces), set[Any]()
        try:
            while True:
                ahead = max(2 * self._workers(), LEAST_AHEAD) - len(pending)
                pending |= {self._client.submit(answered, work, piece, pure=False) for piece in islice(waiting, ahead)}
                if not pending:
                    return
                done = self._finished(pending)
                pending -= done
                yield from map(self._sum, done)
        finally:
            self._client.cancel(list(pending))

    def _finished(self, pending: set[Any]) -> set[Any]:
        """The finished futures, as soon as there is one.

        Raises: RefusedError if there has been no worker or no scheduler for too long.
        """
        from distributed import wait

        end = time.monotonic() + self._patience
        while True:
            try:
                with self._client.as_current():
                    done: set[Any] | None = set(wait(list(pending), timeout=2, return_when="FIRST_COMPLETED").done)
            except TimeoutError:
                done = set()
            except Exception:  # noqa: BLE001  a lost scheduler raises errors of many types
                done = None
            if done:
                return done
            if self._workers():
                end = time.monotonic() + self._patience
            if done is None or time.monotonic() > end:
                hint = "start the scheduler and workers, and run again; nothing was measured"
                raise refused("the Dask cluster has ended, or has no workers left", "runner-lost", hint)

    def _workers(self) -> int:
        try:
            return len(self._client.nthreads())
        except Exception:  # noqa: BLE001  as above
            return 0

    def _sum(self, future: Any) -> Any:
        """The sum in a worker's answer.

        Raises: RefusedError, without the text of the worker's error.
        """
        with ErrorBoundary(Exception, refusal=lambda _: _failed()):  # its text comes from another machine
            answer: WorkerAnswer[Any] = future.result()
        if answer.build != code_digest():
            hint = "install the same version of dprelease, Python and its libraries on every worker"
            raise refused("a worker runs another version of the program", "runner-differs", hint)
        if answer.refusal is not None:
            kind = RefusedError if answer.refusal["rule"].startswith("runner-") else LandingError
            said = dict(answer.refusal)
            raise kind(said.pop("error"), **said)
        if answer.fault is not None:
            hint = "run without `runner` to see whether it fails here too"
            raise refused(f"a worker failed: {answer.fault}", "runner-failed", hint)
        return answer.sum
