"""A Dask cluster's workers: each sums up a piece of the data and sends the exact sum back.

They draw no noise, so a piece that a lost worker takes with it is summed up again elsewhere, with the
same bits and at no cost in privacy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from threadpoolctl import threadpool_limits

from dpcore.errors import LandingError, RefusedError
from tasks.stores.build import code_digest
from tasks.stores.passes import Pass, Piece
from tasks.stores.redaction import own_error

if TYPE_CHECKING:
    from distributed import Client

S = TypeVar("S")

PATIENCE = 60.0
"""Seconds to wait for a worker to come back when all are gone."""


def refused(message: str, rule: str, hint: str) -> RefusedError:
    """The refusal of a run whose cluster is not fit for it."""
    return RefusedError(message, rule=rule, where="runner.dask", hint=hint)


@dataclass(frozen=True, slots=True)
class Answer(Generic[S]):
    """What a worker sends back: which program it is, and the sum of a piece or why there is none."""

    build: str
    sum: S | None = None
    refusal: dict[str, str] | None = None
    fault: str | None = None

    def __repr__(self) -> str:
        return "Answer(<private>)"


def answered(work: Pass[S], piece: Piece) -> Answer[S]:
    """The sum of a piece, on a worker; no error leaves it, since Dask would log its text and arguments."""
    build = code_digest()
    if any(not part.file.exists() for part in piece.fragment.parts):
        return Answer(build, refusal=_unseen().as_json())
    try:
        with threadpool_limits(1, user_api="blas"):
            return Answer(build, work.of(piece))
    except LandingError as error:
        return Answer(build, refusal=error.as_json())
    except Exception as error:  # noqa: BLE001  the boundary: nothing foreign passes
        return Answer(build, fault=str(own_error(error, "pass")))


def _unseen() -> RefusedError:
    hint = "give workers the same paths (a shared folder), or put the data into a store that all reach by its URL"
    return refused("a worker does not see the landing data", "runner-blind", hint)


class Dask:
    """A cluster's workers; each takes a piece at a time."""

    size = 1 << 29

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        self._client, self._patience = client, patience

    def sums(self, work: Pass[S], pieces: Sequence[Piece]) -> Iterator[S]:
        """The sums of all pieces, in the order in which they are done.

        Raises: LandingError, RefusedError; whatever is still running is given up.
        """
        futures = [self._client.submit(answered, work, piece, pure=False) for piece in pieces]
        try:
            for future in self._finished(futures):
                yield self._sum(future)
        finally:
            self._client.cancel(futures)

    def _finished(self, futures: Sequence[Any]) -> Iterator[Any]:
        """Futures as they are done; gives up when there is no worker for too long."""
        from distributed import wait

        pending, alone_since = set(futures), None
        while pending:
            try:
                with self._client.as_current():
                    done = wait(list(pending), timeout=2, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                done = set()
            yield from done
            pending -= set(done)
            alone_since = None if done or self._has_workers() else alone_since or time.monotonic()
            if alone_since is not None and time.monotonic() - alone_since > self._patience:
                hint = "start workers and run again; nothing was measured"
                raise refused("the Dask cluster has no workers left", "runner-lost", hint)

    def _has_workers(self) -> bool:
        try:
            return bool(self._client.scheduler_info(n_workers=1)["workers"])
        except (OSError, RuntimeError, TypeError, KeyError):
            return False

    def _sum(self, future: Any) -> Any:
        """What a worker answered.

        Raises: RefusedError, without the text of whatever went wrong there.
        """
        answer: Answer[Any] | None = None
        try:
            answer = future.result()
        except Exception:  # noqa: BLE001  its text comes from another machine
            answer = None
        if answer is None:
            hint = "install the same version of dprelease on every worker, and give workers enough memory"
            raise refused("the Dask cluster could not sum up a part of the data", "runner-failed", hint)
        if answer.build != code_digest():
            hint = "install the same version of dprelease, Python and its libraries on every worker"
            raise refused("a worker runs another program than this one", "runner-differs", hint)
        if answer.refusal is not None:
            kind = RefusedError if answer.refusal["rule"].startswith("runner-") else LandingError
            said = dict(answer.refusal)
            raise kind(said.pop("error"), **said)
        if answer.fault is not None:
            hint = "run without `runner` to see whether it fails here too"
            raise refused(f"a worker failed: {answer.fault}", "runner-failed", hint)
        return answer.sum
