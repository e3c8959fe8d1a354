"""The lineage of one release as a graph of datasets and jobs, with an edge for each read and write.

It is built from the bundle's events, if there is a bundle, and from the workspace's log, which alone
records publication, failed runs and releases that were never published.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tasks.lineage.events import FLOW, events_of, is_whole, listed
from tasks.lineage.facets import COST, GUARANTEE, LEDGER, SPEND
from tasks.spec.relations import UNPROVED, at_most
from tasks.workspace.folders import Workspace, unknown_release

Event = dict[str, Any]
Graph = dict[str, list[dict[str, Any]]]

LOG = "lineage.ndjson"
OURS = "dp_"
"""The prefix of our own facets, which state guarantees and spends."""
WITHDRAWN = "withdrawn"
"""In the node of a bundle: the ledger entry that retracts it."""


def lineage_graph(workspace: Workspace, release_id: str) -> Graph:
    """Nodes and edges of a release; several runs of a stage are one node.

    Raises: RefusedError if no event names the release.
    """
    events = _events(workspace, release_id)
    if not events:
        raise unknown_release(f"the lineage contains no release {release_id!r}")
    return {"nodes": [*_jobs(events).values(), *_datasets(events).values()], "edges": _edges(events)}


def _events(workspace: Workspace, release_id: str) -> list[Event]:
    """Each event of the release once, in order."""
    logs = [folder / LOG for folder in workspace.bundles() if folder.name == release_id]
    told = [event for path in (*logs, workspace.lineage_path) for event in events_of(path) if is_whole(event)]
    runs = {run for event in told if _names_release(event, release_id) for run in _run_and_parent(event)}
    unique = {(e["run"]["runId"], e["eventType"]): e for e in reversed(told) if e["run"]["runId"] in runs}
    return list(reversed(unique.values()))


def _names_release(event: Event, release_id: str) -> bool:
    """Whether a tag or a dataset names the release; events of early versions have no tags."""
    datasets = listed(event, "inputs") + listed(event, "outputs")
    tag = {"key": "release", "value": release_id, "source": "dprelease"}
    tags = listed(_run_facet(event, "tags"), "tags")
    is_tagged = any(entry.items() >= tag.items() for entry in tags if isinstance(entry, dict))
    return is_tagged or any(dataset["name"].startswith(f"{release_id}/") for dataset in datasets)


def _run_and_parent(event: Event) -> list[str]:
    """The ids of the event's run and of its parent."""
    parent = _parent_run(event)
    return [event["run"]["runId"], *([parent] if parent else [])]


def _parent_run(event: Event) -> str | None:
    run = _run_facet(event, "parent").get("run")
    parent = run.get("runId") if isinstance(run, dict) else None
    return parent if isinstance(parent, str) else None


def _run_facet(event: Event, key: str) -> dict[str, Any]:
    facet = event["run"].get("facets", {}).get(key)
    return facet if isinstance(facet, dict) else {}


def _short(name: str) -> str:
    """A dataset's role, or a job's stage: what follows the release's id or name."""
    return name.rpartition("/")[2].rpartition(".")[2]


def _jobs(events: Iterable[Event]) -> dict[str, dict[str, Any]]:
    """The flow and its stages, in the order of their first start."""
    jobs: dict[str, dict[str, Any]] = {}
    for event in events:
        name = event["job"]["name"]
        stage = _short(name)
        kind = "flow" if stage == FLOW else "stage"
        _add_event(jobs.setdefault(name, {"id": f"job:{name}", "kind": kind, "name": stage, "runs": {}}), event)
    return {name: job | {"runs": list(job["runs"].values())} for name, job in jobs.items()}


def _add_event(job: dict[str, Any], event: Event) -> None:
    run = event["run"]["runId"]
    job["state"] = event["eventType"]
    job["runs"].setdefault(run, {"run_id": run, "parent": _parent_run(event)})["state"] = event["eventType"]
    if message := _run_facet(event, "errorMessage").get("message"):
        job["runs"][run]["error"] = message
    job |= {
        key: _without_schema_keys(_run_facet(event, key))
        for key in event["run"].get("facets", {})
        if key.startswith(OURS)
    }


def _without_schema_keys(facet: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facet.items() if not key.startswith("_")}


def _datasets(events: Iterable[Event]) -> dict[str, dict[str, Any]]:
    """The datasets that were read or written, in the order of their first appearance."""
    datasets: dict[str, dict[str, Any]] = {}
    for event in events:
        for dataset in listed(event, "inputs") + listed(event, "outputs"):
            name = dataset["name"]
            node = datasets.setdefault(name, {"id": f"dataset:{name}", "kind": "dataset", "name": _short(name)})
            columns = [
                {"name": f.get("name"), "type": f.get("type")}
                for f in listed(dataset.get("facets", {}).get("schema", {}), "fields")
                if isinstance(f, dict)
            ]
            if columns:
                node["columns"] = columns
            node |= _known(dataset)
    return datasets


