"""Audits draw every released row again: whoever holds the key still cannot publish rows of their own."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from support.tasks.audit.evidence import Given, hand_over, republish
from support.tasks.audit.forger import ROWS, Forger
from support.tasks.audit.tampering import FIRST, broken, rewritten
from support.tasks.staged import SPEC, UNMODELLED, land_rows, plain_model, release

from dpcore.synthesis.generators import INDEPENDENT, ROUNDED, SAMPLERS, UNNUMBERED
from tasks.audit import Redraw, audit_workspace, not_shown
from tasks.audit.agreement import RELATIVE_DISTANCE
from tasks.bundle.registry_entry import deployment_text
from tasks.bundle.staging import render_json
from tasks.bundle.statement import PAYLOAD_TYPE, STATEMENT, pre_authentication
from tasks.keys.signing import SigningKey, signing_key
from tasks.report.report import render_report
from tasks.workspace.build_identity import dependencies_digest
from tasks.workspace.folders import Workspace


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one release of several chunks; not to be changed."""
    root = tmp_path_factory.mktemp("large")
    Workspace(root).create()
    (root / "release.yaml").write_text(SPEC.replace("rows: 50\n", f"rows: {ROWS}\n"))
    land_rows(root, "2026-01")
    release(Workspace(root), "2026-01")
    return root


@pytest.fixture
def given(large: Path, tmp_path: Path) -> Given:
    return hand_over(Workspace(large), tmp_path / "given")


@pytest.fixture
def key(large: Path) -> SigningKey:
    return signing_key(large / "keys")


def with_cell(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    cells = table[name].to_pylist()
    cells[row] = value
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(name), pa.array(cells, table.schema.field(name).type))


def with_raw_rows(forger: Forger, share: float) -> pa.Table:
    table, raw = forger.table(), forger.raw()
    places = np.arange(0, len(table), round(1 / share))
    mask = np.isin(np.arange(len(table)), places)
    columns = [
        pa.array(np.where(mask, raw[name].to_numpy(zero_copy_only=False), table[name].to_numpy(zero_copy_only=False)))
        for name in table.column_names
    ]
    return pa.table(columns, schema=table.schema)


def hide_before_the_footer(forger: Forger) -> None:
    """Bytes that no column chunk claims: every reader passes over them."""
    content = forger.path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    rewritten(forger.path, content[:footer] + b"Ada Lovelace, 36" + content[footer:])


def hide_in_notes(forger: Forger) -> None:
    table = forger.table()
    forger.path.chmod(0o644)
    pq.write_table(table.replace_schema_metadata({"note": "Ada Lovelace, 36"}), forger.path)


ATTACKS: dict[str, tuple[Callable[[Forger], None], str]] = {
    "the raw table": (lambda f: f.write(f.raw()), "rows"),
    "one raw row in a hundred": (lambda f: f.write(with_raw_rows(f, 0.01)), "rows"),
    "one changed cell": (lambda f: f.write(with_cell(f.table(), "age", 39_999, 50.0)), "rows"),
    "a turned bit": (lambda f: f.write(with_cell(f.table(), "age", 7, next_to(f.table()["age"][7].as_py()))), "rows"),
    "other order": (lambda f: f.write(f.table().take(pa.array(np.arange(ROWS)[::-1]))), "rows"),
    "one row more": (lambda f: f.write(pa.concat_tables([f.table(), f.table().slice(0, 1)])), "data"),
    "one row less": (lambda f: f.write(f.table().slice(1)), "data"),
    "notes": (hide_in_notes, "data"),
    "other row groups": (lambda f: pq.write_table(f.table(), writable(f.path), row_group_size=999), "data"),
    "other encoding": (lambda f: pq.write_table(f.table(), writable(f.path), row_group_size=ROWS), "data"),
    "unclaimed bytes": (hide_before_the_footer, "data"),
    "a column more": (lambda f: pq.write_table(f.table().append_column("x", f.raw()["age"]), writable(f.path)), "data"),
}


def next_to(number: float) -> float:
    return float(np.nextafter(number, 200.0))


