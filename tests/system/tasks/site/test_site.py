"""The auditor's site shows what happened, hides what is private, and is whole or not there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from support import ROOT
from support.flows.command_line import call
from support.processes import blas_settings
from support.tasks import monthly
from support.tasks.audit.tampering import on_the_ledger, rewritten
from support.tasks.builders import BASIS, cap, released, request
from support.tasks.goldens import GOLDEN
from support.tasks.ledger.postgres import Server
from support.tasks.report.pages import HOSTILE, Page
from support.tasks.site.sited import ADDRESS, dead_links, pages, text_of, written

from dpcore.errors import LedgerError, WorkspaceError
from tasks.audit import audit_workspace
from tasks.keys.signing import signing_key
from tasks.ledger.store import Ledger
from tasks.report.canvas import draw_or_reuse
from tasks.site import folder as sites
from tasks.site import frame, render_site
from tasks.site.survey import survey_workspace
from tasks.spec import load_spec
from tasks.spec.plan import basis_of, cap_of, plan_release
from tasks.workspace.folders import Workspace

pytest_plugins = ["support.tasks.site.fixtures"]
FIRST = "small-2025-11-1"


@pytest.fixture
def months_of_two(published: Path, tmp_path: Path) -> Workspace:
    """A copy of a workspace with two published months."""
    return Workspace(Path(shutil.copytree(published, tmp_path / "workspace")))


@pytest.fixture(scope="session")
def put(published: Path) -> Callable[..., None]:
    """Writes the site of two published months, surveyed once: how it comes to its place does not depend on that."""
    workspace = Workspace(published)
    survey = survey_workspace(workspace, now=monthly.AFTERWARDS)

    def put(out: Path, *, now: datetime = monthly.AFTERWARDS) -> None:
        sites.require_place(workspace, out)
        at_that_time = replace(survey, made_at=now)
        sites.write_site(out, render_site(at_that_time), at_that_time)

    return put


def drawn(site: Path, page: str, kind: str) -> int:
    """How many marks of a kind a page's first drawing has."""
    drawing = (site / page).read_text().partition('class="drawing')[2].partition("</svg>")[0]
    return drawing.count(f'class="{kind}"')


# ---------------------------------------------------------------- a year against a cap for ten


def test_ten_months_are_published_two_refused_with_the_reason_and_the_audit_holds(year_site: Path) -> None:
    words = text_of(year_site, "index.html")
    assert "audit passed" in words
    assert "published 10" in words
    assert "refused 2" in words
    assert words.count("the lifetime budget of 'people' does not allow this release") == 4
    assert "budget-exceeded" in words


def test_the_burn_down_climbs_to_the_cap_and_marks_both_refusals(year_site: Path) -> None:
    drawing = (year_site / "index.html").read_text()
    steps = re.search(r'<path d="([^"]*)" class="spent"', drawing)
    assert steps is not None
    heights = [float(point.split()[1]) for point in re.findall(r"[ML]([\d.]+ [\d.]+)", steps[1])]
    levels = sorted(set(heights), reverse=True)
    assert len(levels) == 11, "nothing spent, and a step for each of ten releases"
    line = re.search(r'<path d="M[\d.]+ ([\d.]+) L[\d.]+ ([\d.]+) ?[^"]*" class="cap"', drawing)
    assert line is not None
    assert float(line[1]) == pytest.approx(levels[-1], abs=0.2), "the last step touches the cap"
    assert drawn(year_site, "index.html", "refused") == 2


def test_the_forecast_names_the_day_of_the_next_refusal(year_site: Path) -> None:
    words = text_of(year_site, "index.html")
    assert "No further release of small fits" in words
    assert "due on 1 December 2026 , will be refused" in words


