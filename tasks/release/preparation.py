"""What stages need and nobody has asked for yet, prepared while the orchestration server starts."""

from __future__ import annotations

import threading
from contextlib import suppress

from dpcore.planning.plan import Plan


def prepare_stages(plan: Plan) -> None:
    """Audit this build's mechanisms in a thread that nobody waits for.

    A stage that comes earlier waits for the same work; a fault shows where the stage meets it again.
    """
    threading.Thread(target=_audit, args=[plan], daemon=True).start()


def _audit(plan: Plan) -> None:
    from tasks.release.build_gate import audit_of_build, kept_audit

    with suppress(Exception):
        for event in plan.events.values():
            if kept_audit(event) is None:
                audit_of_build(event)
