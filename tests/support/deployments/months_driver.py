"""Lives through months: at each firing of the schedule the clock is set, data land, and the monthly flow runs.

Arguments: the workspace, the number of months, and the file to which the outcomes go as JSON.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from support.tasks.staged import invented_rows

from flows.server.embedded import EmbeddedServer, is_configured, use_server
from tasks.intake.settling import keep_settle
from tasks.workspace.folders import Workspace

BEGIN = datetime(2025, 1, 15, tzinfo=UTC)


def firing(month: int) -> datetime:
    """When the schedule fires for a month: on the first of the next, a little later than planned."""
    return datetime(2025 + (month + 1) // 12, (month + 1) % 12 + 1, 1, 6, 0, 20, tzinfo=UTC)


def period(month: int) -> str:
    """The month's name."""
    return f"2025-{month + 1:02d}"


def live(workspace: Workspace, months: int) -> list[str]:
    """The outcome of each month's flow."""
    from flows.monthly import monthly
    from tasks.ledger.store import Ledger

    outcomes = []
    for month in range(months):
        text = invented_rows(seed=month, count=3000 + 400 * month)  # it grows
        (workspace.landing / f"small-{period(month)}.csv").write_text(text)
        clock = mock.Mock(return_value=firing(month))
        with (
            mock.patch("flows.monthly._registered_at", return_value=BEGIN),
            mock.patch("flows.monthly.utc_now", clock),
            keep_settle(workspace, 0.2),
            mock.patch.dict(Ledger.open.__kwdefaults__, clock=clock),
        ):
            try:
                monthly(str(workspace.root))
                outcomes.append("released")
            except Exception as error:  # noqa: BLE001  the test looks at its words
                outcomes.append(str(error))
    return outcomes


if __name__ == "__main__":
    place = Workspace(Path(sys.argv[1]))
    use_server(place)
    if not is_configured():
        server = EmbeddedServer(place)
        server.start()
        server.use()
    Path(sys.argv[3]).write_text(json.dumps(live(place, int(sys.argv[2]))))