def capped(root: Path) -> Workspace:
    """A workspace without a release, whose specification has Gaussian noise at another delta than the lifetime's."""
    lifetime = "epsilon: 1, delta: 1.0e-6, lifetime: {epsilon: 12, delta: 1.0e-4}"
    text = monthly.YEAR.replace("epsilon: 0.1, lifetime: {epsilon: 1.0}", lifetime)
    gaussian = monthly.staged.plain_model(", mechanism: gaussian")
    workspace = monthly.fresh(root, text.replace(monthly.staged.PLAIN, gaussian))
    spec = load_spec(workspace.spec_path)
    with closing(monthly.opened_now(workspace)) as ledger:
        ledger.ensure_cap("people", cap_of(spec), basis_of(spec))
    return workspace


def test_the_forecast_of_gaussian_noise_says_what_a_release_states_and_how_costs_add(tmp_path: Path) -> None:
    workspace = capped(tmp_path / "w")
    rho = plan_release(load_spec(workspace.spec_path)).cost.rho
    written(workspace, tmp_path / "site")
    words = " ".join(text_of(tmp_path / "site", "index.html").split())
    found = re.search(
        r"Each release states ε 1 at δ 10⁻⁶ \(ρ = (\S+) of Gaussian noise; such costs add up as ρ\)", words
    )
    assert found is not None
    assert rho <= Fraction(found[1]) <= rho * Fraction(1001, 1000)


def test_no_release_is_foreseen_of_a_specification_that_every_run_refuses(tmp_path: Path) -> None:
    workspace = capped(tmp_path / "w")
    assert survey_workspace(workspace, now=monthly.AFTERWARDS).forecast is not None
    spec = workspace.spec_path
    spec.write_text(spec.read_text().replace("population: people,", "population: people, unit: {person: who},"))
    assert survey_workspace(workspace, now=monthly.AFTERWARDS).forecast is None


def test_a_refused_month_has_a_page_that_says_what_it_cost(year_site: Path) -> None:
    words = text_of(year_site, "releases/small-2026-09-1.html")
    assert "Nothing was reserved, measured or published" in words


def test_the_planted_drift_is_found(year_site: Path) -> None:
    """How rarely anything else is marked is tested where the noise is seeded."""
    words = text_of(year_site, "drift.html")
    assert re.search(
        r"\d+ changes? in 9 comparisons of months (is|are) larger than noise and random variation explain", words
    )
    assert re.search(r"2026-05 ill = True \+\d\d\.\d ± \d\.\d points 2026-04", words)
    assert "expect at most 0.45 with a false alarm" in words


@pytest.mark.parametrize(
    ("kind", "said", "compared"),
    [
        ("private-pca", "the largest spread that a column's bounds allow", True),
        ("public-pca", "come in part from the public table of the projection", False),
        ("none", "", True),
    ],
)
def test_the_drift_page_says_what_chance_is_weighed_with(
    months_of_two: Workspace, tmp_path: Path, kind: str, said: str, compared: bool
) -> None:
    """Records of other projections, made from ours by hand: their audit fails, and is not looked at here."""
    for path in months_of_two.releases.rglob("record.json"):
        record = json.loads(path.read_text())
        record["model"]["projection"] |= {"kind": kind, "dimension": 1}
        rewritten(path, json.dumps(record).encode())
    written(months_of_two, tmp_path / "site")
    words = text_of(tmp_path / "site", "drift.html")
    assert said in words
    assert ("The projection leaves out" in words, "public table" in words) == (kind == "private-pca", not compared)
    assert ("age numeric" in words) == compared


# ---------------------------------------------------------------- everything that can happen


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("index.html", ["awaiting-approval", "check-failed", "superseded", "retracted", "void", "cap, changed once"]),
        ("index.html", ["Retracted by the data board: another hospital's file was measured", "16 more"]),
        (
            "releases/small-2025-12-1.html",
            ["Retracted by the data board on 2026-11-02 10:00", "Do not use this release"],
        ),
        ("ledger.html", ["the board allows another year", "Ada Auditor", "checked against the report", "revoked"]),
        ("releases/small-2026-08-1.html", ["Superseded by small-2026-08-2", "superseded"]),
        ("releases/small-2026-08-2.html", ["supersedes small-2026-08-1", "two wards were counted twice"]),
        ("releases/small-2026-09-1.html", ["Approved by Ada Auditor", "published", "synthetic rows 50"]),
        ("releases/small-2026-10-1.html", ["awaiting-approval", "Waiting since"]),
        ("releases/small-2026-11-1.html", ["check-failed", "Spent ε 0.1", "Reserved and not spent nothing"]),
        (f"releases/{FIRST}.html", ["The guarantee", "Build audit.", "wishart-difference", "Open the report"]),
        ("evidence.html", ["dprelease audit --export", "in another way"]),
    ],
)
def test_pages_say_what_happened(eventful_site: Path, page: str, said: list[str]) -> None:
    words = text_of(eventful_site, page)
    assert [part for part in said if part not in words] == []


