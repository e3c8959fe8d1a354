"""`dprelease lineage`: a release's graph, and events that wait to be sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpcore.errors import RefusedError
from flows.cli.output import FAILED, JsonFlag, WorkspaceOption, console, print_json

if TYPE_CHECKING:
    from rich.text import Text

    from tasks.lineage.graph import Graph
    from tasks.lineage.outbox import Delivery
    from tasks.workspace.folders import Workspace

FLUSH_SECONDS = 60.0
MARKS = {"COMPLETE": ("✓ ", "green"), "FAIL": ("✗ ", "red"), "START": ("… ", "yellow")}


def lineage(
    context: typer.Context,
    release_id: str | None = typer.Argument(None, metavar="[RELEASE]", help="A release id, as `history` lists them."),
    flush: bool = typer.Option(False, "--flush", help="Send waiting events to the endpoint that release.yaml names."),
    schema: bool = typer.Option(False, "--schema", help="Print the JSON Schema of our facets, and nothing else."),
    workspace: Path = WorkspaceOption,
    as_json: bool = JsonFlag,
) -> None:
    """Show how a release was made and what each measurement cost, or send lineage events that wait."""
    if schema:
        from tasks.lineage.facets import facet_schema

        print_json(facet_schema())
        return
    if (release_id is None) != flush:
        _explain(context, as_json=as_json, both=flush)
        return
    from tasks.workspace.folders import Workspace

    place = Workspace(workspace.resolve())
    place.require()
    if release_id is None:
        _flush(place, as_json=as_json)
    else:
        _show_graph(place, release_id, as_json=as_json)


def _explain(context: typer.Context, *, as_json: bool, both: bool) -> None:
    """The help for a person who gave nothing; a refusal for a script, and for one who gave too much."""
    if both or as_json:
        raise RefusedError("name a release, or use --flush", rule="usage", where="command line", hint="see --help")
    typer.echo(context.get_help())


def _show_graph(place: Workspace, release_id: str, *, as_json: bool) -> None:
    from tasks.lineage.graph import lineage_graph

    graph = lineage_graph(place, release_id)
    print_json(graph) if as_json else _show_tree(release_id, graph)


def _show_tree(release_id: str, graph: Graph) -> None:
    from rich.tree import Tree

    from tasks.lineage.events import RETRACT
    from tasks.lineage.graph import dataset_in_words, guarantee_in_words, spends_in_words, withdrawal_in_words

    nodes = {node["id"]: node for node in graph["nodes"]}
    flow = next((node for node in nodes.values() if node["kind"] == "flow"), {"state": "START", "runs": []})
    tree = Tree(_line(release_id, flow, f"{len(flow['runs'])} run{'s'[: len(flow['runs']) != 1]}"))
    if whole := guarantee_in_words(flow):
        tree.add(_dim(whole))
    for stage in (node for node in nodes.values() if node["kind"] == "stage"):
        reads = [nodes[edge["from"]]["name"] for edge in graph["edges"] if edge["to"] == stage["id"]]
        wrote = [nodes[edge["to"]] for edge in graph["edges"] if edge["from"] == stage["id"]]
        writes = [node["name"] for node in wrote]
        branch = tree.add(_line(stage["name"], stage, f"{', '.join(reads) or '·'} → {', '.join(writes) or '·'}"))
        in_words = withdrawal_in_words if stage["name"] == RETRACT else dataset_in_words
        for words in [*spends_in_words(stage), *filter(None, map(in_words, wrote)), *_failure(stage)]:
            branch.add(_dim(words))
    console().print(tree)


def _line(name: str, job: dict[str, Any], rest: str) -> Text:
    from rich.text import Text

    mark = MARKS.get(job["state"], ("? ", "yellow"))
    return Text.assemble(mark, (f"{name:<10}", "bold"), (f" {rest}", "dim"))


def _dim(words: str) -> Text:
    from rich.text import Text

    return Text(words, style="dim")


def _failure(stage: dict[str, Any]) -> list[str]:
    """How a stage's last run failed."""
    return [stage["runs"][-1]["error"]] if stage["state"] == "FAIL" and stage["runs"][-1].get("error") else []


def _flush(place: Workspace, *, as_json: bool) -> None:
    from tasks.lineage.endpoint import endpoint_of
    from tasks.lineage.outbox import Outbox
    from tasks.spec import load_spec

    spec = load_spec(place.spec_path)
    if spec.lineage is None:
        raise RefusedError(
            "the specification names no endpoint for lineage",
            rule="lineage-not-configured",
            where="lineage",
            hint="add `lineage: {url: https://...}` to release.yaml",
        )
    delivery = Outbox(place).deliver(endpoint_of(place, spec.lineage), seconds=FLUSH_SECONDS)
    _say(delivery, as_json=as_json)
    if delivery.waiting:
        raise SystemExit(FAILED)


def _say(delivery: Delivery, *, as_json: bool) -> None:
    if as_json:
        keys = ("sent", "set_aside", "waiting", "fault")
        print_json({key: getattr(delivery, key) for key in keys})
        return
    out = console()
    out.print(f"sent {delivery.sent} events")
    if delivery.set_aside:
        out.print(f"{delivery.set_aside} events were refused and moved to lineage-outbox/refused.ndjson")
    if delivery.waiting:
        out.print(f"{delivery.waiting} events are not sent yet: {delivery.fault}")
