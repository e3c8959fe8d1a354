"""The page of a release: guarantee, utility, lineage, flow runs, approval and files, or its status if unpublished."""

from __future__ import annotations

from typing import Any

from tasks.ledger.entries.entry import Entry
from tasks.ledger.releases import ReleaseState
from tasks.lineage.datasets import FILES
from tasks.lineage.events import RETRACT
from tasks.report import report
from tasks.site.frame import Site
from tasks.site.ledger import format_cost
from tasks.site.lineage import NARROW, WIDE, lineage_svg
from tasks.site.rows import SIGNS, TONES, is_from_elsewhere
from tasks.site.survey import FAULTS

PARTS = {"projection": "model.json", "frame": "model.json", "figures": "record.json"}
"""The file of a bundle that contains a dataset of the lineage."""

ABOUT = {
    "data.parquet": "synthetic rows",
    "projected.parquet": "synthetic rows as points along the projection",
    "codebook.json": "description of each column",
    "record.json": "guarantee, measurements, costs and checks",
    "report.html": "the report of the release",
    "model.json": "projection and noisy measurements",
    "lineage.ndjson": "which stage read and wrote what",
    "statement.intoto.json": "signed statement about all files",
    "registry.yaml": "entry for the DP Deployments Registry",
}


def release_page(site: Site, release: ReleaseState) -> str:
    """Render the page of a release, published or not."""
    release_id, path = release.release_id, site.release_href(release.release_id) or ""
    bundle = site.survey.bundles.get(release_id)
    record, view = _view(bundle.record if bundle else None)
    return site.render(
        "release.html.j2",
        path,
        release=release,
        tone=TONES.get(release.status, "plain"),
        sign=SIGNS[TONES.get(release.status, "plain")],
        record=record,
        view=view,
        unreadable=bundle is not None and record is None,
        bundle=bundle,
        about=ABOUT,
        elsewhere=is_from_elsewhere(site, release),
        entries=_release_entries(site, release_id),
        spent=format_cost(release.spent),
        reserved=format_cost(release.reserved),
        superseded_by=_superseded_by(site, release_id),
        faults=[c for c in site.survey.faults if c.name.partition(": ")[0] == release_id],
        checked=[c for c in site.survey.checks if c.name.partition(": ")[0] == release_id],
        runs=_flow_runs(site, release_id),
        drawings=_drawings(site, release_id),
    )


def refusal_page(site: Site, entry: Entry) -> str:
    """Render the page of a refused request for which nothing was reserved."""
    path = site.release_href(entry.release_id) or ""
    entries = _release_entries(site, entry.release_id)
    return site.render("refusal.html.j2", path, entry=entry, entries=entries, runs=_flow_runs(site, entry.release_id))


def _view(record: dict[str, Any] | None) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the record and what its report shows; neither if the record was changed and cannot be shown."""
    if record is None:
        return None, {}
    try:
        return record, report.view_of(record)
    except (*FAULTS, IndexError):
        return None, {}


def _release_entries(site: Site, release_id: str) -> list[Entry]:
    return [entry for entry in site.survey.entries if entry.release_id == release_id]


def _superseded_by(site: Site, release_id: str) -> str | None:
    later = [r for r in site.survey.state.releases.values() if r.reservation.supersedes == release_id and r.published]
    return later[-1].release_id if later else None


def _flow_runs(site: Site, release_id: str) -> list[dict[str, Any]]:
    """Return the flow runs that the ledger names for a release, with their state in the orchestrator's history."""
    known = site.survey.runs or {}
    found: dict[str, list[Entry]] = {}
    for entry in _release_entries(site, release_id):
        if entry.seq <= site.survey.verified and (run_id := entry.flow_run_id):
            found.setdefault(run_id, []).append(entry)
    return [
        {"id": run_id, "state": _state(known, run_id), "entries": entries, "href": site.run_href(run_id)}
        for run_id, entries in found.items()
    ]


def _state(known: Any, run_id: str) -> str:
    run = known.get(run_id)
    return str(run["state"]).lower() if run else "not in the available history"


# ---------------------------------------------------------------- lineage


def _drawings(site: Site, release_id: str) -> list[tuple[str, Any]]:
    graph = site.survey.graphs.get(release_id)
    if graph is None:
        return []
    names = ", ".join(node["name"] for node in graph["nodes"] if node["kind"] == "stage")
    alt = f"Lineage of {release_id}: the stages {names}, and what each read and wrote"

    def href(node: dict[str, Any]) -> str | None:
        return _node_href(site, release_id, node)

    kinds = (("wide-only", WIDE), ("narrow-only", NARROW))
    return [(kind, lineage_svg(graph, href, columns=columns, alt=alt)) for kind, columns in kinds]


def _node_href(site: Site, release_id: str, node: dict[str, Any]) -> str | None:
    """Return where a node links to: a dataset to its file, a stage to its ledger entry."""
    release = site.survey.state.releases[release_id]
    seq: int | None = None
    if node["kind"] == "dataset" and (file := _file_of(node["name"])):
        return _up(site.file_href(release_id, file))
    if node["name"] in ("bundle", "sealed-bundle"):
        return "#files" if release_id in site.survey.bundles else None
    if node["name"] == RETRACT and release.retraction:
        seq = release.retraction.seq
    elif node["name"] in ("allocate", "reservation"):
        seq = release.reserve_seq
    elif node["name"] == "publish" and release.published:
        seq = release.published.seq
    elif node["name"] == "seal" and release.awaiting:
        seq = release.awaiting.seq
    else:
        seq = next((node[key].get("ledgerEntry") for key in node if key.startswith("dp_spend")), None)
    return _up(site.entry_href(seq)) if isinstance(seq, int) else None


def _file_of(dataset: str) -> str | None:
    """Return the file of a bundle that contains a dataset; model.json contains every measurement."""
    return "model.json" if dataset.startswith("noisy-") else (FILES | PARTS).get(dataset)


def _up(href: str | None) -> str | None:
    """Make an address in the site's folder relative to the page of a release."""
    return None if href is None else f"../{href}"