def test_flow_runs_lead_to_the_orchestrator_only_if_its_address_is_given(eventful_site: Path, year_site: Path) -> None:
    link = 'href="http://127.0.0.1:4200/runs/flow-run/run"'
    assert link in (eventful_site / "releases" / f"{FIRST}.html").read_text()
    assert ADDRESS.search((year_site / "releases" / f"{FIRST}.html").read_text()) is None


def test_lineage_leads_to_files_and_ledger_entries_and_never_to_the_landing_data(year_site: Path) -> None:
    page = Page((year_site / "releases" / f"{FIRST}.html").read_text())
    links = {a.get("aria-label"): a["href"] for tag, a in page.tags if tag == "a" and a.get("aria-label")}
    bundle = f"../evidence/bundles/small/{FIRST}"
    assert links["data: synthetic-table"] == f"{bundle}/data.parquet"
    assert links["data: report"] == f"{bundle}/report.html"
    assert links["data: bundle"] == "#files"
    assert links["stage allocate, done"] == "../ledger.html#entry-3"
    assert links["stage estimate, done"] == "../ledger.html#entry-4"
    assert links["stage publish, done"] == "../ledger.html#entry-5"
    assert "data: landing" not in links


# ---------------------------------------------------------------- form


def test_every_page_is_well_formed_accessible_and_self_contained(eventful_site: Path) -> None:
    for name, html in pages(eventful_site):
        page = Page(html)
        tags = [tag for tag, _ in page.tags]
        assert page.named("html") == [{"lang": "en"}], name
        assert tags.count("h1") == 1, name
        levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
        assert all(later <= earlier + 1 for earlier, later in pairwise(levels)), name
        assert not {"script", "link", "iframe", "object", "form"} & set(tags), name
        policy = [m["content"] for m in page.named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        assert policy[0].startswith("default-src 'none'"), name
        assert all(a.get("aria-label") for a in page.named("svg")), name
        assert all(a.get("scope") for a in page.named("th")), name
        ids = [a["id"] for _, a in page.tags if a.get("id")]
        assert len(ids) == len(set(ids)), name
        assert not [a for _, a in page.tags if any(key.startswith("on") for key in a)], name
        outside = [a["href"] for a in page.named("a") if ADDRESS.match(str(a["href"]))]
        assert all(link.startswith("http://127.0.0.1:4200/runs/") for link in outside), name


def test_all_links_lead_somewhere(year_site: Path) -> None:
    assert dead_links(year_site) == []


def test_times_are_told_to_the_minute(eventful_site: Path) -> None:
    for name, html in pages(eventful_site):
        assert re.findall(r"\d\d:\d\d:\d\d", html) == [], name


def test_the_same_survey_gives_the_same_pages(months_of_two: Workspace, tmp_path: Path) -> None:
    for out in ("one", "two"):
        draw_or_reuse.cache_clear()
        written(months_of_two, tmp_path / out)
    assert dict(pages(tmp_path / "one")) == dict(pages(tmp_path / "two"))


# ---------------------------------------------------------------- nothing private

CANARY = "quetzalcanary"


def test_no_byte_of_the_site_tells_what_is_private(tmp_path: Path) -> None:
    workspace = monthly.fresh(tmp_path / CANARY)
    rows = "".join(f"{20 + i % 60}.{4918 + i % 7}321,{'true' if i % 3 else 'false'}\n" for i in range(5003))
    (workspace.landing / f"{CANARY}-small-2026-01.csv").write_text(f"age,ill\n{rows}")
    monthly.release_months(workspace, ["2026-01"], land=False)
    workspace.keep_verdicts("small-2026-01-1", [{"column": "age", "rule": CANARY}])
    (workspace.vault / CANARY).write_text(CANARY)
    (workspace.bundle("small", "small-2026-01-1") / "notes.csv").write_text(CANARY)  # dropped there by mistake
    with closing(Ledger.open_to_read(workspace.ledger_path)) as ledger:
        fingerprint = ledger.fingerprint("small-2026-01-1")
    assert fingerprint
    secrets = [CANARY, fingerprint, "4918321", "4922321", (workspace.keys / "fingerprint.key").read_text()]
    secrets += [(workspace.keys / "signing.key").read_text().splitlines()[1]]
    written(workspace, tmp_path / "site")
    for path in (tmp_path / "site").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        told = [secret for secret in secrets if secret.encode() in content or secret in path.name]
        assert told == [], path.name
    for name, _ in pages(tmp_path / "site"):
        assert not re.search(r"\b5,?003\b", text_of(tmp_path / "site", name)), name


def test_the_site_needs_no_raw_data_and_no_secret_keys(months_of_two: Workspace, tmp_path: Path) -> None:
    for folder in (months_of_two.landing, months_of_two.vault):
        shutil.rmtree(folder)
    for secret in months_of_two.keys.glob("*.key"):
        secret.unlink()
    assert written(months_of_two, tmp_path / "site").ok


# ---------------------------------------------------------------- evidence


def printed_arguments(site: Path) -> list[str]:
    """The arguments of the evidence page's command."""
    printed = re.search(r"<code>(dprelease audit [^<]*)</code>", (site / "evidence.html").read_text())
    assert printed is not None
    return [*shlex.split(printed[1])[1:], "--json"]


def run_printed_command(site: Path) -> subprocess.CompletedProcess[str]:
    """The command of the evidence page, run in the site's folder as an auditor would."""
    program = [sys.executable, "-c", "from flows.cli import main; main()"]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | blas_settings()
    arguments = [*program, *printed_arguments(site)]
    return subprocess.run(arguments, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_the_printed_command_verifies_the_evidence_and_finds_what_was_changed(
    eventful_site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Path(shutil.copytree(eventful_site, tmp_path / "handed over"))
    whole = run_printed_command(site)
    assert whole.returncode == 0, whole.stdout
    assert json.loads(whole.stdout)["ok"]
    record = site / "evidence" / "bundles" / "small" / FIRST / "record.json"
    rewritten(record, record.read_bytes().replace(b"proved", b"proven", 1))
    monkeypatch.chdir(site)
    code, out, _ = call(capsys, monkeypatch, *printed_arguments(site))
    assert code == 1
    assert not json.loads(out)["ok"]


def test_the_evidence_is_what_the_workspace_has(months_of_two: Workspace, tmp_path: Path) -> None:
    written(months_of_two, tmp_path / "site")
    copies = tmp_path / "site" / "evidence" / "bundles"
    for path in (p for p in months_of_two.releases.rglob("*") if p.is_file() and p.name != ".lock"):
        assert (copies / path.relative_to(months_of_two.releases)).read_bytes() == path.read_bytes()
    assert json.loads((tmp_path / "site" / "evidence" / "audit.json").read_text())["ok"]


# ---------------------------------------------------------------- workspaces of all kinds


def test_an_empty_workspace_has_a_site(tmp_path: Path) -> None:
    survey = written(monthly.fresh(tmp_path / "w", monthly.YEAR), tmp_path / "site")
    assert survey.ok
    assert "Nothing has been released yet" in text_of(tmp_path / "site", "index.html")
    assert "The specification allows 10 releases" in text_of(tmp_path / "site", "index.html")
    assert "nothing to verify yet" in text_of(tmp_path / "site", "evidence.html")
    assert dead_links(tmp_path / "site") == []


def test_a_specification_that_cannot_be_read_hides_nothing_else(months_of_two: Workspace, tmp_path: Path) -> None:
    months_of_two.spec_path.write_text("name: [")
    written(months_of_two, tmp_path / "site")
    words = text_of(tmp_path / "site", "index.html")
    assert "published 2" in words
    assert "Forecast" not in words


def test_releases_that_only_began_or_failed_are_shown(tmp_path: Path) -> None:
    workspace = monthly.fresh(tmp_path / "w")
    with closing(Ledger.open(workspace.ledger_path, signing_key(workspace.keys))) as ledger:
        ledger.ensure_cap("people", cap(), BASIS)
        ledger.reserve(request("2026-01", name="small"))
        failed = ledger.reserve(request("2026-02", name="small")).release_id
        ledger.spend(failed, "moments", released(), build={"holds": True})
        ledger.fail(failed, status="failed", stage="sample")
    assert written(workspace, tmp_path / "site").ok
    assert "reserved 1" in text_of(tmp_path / "site", "index.html")
    words = text_of(tmp_path / "site", "releases/small-2026-02-1.html")
    assert "failed" in words
    assert "Budget that was spent stays spent" in words
    assert dead_links(tmp_path / "site") == []


def test_a_restored_ledger_has_a_page_that_says_who_restored_it(tmp_path: Path) -> None:
    workspace = capped(tmp_path / "w")
    with closing(monthly.opened_now(workspace)) as ledger:
        ledger.mark_restored(who="ada", made_at="2026-01-01T00:00:00.000000Z")
    written(workspace, tmp_path / "site")
    assert "ada restored a backup" in text_of(tmp_path / "site", "ledger.html")


def test_a_workspace_of_version_1_has_a_site(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "version-1.tar.gz") as archive:
        archive.extractall(tmp_path / "old", filter="data")
    assert written(Workspace(tmp_path / "old"), tmp_path / "site").ok
    assert "written before entries were signed" in text_of(tmp_path / "site", "evidence.html")
    assert "published 2" in text_of(tmp_path / "site", "index.html")
    assert dead_links(tmp_path / "site") == []


def test_long_ledgers_have_pages_whose_addresses_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "ENTRIES_PER_PAGE", 20)
    monkeypatch.setattr("tasks.site.ledger.ENTRIES_PER_PAGE", 20)
    workspace = monthly.fresh(tmp_path / "w")
    with closing(Ledger.open(workspace.ledger_path, signing_key(workspace.keys))) as ledger:
        ledger.ensure_cap("people", cap(), BASIS)
        for month in monthly.months("2020-01", 22):
            ledger.void(ledger.reserve(request(month, name="small")).release_id, reason="given up")
    written(workspace, tmp_path / "site")
    assert sorted(p.name for p in (tmp_path / "site").glob("ledger*")) == [
        "ledger-1.html", "ledger-2.html", "ledger.html",
    ]  # fmt: skip
    newest = Page((tmp_path / "site" / "ledger.html").read_text())
    shown = [a["id"] for a in newest.named("tr") if a.get("id")]
    assert shown == [f"entry-{seq}" for seq in range(46, 40, -1)], "the newest first"
    assert dead_links(tmp_path / "site") == []


def test_a_shared_ledger_names_what_others_published_and_verifies_its_own(
    server: Server, database: str, tmp_path: Path
) -> None:
    spec = f"{monthly.staged.SPEC}ledger: '{server.url(database)}'\n"
    one = monthly.fresh(tmp_path / "one", spec)
    two = monthly.fresh(tmp_path / "two", spec.replace("name: small", "name: other").replace("people", "staff"))
    with monthly.clock_at(datetime(2026, 1, 15, tzinfo=UTC)):
        monthly.staged.share(one, two, "release", "cap")
    monthly.release_months(one, ["2026-01"])
    monthly.release_months(two, ["2026-01"])
    assert written(one, tmp_path / "site").ok
    words = text_of(tmp_path / "site", "index.html")
    assert "Published from another workspace" in words
    assert "Populations people, staff" in words
    assert "The bundle is missing" not in text_of(tmp_path / "site", "releases/other-2026-01-1.html")
    assert run_printed_command(tmp_path / "site").returncode == 0
    told = b"".join(path.read_bytes() for path in (tmp_path / "site").rglob("*") if path.is_file())
    assert str(server.socket).encode() not in told, "an address stays in the specification"


# ---------------------------------------------------------------- broken things are said loudly


def test_a_broken_chain_is_shown_as_far_as_it_holds(months_of_two: Workspace, tmp_path: Path) -> None:
    on_the_ledger(months_of_two, "UPDATE events SET at = '2027-01-01T00:00:00.000000Z' WHERE seq = 6")
    survey = written(months_of_two, tmp_path / "site")
    assert not survey.ok
    assert survey.verified == 5
    for page, _ in pages(tmp_path / "site"):
        assert "The audit failed" in text_of(tmp_path / "site", page), page
    assert "chain broken at entry 6" in text_of(tmp_path / "site", "ledger.html")
    words = text_of(tmp_path / "site", "index.html")
    assert "Only the first 5 of 8 ledger entries are intact" in words
    assert "Forecast" not in words
    assert text_of(tmp_path / "site", "ledger.html").count("not verified") == 3
    assert dead_links(tmp_path / "site") == []


def test_a_ledger_that_cannot_be_read_at_all_is_shown_as_such(months_of_two: Workspace, tmp_path: Path) -> None:
    months_of_two.ledger_path.write_bytes(b"no database")
    assert not written(months_of_two, tmp_path / "site").ok
    assert "The audit failed" in text_of(tmp_path / "site", "index.html")


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"utility": {"columns": [1]}}'])
def test_a_changed_record_does_not_keep_the_site_from_being_written(
    months_of_two: Workspace, tmp_path: Path, content: bytes
) -> None:
    release = next(months_of_two.releases.glob("*/*"))
    rewritten(release / "record.json", content)
    assert not written(months_of_two, tmp_path / "site").ok
    words = text_of(tmp_path / "site", f"releases/{release.name}.html")
    assert "The record cannot be shown" in words
    assert "record.json was changed" in words


def test_a_missing_bundle_is_said_to_be_missing(months_of_two: Workspace, tmp_path: Path) -> None:
    shutil.rmtree(next(months_of_two.releases.glob("*/*")))
    written(months_of_two, tmp_path / "site")
    assert "The bundle is missing" in text_of(tmp_path / "site", "releases/small-2026-01-1.html")


def test_text_from_the_ledger_is_escaped(tmp_path: Path) -> None:
    workspace = monthly.fresh(tmp_path / "w")
    with closing(Ledger.open(workspace.ledger_path, signing_key(workspace.keys))) as ledger:
        ledger.raise_cap("people", cap(), BASIS, HOSTILE, who=HOSTILE)
        with pytest.raises(LedgerError, match="misspells the name"):
            ledger.reserve(request("2026-01", name=f"../{HOSTILE}"))
        ledger.reserve(request("2026-01", reason=HOSTILE))
        ledger.refuse_request(request("2026-02"), "visits-2026-02-1", rule=HOSTILE, reason=HOSTILE)
    written(workspace, tmp_path / "site")
    for name, html in pages(tmp_path / "site"):
        assert "<script" not in html, name
        Page(html)
    assert HOSTILE.split(" &")[0] in text_of(tmp_path / "site", "ledger.html")
    assert {path.parent.name for path in tmp_path.rglob("*.html")} == {"site", "releases"}


# ---------------------------------------------------------------- whole or not there


def test_a_site_of_ours_is_replaced_as_a_whole(put: Callable[..., None], tmp_path: Path) -> None:
    out = tmp_path / "site"
    put(out)
    (out / "releases" / "left-over.html").write_text("old")
    put(out)
    assert not (out / "releases" / "left-over.html").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


@pytest.mark.parametrize("way", ["files", "file", "link"])
def test_what_is_not_ours_is_never_replaced(put: Callable[..., None], tmp_path: Path, way: str) -> None:
    out = tmp_path / "site"
    if way == "files":
        out.mkdir()
        (out / "thesis.txt").write_text("mine")
    elif way == "file":
        out.write_text("mine")
    else:
        (tmp_path / "elsewhere").mkdir()
        out.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError) as refusal:
        put(out)
    assert refusal.value.rule == "site-foreign"
    assert way != "files" or (out / "thesis.txt").read_text() == "mine"