def writable(path: Path) -> Path:
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("case", ATTACKS)
def test_a_table_that_the_model_does_not_draw_fails_however_well_it_is_signed(
    given: Given, key: SigningKey, case: str
) -> None:
    change, part = ATTACKS[case]
    change(Forger(given.bundle()))
    republish(given, key)
    assert f"{FIRST}: {part}" in broken(given.audit())


def test_what_was_not_touched_holds_also_when_it_is_signed_again(given: Given, key: SigningKey) -> None:
    republish(given, key)
    assert broken(given.audit()) == {}
    assert not_shown(given.audit()) == []
    assert f"all {ROWS} were drawn again from model and seed: identical" in details(given)[f"{FIRST}: rows"]


def details(given: Given, **options: Any) -> dict[str, str]:
    return {check.name: check.detail for check in given.audit(**options)}


def test_the_raw_table_fails_the_audit_of_the_workspace_too(large: Path, given: Given, tmp_path: Path) -> None:
    """Bundle, statement, checksums and the ledger's database are all of the key's holder."""
    forger = Forger(given.bundle())
    forger.write(forger.raw())
    republish(given, signing_key(large / "keys"))
    workspace = Workspace(Path(shutil.copytree(large, tmp_path / "workspace")))
    shutil.rmtree(workspace.releases)
    shutil.copytree(given.bundles, workspace.releases)
    with closing(sqlite3.connect(workspace.ledger_path)) as ledger, ledger:
        ledger.execute("DROP TRIGGER events_no_update")
        for entry in reversed(given.entries()):
            renewed = (entry.body, entry.previous, entry.hash, entry.signature, entry.seq)
            ledger.execute("UPDATE events SET body=?, previous=?, hash=?, signature=? WHERE seq=?", renewed)
    found = broken(audit_workspace(workspace))
    assert list(found) == [f"{FIRST}: lineage", f"{FIRST}: rows", f"{FIRST}: figures", "lineage log"]
    assert "digest of synthetic-table" in found[f"{FIRST}: lineage"]
    assert "digest of its bundle is not the ledger's" in found["lineage log"]


def test_a_random_part_is_enough_to_find_a_raw_table(given: Given, key: SigningKey) -> None:
    words = details(given, redraw=Redraw(rows=1))[f"{FIRST}: rows"]
    assert f"of {ROWS}, at random, were drawn again" in words
    assert broken(given.audit(redraw=Redraw(rows=1))) == {}
    forger = Forger(given.bundle())
    forger.write(forger.raw())
    republish(given, key)
    assert f"{FIRST}: rows" in broken(given.audit(redraw=Redraw(rows=1)))


def test_whoever_waits_hears_how_far_the_audit_is(given: Given) -> None:
    heard: list[str] = []
    given.audit(redraw=Redraw(on_progress=heard.append))
    assert heard[-1] == f"drawing {FIRST} again: 40,000 of 40,000 rows"


# ---------------------------------------------------------------- other places than the table


def edit(name: str, change: Callable[[Any], object]) -> Callable[[Given], None]:
    def edited(given: Given) -> None:
        path = given.bundle() / name
        document = json.loads(path.read_text())
        change(document)
        rewritten(path, render_json(document).encode())

    return edited


def append(name: str, text: str) -> Callable[[Given], None]:
    return lambda given: rewritten(given.bundle() / name, (given.bundle() / name).read_bytes() + text.encode())


def restate(change: Callable[[Any], object]) -> Callable[[Given], None]:
    """Change the record, and make the documents that follow from it again."""

    def restated(given: Given) -> None:
        edit("record.json", change)(given)
        record = json.loads((given.bundle() / "record.json").read_text())
        rewritten(given.bundle() / "report.html", render_report(record).encode())
        rewritten(given.bundle() / "registry.yaml", deployment_text(record).encode())

    return restated


def retell(change: Callable[[Any], object], *, job: str = "validate") -> Callable[[Given], None]:
    """Change the events of one stage."""

    def retold(given: Given) -> None:
        path = given.bundle() / "lineage.ndjson"
        events = [json.loads(line) for line in path.read_text().splitlines()]
        for event in events:
            if event["job"]["name"].endswith(f".{job}"):
                change(event)
        rewritten(path, "".join(f"{json.dumps(event, sort_keys=True)}\n" for event in events).encode())

    return retold


