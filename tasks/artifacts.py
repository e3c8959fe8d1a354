"""What an auditor sees in the orchestrator: the release card, the budget, a picture of the fit."""

from __future__ import annotations

import base64
from typing import Any

from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact

from tasks.boundary import private_task
from tasks.pages.report import utility_plot


@private_task("show")
def show_release(record: dict[str, Any]) -> None:
    """Leave the record's facts as artifacts of the run; released and public values only."""
    key = record["name"]
    create_markdown_artifact(release_card(record), key=f"{key}-release-card", description=record["release_id"])
    create_table_artifact(budget_rows(record), key=f"{key}-budget", description="Lifetime budget of the population")
    picture = base64.b64encode(utility_plot(record)).decode()
    create_image_artifact(
        f"data:image/png;base64,{picture}", key=f"{key}-utility", description="Synthetic rows and noisy measurements"
    )


def release_card(record: dict[str, Any]) -> str:
    """The release in a few lines of Markdown."""
    privacy, model = record["privacy"], record["model"]
    facts = {
        "Release": record["release_id"],
        "Period": record["period"],
        "Epsilon, delta": f"{privacy['epsilon']:g}, {privacy['delta']:g} (finite precision {privacy['delta_num']:.1g})",
        "Unit, neighbours": f"{privacy['unit']}, {privacy['neighbours']}",
        "Mechanism": ", ".join(f"{m['mechanism']} ({m['status']})" for m in privacy["measurements"]),
        "Ledger entries": ", ".join(str(m["ledger_entry"]["seq"]) for m in privacy["measurements"]),
        "Projection": f"{model['projection']['kind']}, dimension {model['projection']['dimension']}",
        "Generator": model["generator"],
        "Synthetic rows": record["rows"],
        "Checks": "all hold" if all(check["ok"] for check in record["checks"]) else "not all hold",
    }
    lines = [f"# {record['name']} {record['period']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    return "\n".join([*lines, "", *privacy["guarantee"]])


def budget_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The budget before and after the release, against the cap."""
    budget = record["budget"]
    rows = {"lifetime cap": budget["lifetime"], "before": budget["before"], "after": budget["after"]}
    return [{"": name, **figures} for name, figures in rows.items()]
