"""Prints the variables that prefect.yaml needs for a workspace, as shell assignments.

eval "$(python -P -m deployments.environment clinic --pool releases)"
prefect --no-prompt deploy --all --prefect-file deployments/prefect.yaml
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from dpcore.errors import RefusedError
from flows.announce import EVENT, resource_of
from tasks.spec import ReleaseSpec, load_spec
from tasks.workspace.folders import Workspace

NIGHTLY = "30 3 * * *"
REGISTERED = "registered"
"""A file in the workspace's Prefect home that exists once the deployments and their triggers are registered."""

ACTIVE, INACTIVE = "true", "false"


def variables(workspace: Workspace, spec: ReleaseSpec, pool: str) -> dict[str, str]:
    """The variables by name; a schedule that the specification does not ask for is inactive."""
    schedule = spec.schedule
    return {
        "DPRELEASE_NAME": spec.name,
        "DPRELEASE_WORKSPACE": str(workspace.root),
        "DPRELEASE_POOL": pool,
        "DPRELEASE_CRON": schedule.cron or NIGHTLY,
        "DPRELEASE_MONTHLY": ACTIVE if schedule.cron else INACTIVE,
        "DPRELEASE_TIMEZONE": schedule.timezone,
        "DPRELEASE_NIGHTLY": NIGHTLY,
        "DPRELEASE_EVENT": EVENT,
        "DPRELEASE_RESOURCE": resource_of(spec),
        "DPRELEASE_LANDING": ACTIVE if schedule.on_landing else INACTIVE,
    }


def main() -> None:
    """Print the assignments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--pool", required=True)
    asked = parser.parse_args()
    workspace = Workspace(asked.workspace.resolve())
    try:
        workspace.require()
        found = variables(workspace, load_spec(workspace.spec_path), asked.pool)
    except RefusedError as error:
        sys.stderr.write(f"{error}\n{error.hint}\n")
        raise SystemExit(2) from None
    sys.stdout.write("".join(f"export {name}={shlex.quote(value)}\n" for name, value in found.items()))


if __name__ == "__main__":
    main()