def spread(given: Given) -> None:
    """Spaces in the lines of the lineage."""
    path = given.bundle() / "lineage.ndjson"
    rewritten(path, path.read_text().replace(": ", ":  ").encode())


HIDDEN = "Ada Lovelace, 36"
HIDING_PLACES: dict[str, tuple[Callable[[Given], None], str]] = {
    "a key of the model": (edit("model.json", lambda m: m.update(more=HIDDEN)), "model"),
    "moments of the model": (edit("model.json", lambda m: m["classes"][0].update(count=1234.5)), "model"),
    "coordinates of the model": (edit("model.json", lambda m: m.update(coordinates=[HIDDEN])), "model"),
    "a measurement's key": (edit("model.json", lambda m: m["measurements"]["moments"].update(more=HIDDEN)), "model"),
    "spaces of the model": (append("model.json", " \t \n"), "model"),
    "a key of the record": (edit("record.json", lambda r: r.update(more=HIDDEN)), "record"),
    "a version of the record": (restate(lambda r: r["code"].update(more=HIDDEN)), "record"),
    "spaces of the record": (append("record.json", " \t \n"), "figures"),
    "figures": (restate(lambda r: r["utility"]["columns"][0]["synthetic"].update(mean=36.0)), "figures"),
    "a metric": (restate(lambda r: r["utility"]["metrics"].update(mean_gap=0.0)), "figures"),
    "a check": (restate(lambda r: r["checks"][0].update(value=36.0)), "figures"),
    "a check of its own": (restate(lambda r: r["checks"].append({**r["checks"][0], "name": HIDDEN})), "figures"),
    "a reason": (restate(lambda r: r["model"]["reasons"].append(HIDDEN)), "plan"),
    "a warning": (restate(lambda r: r["limits"].append(HIDDEN)), "plan"),
    "a promise": (restate(lambda r: r["privacy"]["guarantee"].append(HIDDEN)), "plan"),
    "expectations": (restate(lambda r: r["expected_error"].update(count_sd=36.0)), "plan"),
    "the codebook": (edit("codebook.json", lambda b: b["columns"][0].update(note=HIDDEN)), "codebook"),
    "the registry entry": (append("registry.yaml", f"# {HIDDEN}\n"), "registry"),
    "the report": (append("report.html", f"<!-- {HIDDEN} -->"), "report"),
    "a version besides": (restate(lambda r: r["software"].update(ada="36")), "record"),
    "a facet": (retell(lambda e: e["run"]["facets"].update(note={"text": HIDDEN})), "lineage"),
    "a key of a facet": (retell(lambda e: e["run"]["facets"]["tags"].update(note=HIDDEN)), "lineage"),
    "a facet of a spend": (
        retell(lambda e: e["run"]["facets"].get("dp_spend_moments", {}).update(note=HIDDEN), job="estimate"),
        "lineage",
    ),
    "a tag": (
        retell(lambda e: e["run"]["facets"]["tags"]["tags"].append({"key": "n", "value": HIDDEN, "source": "x"})),
        "lineage",
    ),
    "a job's words": (
        retell(lambda e: e["job"]["facets"]["documentation"].update(description=HIDDEN)),
        "lineage",
    ),
    "a dataset": (retell(lambda e: e["inputs"].append(e["inputs"][0] | {"name": f"{FIRST}/{HIDDEN}"})), "lineage"),
    "a run id": (retell(lambda e: e["run"].update(runId=HIDDEN)), "lineage"),
    "seconds of an event": (retell(lambda e: e.update(eventTime="2026-01-01T00:00:36Z")), "lineage"),
    "spaces of the lineage": (spread, "lineage"),
    "no model": (lambda g: rewritten(g.bundle() / "model.json", b"{"), "model"),
    "another model": (lambda g: rewritten(g.bundle() / "model.json", b"[]"), "model"),
    "no table": (lambda g: rewritten(g.bundle() / "data.parquet", b"PAR1"), "data"),
    "a file more": (lambda g: (g.bundle() / "raw.csv").write_text(HIDDEN), "bundle"),
}