def _known(dataset: dict[str, Any]) -> dict[str, Any]:
    """Digest, cost and ledger entry of a dataset that was written, and the number of synthetic rows."""
    facets, written = dataset.get("facets", {}), dataset.get("outputFacets", {})
    if facets.get("lifecycleStateChange", {}).get("lifecycleStateChange") == "DROP" and LEDGER in facets:
        return {WITHDRAWN: _without_schema_keys(facets[LEDGER])}
    statistics = written.get("outputStatistics") if isinstance(written, dict) else None
    found = {
        "version": facets.get("version", {}).get("datasetVersion"),
        "rows": statistics.get("rowCount") if isinstance(statistics, dict) else None,
    } | {key: _without_schema_keys(facets[key]) for key in facets if key.startswith(OURS)}
    return {key: value for key, value in found.items() if value is not None}


def _edges(events: Iterable[Event]) -> list[dict[str, str]]:
    """The edges between datasets and stages; the flow has none, because its data are those of its stages."""
    edges: dict[tuple[str, str], None] = {}
    for event in events:
        name = event["job"]["name"]
        if _short(name) == FLOW:
            continue
        for dataset in listed(event, "inputs"):
            edges[f"dataset:{dataset['name']}", f"job:{name}"] = None
        for dataset in listed(event, "outputs"):
            edges[f"job:{name}", f"dataset:{dataset['name']}"] = None
    return [{"from": source, "to": target} for source, target in edges]


# ---------------------------------------------------------------- in words


def spends_in_words(job: dict[str, Any]) -> list[str]:
    """The cost of each measurement of a stage or flow; events of version 1 state only the cost of the release."""
    keys = [key for key in job if key.startswith(SPEND)]
    return [
        _spend_facet_words(job, key) for key in sorted(keys, key=lambda key: str(job[key].get("ledgerEntry")).zfill(20))
    ]


def _spend_facet_words(job: dict[str, Any], key: str) -> str:
    spend = job[key]
    entry = f"ledger entry {spend.get('ledgerEntry')}"
    if "measurement" not in spend:
        whole = job.get(key.replace(SPEND, GUARANTEE), {})
        return (
            f"measured within the release's epsilon {_figure(whole.get('epsilon'))}, {entry}, {whole.get('mechanism')}"
        )
    own, whole = (spend.get(name) if isinstance(spend.get(name), dict) else {} for name in ("alone", "ofRelease"))
    cost = f"epsilon {_figure(own.get('epsilon'))}{_delta(own)}"
    if "rho" in spend:
        cost = f"rho {_figure(spend['rho'])}, alone {cost},"
    stated = f"{cost} of the release's {_figure(whole.get('epsilon'))}"
    return f"measured {spend['measurement']}: {stated}, {entry}, {spend.get('mechanism')}{_doubt_words(spend)}"


def _doubt_words(spend: dict[str, Any]) -> str:
    return f" ({UNPROVED})" if str(spend.get("proof", "")).startswith("approximate") else ""


def guarantee_in_words(flow: dict[str, Any]) -> str | None:
    """The guarantee of the whole release, and the part that was spent if its flow failed; None for older events."""
    whole = flow.get(GUARANTEE)
    if not isinstance(whole, dict) or "measurements" not in whole:
        return None
    stated = f"the release: epsilon {_figure(whole.get('epsilon'))}{_delta(whole)}"
    basis = f"{whole.get('neighbours')}, unit {whole.get('unit')}, population {whole.get('population')}"
    spent = whole.get("spent")
    part = f"; epsilon {_figure(spent.get('epsilon'))} of it was spent" if isinstance(spent, dict) else ""
    doubt = next((_doubt_words(flow[key]) for key in flow if key.startswith(SPEND) and _doubt_words(flow[key])), "")
    return f"{stated}{doubt}, {basis}{part if flow.get('state') != 'COMPLETE' else ''}"


def dataset_in_words(node: dict[str, Any]) -> str | None:
    """Digest, rows and cost, or ledger entry, of a dataset that was written; None for the others."""
    cost, entry = node.get(COST), node.get(LEDGER)
    if not isinstance(cost, dict):
        return f"wrote {node['name']}: ledger entry {entry.get('ledgerEntry')}" if isinstance(entry, dict) else None
    version, rows, names = node.get("version"), node.get("rows"), listed(cost, "measurements")
    parts = [str(version)[:19] + "..." if version else "", f"{rows} rows" if rows is not None else ""]
    of = ", ".join(map(str, names)) or "public"
    parts.append(f"epsilon {_figure(cost.get('epsilon'))}{_delta(cost)} ({of})")
    return f"wrote {node['name']}: {', '.join(part for part in parts if part)}"


def withdrawal_in_words(node: dict[str, Any]) -> str | None:
    """The ledger entry that retracts a bundle; None for datasets that nobody withdrew."""
    entry = node.get(WITHDRAWN)
    return f"withdrew {node['name']}: ledger entry {entry.get('ledgerEntry')}" if isinstance(entry, dict) else None


def _delta(stated: dict[str, Any]) -> str:
    return f", delta {_figure(stated.get('delta'))}" if stated.get("delta") else ""


def _figure(value: Any) -> str:
    return at_most(value) if isinstance(value, int | float) else str(value)
