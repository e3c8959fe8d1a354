"""Wait, before a run reads landing data, until nobody is writing them."""

from __future__ import annotations

from tasks.boundary import log_operator
from tasks.intake.arrivals import wait_until_settled
from tasks.intake.settling import settle_seconds
from tasks.spec import ReleaseSpec
from tasks.workspace.folders import Workspace

LONGEST_WAIT_SECONDS = 600.0
"""How long a run waits for files that are being written before it gives up."""


def await_landing(place: Workspace, spec: ReleaseSpec, period: str | None) -> None:
    """Wait until nobody is writing a month's landing data, and tell the operator which files were put apart.

    Raises: LandingError if that takes too long.
    """
    settle = settle_seconds(place)
    for refusal in wait_until_settled(place, spec, period=period, seconds=LONGEST_WAIT_SECONDS, settle=settle):
        log_operator(f"a file was put into quarantine ({refusal.rule})")
