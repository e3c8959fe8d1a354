"""What stages need and nobody has asked for yet, prepared while the orchestration server starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from dpcore.plans import Plan


def prepare_stages(plan: Plan) -> None:
    """Load the validation library and audit this build's mechanisms, each in a thread that nobody waits for.

    A stage that comes earlier waits for the same work; a fault shows where the stage meets it again.
    """
    for work in (_load_suites, lambda: _audit(plan)):
        threading.Thread(target=_attempt, args=[work], daemon=True).start()


def _attempt(work: Callable[[], None]) -> None:
    with suppress(Exception):
        work()


def _load_suites() -> None:
    from expectations.quiet import quietly

    with quietly():
        return


def _audit(plan: Plan) -> None:
    from tasks.stores.gate import audit_of_build, kept_audit

    for event in plan.events.values():
        if kept_audit(event) is None:
            audit_of_build(event)