OWN = [".", "..", "landing/x", "releases", "releases/small", "keys", "vault", "prefect", "pub/../landing/x", "link/x"]


@pytest.mark.parametrize("place", OWN)
def test_the_workspaces_own_folders_are_no_place_for_a_site(months_of_two: Workspace, place: str) -> None:
    (months_of_two.root / "link").symlink_to(months_of_two.landing)
    with pytest.raises(WorkspaceError) as refusal:
        sites.require_place(months_of_two, months_of_two.root / place)
    assert refusal.value.rule == "site-in-workspace"


def test_a_landing_folder_that_lies_elsewhere_is_no_place_for_a_site(months_of_two: Workspace, tmp_path: Path) -> None:
    months_of_two.landing.rename(tmp_path / "elsewhere")
    months_of_two.landing.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError) as refusal:
        sites.require_place(months_of_two, tmp_path / "elsewhere" / "x")
    assert refusal.value.rule == "site-in-workspace"


@pytest.mark.parametrize("exchange", [True, False])
def test_a_failure_in_the_middle_leaves_the_old_site(
    put: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    out = tmp_path / "site"
    if not exchange:  # as on a system that cannot exchange two folders
        monkeypatch.setattr(sites, "_exchange", lambda *_: False)
    put(out)
    before = (out / "index.html").read_bytes()
    later = datetime(2027, 1, 1, tzinfo=UTC)
    with monkeypatch.context() as broken:
        broken.setattr(sites, "_write_evidence", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(WorkspaceError) as refusal:
            put(out, now=later)
    assert refusal.value.rule == "site-unwritable"
    assert (out / "index.html").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]
    put(out, now=later)
    assert (out / "index.html").read_bytes() != before


def test_two_writers_of_one_site_do_not_mix(put: Callable[..., None], tmp_path: Path) -> None:
    with sites._draft_folder(tmp_path / "site"), pytest.raises(WorkspaceError) as refusal:
        put(tmp_path / "site")
    assert refusal.value.rule == "site-busy"
    put(tmp_path / "site")


KILLED = """
import os, signal, sys
from contextlib import suppress
from pathlib import Path
from tasks.site import folder as sites

out, moment = Path(sys.argv[1]), sys.argv[2]
end = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with sites._draft_folder(out) as draft:
    (draft / "half.html").write_text("<html>")
    (draft / sites.MARK).write_text("{}")
    if moment == "writing":
        end()
    if moment == "between two renames":
        move, sites._exchange = Path.rename, lambda *_: False
        Path.rename = lambda self, other: move(self, other) and end()
    sites._put_in_place(draft, out)
    if moment == "removing":
        sites.shutil.rmtree = end
sys.exit("was not killed")
"""


SELDOM = [pytest.param(moment, marks=pytest.mark.slow) for moment in ("writing", "removing")]


@pytest.mark.parametrize("moment", ["between two renames", *SELDOM])
def test_what_a_killed_writer_left_is_cleared(put: Callable[..., None], tmp_path: Path, moment: str) -> None:
    out = tmp_path / "site"
    put(out)
    killed = subprocess.run([sys.executable, "-c", KILLED, out, moment], capture_output=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith(".site.")]
    assert len(left) == 2, "the lock and a draft"
    put(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]
    assert (out / "index.html").is_file()
    assert not (out / "half.html").exists()


def draft_mark(name: str) -> str:
    return sites._mark_of(Path(name))


FOREIGN = {
    "a folder": lambda p: (p / "a").mkdir(),
    "a folder with another mark": lambda p: ((p / "a").mkdir(), (p / "a" / sites.DRAFT_MARK).write_text("mine")),
    "a draft of another site": lambda p: (
        (p / "a").mkdir(),
        (p / "a" / sites.DRAFT_MARK).write_text(draft_mark("site.a")),
    ),
    "a link to a draft": lambda p: (
        (p / "victim" / sites.DRAFT_MARK).write_text(draft_mark("site")),
        (p / "a").symlink_to(p / "victim"),
    ),
    "a folder whose mark is a link": lambda p: (
        (p / "victim" / "mark").write_text(draft_mark("site")),
        (p / "a").mkdir(),
        (p / "a" / sites.DRAFT_MARK).symlink_to(p / "victim" / "mark"),
    ),
}


@pytest.mark.parametrize("name", [".site.draft", ".site.before", ".site.0abc12_z"])
@pytest.mark.parametrize("case", FOREIGN)
def test_folders_of_others_beside_the_site_are_left_alone(
    put: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, name: str
) -> None:
    monkeypatch.setattr(sites, "_exchange", lambda *_: False)  # the way that puts the old site aside
    out, victim = tmp_path / "site", tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.txt").write_text("mine")
    FOREIGN[case](tmp_path)
    (tmp_path / "a").rename(tmp_path / name)
    if not (tmp_path / name).is_symlink():
        (tmp_path / name / "thesis.txt").write_text("mine")
    for _ in range(2):
        put(out)
    assert (victim / "thesis.txt").read_text() == "mine"
    assert (tmp_path / name / "thesis.txt").read_text() == "mine"
    assert (out / "index.html").is_file()


@pytest.mark.parametrize(
    ("way", "rule"), [("link", "site-unwritable"), ("content", "site-foreign"), ("folder", "site-unwritable")]
)
def test_something_else_of_the_locks_name_is_not_taken(
    put: Callable[..., None], tmp_path: Path, way: str, rule: str
) -> None:
    lock, victim = tmp_path / ".site.lock", tmp_path / "victim"
    victim.touch()
    if way == "link":
        lock.symlink_to(victim)
    elif way == "content":
        lock.write_text("mine")
    else:
        lock.mkdir()
    with pytest.raises(WorkspaceError) as refusal:
        put(tmp_path / "site")
    assert refusal.value.rule == rule
    assert victim.exists()
    assert lock.exists()


def test_a_folder_that_somebody_made_while_the_site_was_written_is_not_replaced(
    put: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, write = tmp_path / "site", sites._write_evidence

    def meanwhile(*given: object) -> None:
        write(*given)  # type: ignore[arg-type]
        out.mkdir()
        (out / "thesis.txt").write_text("mine")

    monkeypatch.setattr(sites, "_write_evidence", meanwhile)
    with pytest.raises(WorkspaceError) as refusal:
        put(out)
    assert refusal.value.rule == "site-foreign"
    assert (out / "thesis.txt").read_text() == "mine"


def test_a_place_that_cannot_be_taken_keeps_the_old_site(
    put: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, move = tmp_path / "site", Path.rename
    put(out)

    def failing(self: Path, target: Path) -> Path:
        if self.name == "site" and target == out:  # not what puts the old one back
            raise OSError(28, "No space left")
        return move(self, target)

    monkeypatch.setattr(sites, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(WorkspaceError):
        put(out)
    assert (out / "index.html").is_file()


def test_the_site_may_be_read_by_whom_new_folders_may(put: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "any").mkdir()
    put(tmp_path / "site")
    assert (tmp_path / "site").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_who_edits_the_site_does_not_change_the_bundles(months_of_two: Workspace, tmp_path: Path) -> None:
    written(months_of_two, tmp_path / "site")
    copies = [path for path in (tmp_path / "site" / sites.EVIDENCE / sites.BUNDLES).rglob("*") if path.is_file()]
    assert copies
    for path in copies:
        path.chmod(0o600)
        with path.open("ab") as file:
            file.write(b"edited")
    assert [check for check in audit_workspace(months_of_two) if not check.ok] == []