@pytest.mark.parametrize("case", HIDING_PLACES)
def test_nothing_hides_beside_the_table(given: Given, key: SigningKey, case: str) -> None:
    change, part = HIDING_PLACES[case]
    change(given)
    republish(given, key)
    assert f"{FIRST}: {part}" in broken(given.audit(FIRST))


STATEMENT_PLACES: dict[str, Callable[[str], str]] = {
    "spaces": lambda text: text.replace(": ", ":  "),
    "a key twice": lambda text: text.replace("{", '{"payload": "QWRhIExvdmVsYWNl",', 1),
    "lines at the end": lambda text: text + "\n\n",
}


@pytest.mark.parametrize("case", STATEMENT_PLACES)
def test_nothing_hides_in_how_a_statement_is_written(given: Given, key: SigningKey, case: str) -> None:
    path = given.bundle() / STATEMENT
    rewritten(path, STATEMENT_PLACES[case](path.read_text()).encode())
    republish(given, key, restate=False)
    assert list(broken(given.audit(FIRST))) == [f"{FIRST}: statement"]


def test_nothing_hides_in_what_a_statement_signs(given: Given, key: SigningKey) -> None:
    path = given.bundle() / STATEMENT
    payload = b" " + base64.b64decode(json.loads(path.read_text())["payload"])
    signature = {"keyid": key.public.key_id, "sig": key.sign(pre_authentication(PAYLOAD_TYPE, payload))}
    spaced = {"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD_TYPE, "signatures": [signature]}
    rewritten(path, render_json(spaced).encode())
    republish(given, key, restate=False)
    assert list(broken(given.audit(FIRST))) == [f"{FIRST}: statement"]


# ---------------------------------------------------------------- other libraries, another program


def elsewhere(given: Given, library: str = "numpy") -> None:
    """The record of a machine with another version of a library."""

    def claim(record: dict[str, Any]) -> None:
        code, known = record["code"], record["software"][library]
        code["dependencies"] = [
            f"{library}==1.0" if line.startswith(f"{library}=={known}") else line for line in code["dependencies"]
        ]
        code["dependencies_digest"] = dependencies_digest(code["dependencies"])
        record["software"][library] = "1.0"

    restate(claim)(given)


def digest_again(event: Any, content: bytes) -> None:
    """The digest of the only dataset that a stage wrote, which has another content."""
    for version in [dataset["facets"]["version"] for dataset in event["outputs"] if "version" in dataset["facets"]]:
        version["datasetVersion"] = f"sha256:{hashlib.sha256(content).hexdigest()}"


def moved(table: pa.Table, part_of_range: float) -> pa.Table:
    ages = table["age"].to_numpy() + 100 * part_of_range * np.where(np.arange(len(table)) % 2, 1, -1)
    return table.set_column(0, table.schema.field("age"), pa.array(ages))


def test_independent_rows_are_released_by_a_sampler_of_their_own_and_drawn_again(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "apart")
    workspace.create()
    (workspace.root / "release.yaml").write_text(UNMODELLED + plain_model(", sampling: independent"))
    land_rows(workspace.root, "2026-01")
    release(workspace, "2026-01")
    given = hand_over(workspace, tmp_path / "given")
    assert json.loads((given.bundle() / "model.json").read_text())["sampler"] == INDEPENDENT
    assert set(outcomes(given).values()) == {"holds"}
    restate(lambda record: record["model"].update(sampling="rounded"))(given)
    republish(given, signing_key(workspace.keys))
    found = outcomes(given)
    assert (found["model"], found["plan"]) == ("broken", "broken"), "rows of one kind are not said to be of the other"


def test_rows_of_other_libraries_may_differ_by_rounding_alone(given: Given, key: SigningKey) -> None:
    elsewhere(given)
    forger = Forger(given.bundle())
    forger.write(moved(forger.table(), RELATIVE_DISTANCE / 10))
    retell(lambda e: digest_again(e, (given.bundle() / "data.parquet").read_bytes()), job="decode")(given)
    republish(given, key)
    assert broken(given.audit()) == {}
    assert details(given)[f"{FIRST}: rows"].endswith("within the tolerance for another numpy")


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.write(moved(f.table(), 10 * RELATIVE_DISTANCE)),
        lambda f: f.write(with_raw_rows(f, 0.01)),
        lambda f: f.write(f.raw()),
        lambda f: f.write(f.table().take(pa.array(np.arange(ROWS)[::-1]))),
    ],
    ids=["moved", "one raw row in a hundred", "raw", "other order"],
)
def test_the_tolerance_admits_no_data(given: Given, key: SigningKey, change: Callable[[Forger], None]) -> None:
    elsewhere(given)
    change(Forger(given.bundle()))
    republish(given, key)
    assert f"{FIRST}: rows" in broken(given.audit())


def test_a_few_cells_on_a_border_may_fall_to_the_other_side(given: Given, key: SigningKey) -> None:
    elsewhere(given)
    forger, table = Forger(given.bundle()), Forger(given.bundle()).table()
    for row in range(30):
        table = with_cell(table, "ill", row, not table["ill"][row].as_py())
    forger.write(table)
    republish(given, key)
    assert f"{FIRST}: rows" not in broken(given.audit()), "30 of 40,000"
    assert outcomes(given)["data"] == "not-shown", "or they are raw, and another numpy is claimed to let them pass"


def test_whoever_claims_another_library_does_not_get_last_digits_for_free(given: Given, key: SigningKey) -> None:
    elsewhere(given, "scipy")
    forger = Forger(given.bundle())
    forger.write(with_cell(forger.table(), "age", 7, next_to(forger.table()["age"][7].as_py())))
    republish(given, key)
    found = outcomes(given)
    assert (found["rows"], found["data"]) == ("holds", "not-shown")


def outcomes(given: Given) -> dict[str, str]:
    return {check.name.removeprefix(f"{FIRST}: "): check.outcome for check in given.audit(FIRST)}


def test_only_the_library_that_wrote_a_file_shows_that_nothing_is_besides(given: Given, key: SigningKey) -> None:
    elsewhere(given, "pyarrow")
    hide_before_the_footer(Forger(given.bundle()))
    republish(given, key)
    assert outcomes(given)["data"] == "not-shown"
    assert outcomes(given)["rows"] == "holds"


def test_a_sampler_that_is_not_known_shows_nothing_and_breaks_nothing(given: Given, key: SigningKey) -> None:
    edit("model.json", lambda model: model.update(sampler=999))(given)
    republish(given, key)
    assert (outcomes(given)["rows"], outcomes(given)["figures"]) == ("not-shown", "not-shown")
    edit("model.json", lambda model: model.pop("sampler"))(given)
    republish(given, key)
    assert outcomes(given)["rows"] == "not-shown"
    assert "broken" not in outcomes(given).values()


def test_words_of_another_program_show_nothing_but_its_rows_are_drawn_all_the_same(
    given: Given, key: SigningKey
) -> None:
    restate(lambda record: (record["code"].update(digest="0" * 64), record["limits"].append("Mind the gap.")))(given)
    append("report.html", "<!-- another page -->")(given)
    edit("codebook.json", lambda book: book["do_not_trust"].append("Mind the gap."))(given)
    republish(given, key)
    found = outcomes(given)
    assert {name for name, outcome in found.items() if outcome == "not-shown"} == {"plan", "report"}
    assert "broken" not in found.values()


def test_a_model_without_a_number_is_read_as_strictly_as_one_with_it(
    given: Given, key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever drops the number draws with the sampler that had none, and hides nothing beside the rows."""
    monkeypatch.setitem(SAMPLERS, UNNUMBERED, SAMPLERS[ROUNDED])
    unnumbered = json.loads((given.bundle() / "model.json").read_text())
    del unnumbered["sampler"]
    unnumbered["projection"].pop("centre")
    rewritten(given.bundle() / "model.json", render_json(unnumbered).encode())
    spelled = json.dumps(unnumbered["projection"], sort_keys=True, separators=(",", ":"))
    retell(lambda e: digest_again(e, spelled.encode()), job="project")(given)
    republish(given, key)
    assert set(outcomes(given).values()) == {"holds"}
    edit("model.json", lambda model: model.update(more=HIDDEN))(given)
    hide_before_the_footer(Forger(given.bundle()))
    republish(given, key)
    assert (outcomes(given)["model"], outcomes(given)["data"]) == ("not-shown", "not-shown")
