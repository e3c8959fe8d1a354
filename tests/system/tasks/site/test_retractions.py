"""The site of a workspace with a retracted release: it says so, and none of the release's data are on it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support.tasks import monthly
from support.tasks.audit.tampering import on_the_ledger
from support.tasks.report.pages import Page
from support.tasks.site.sited import dead_links, pages, text_of, written
from support.tasks.staged import land_rows, release

from tasks.audit import audit_export, broken, read_public_key
from tasks.ledger.opening import ledger_state
from tasks.release.retraction import retract
from tasks.site.evidence import has_all_bundles
from tasks.site.frame import Site
from tasks.site.survey import survey_workspace
from tasks.workspace.folders import Workspace, mark_beside

FIRST, SECOND, THIRD = (f"small-2026-0{month}-1" for month in (1, 2, 3))
HOSTILE = "<script>alert(1)</script> & co"
DATA_OF_A_BUNDLE = ("data.parquet", "model.json", "record.json", "report.html", "codebook.json")


@pytest.fixture(scope="module")
def three_months(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three published months; not to be changed."""
    root = Path(shutil.copytree(published, tmp_path_factory.mktemp("three") / "workspace"))
    land_rows(root, "2026-03")
    release(Workspace(root), "2026-03")
    return root


@pytest.fixture(scope="module")
def retracted_once(three_months: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The month in the middle was retracted; not to be changed."""
    root = Path(shutil.copytree(three_months, tmp_path_factory.mktemp("retracted") / "workspace"))
    retract(Workspace(root), SECOND, who="the data board", reason=f"a person asked for erasure {HOSTILE}")
    return root


@pytest.fixture(scope="module")
def site(retracted_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    assert written(Workspace(retracted_once), out).ok
    return out


@pytest.fixture
def workspace(retracted_once: Path, tmp_path: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(retracted_once, tmp_path / "workspace")))


def bundles_on(site: Path) -> set[str]:
    return {path.name for path in (site / "evidence" / "bundles" / "small").iterdir()}


def links_of(site: Path, page: str) -> list[str]:
    return [str(a["href"]) for tag, a in Page((site / page).read_text()).tags if tag == "a"]


# ---------------------------------------------------------------- what is said


def test_the_release_page_says_who_retracted_it_when_and_why(site: Path, retracted_once: Path) -> None:
    entry = ledger_state(Workspace(retracted_once)).releases[SECOND].retraction
    assert entry is not None
    words = " ".join(text_of(site, f"releases/{SECOND}.html").split())
    assert "✕ retracted" in words
    when = f"{entry.at[:10]} {entry.at[11:16]}"
    assert f"Retracted by the data board on {when} UTC (entry #{entry.seq} ): a person asked for erasure" in words
    assert "Do not use this release" in words
    assert "The bundle is missing" not in words
    assert "ε 0.1" in words, "what it cost is still said"


def test_lists_ledger_and_evidence_say_it_too(site: Path) -> None:
    start = text_of(site, "index.html")
    assert "retracted 1" in start
    assert "published 2" in start
    assert "Retracted by the data board: a person asked for erasure" in start
    ledger = " ".join(text_of(site, "ledger.html").split())
    assert "Approvals, refusals and retractions" in ledger
    assert re.search(rf"{SECOND} retracted \S+ \S+ the data board, key \S+ a person asked for erasure", ledger)
    assert f"Not offered, because somebody retracted the release: {SECOND}" in text_of(site, "evidence.html")


def test_what_a_person_wrote_is_escaped_and_all_links_lead_somewhere(site: Path) -> None:
    for name, html in pages(site):
        assert "<script" not in html, name
        Page(html)
    assert HOSTILE.split(" &")[0] in text_of(site, f"releases/{SECOND}.html")
    assert dead_links(site) == []


# ---------------------------------------------------------------- what is kept out


def test_no_data_of_a_retracted_release_are_on_the_site_nor_linked(site: Path, retracted_once: Path) -> None:
    assert bundles_on(site) == {FIRST, THIRD}
    workspace = Workspace(retracted_once)
    record = json.loads((workspace.bundle("small", SECOND) / "record.json").read_text())
    kept = json.loads((workspace.bundle("small", FIRST) / "record.json").read_text())
    contents = {name: (workspace.bundle("small", SECOND) / name).read_bytes() for name in DATA_OF_A_BUNDLE}
    for path in (path for path in site.rglob("*") if path.is_file()):
        found = path.read_bytes()
        assert found not in contents.values(), path.name
        if "evidence" not in path.relative_to(site).parts:
            assert f"bundles/small/{SECOND}".encode() not in found, path.name
    page = text_of(site, f"releases/{SECOND}.html")
    other = text_of(site, f"releases/{FIRST}.html")
    for figure in (kept["rows"], "The guarantee", "Open the report", "data.parquet"):
        assert str(figure) in other
    for said in ("Open the report", "data.parquet", "measured mean", record["privacy"]["guarantee"][0]):
        assert said not in page
    assert [link for link in links_of(site, f"releases/{SECOND}.html") if "evidence/bundles" in link] == []
    retraction = ledger_state(workspace).releases[SECOND].retraction
    assert retraction is not None
    tags = Page((site / f"releases/{SECOND}.html").read_text()).tags
    links = {a.get("aria-label"): a["href"] for tag, a in tags if tag == "a"}
    assert links["stage retract, done"] == f"../ledger.html#entry-{retraction.seq}"


def test_drift_compares_the_months_around_it(site: Path, three_months: Path, tmp_path: Path) -> None:
    written(Workspace(three_months), tmp_path / "site")
    assert "in 2 comparisons of months" in text_of(tmp_path / "site", "drift.html")
    words = text_of(site, "drift.html")
    assert "in 1 comparison of months" in words
    assert "2026-02" not in words
    assert {"2026-01", "2026-03"} <= set(re.findall(r"2026-\d\d", words))
    assert not [link for link in links_of(site, "drift.html") if SECOND in link]


def test_a_superseding_release_takes_its_place(workspace: Workspace, tmp_path: Path) -> None:
    successor = release(workspace, "2026-02", supersedes=SECOND, reason="without that person").name
    assert written(workspace, tmp_path / "site").ok
    assert bundles_on(tmp_path / "site") == {FIRST, successor, THIRD}
    assert f"Superseded by {successor}" in text_of(tmp_path / "site", f"releases/{SECOND}.html")
    words = text_of(tmp_path / "site", "drift.html")
    assert "in 2 comparisons of months" in words
    assert not [link for link in links_of(tmp_path / "site", "drift.html") if link.endswith(f"{SECOND}.html")]
    assert dead_links(tmp_path / "site") == []


def test_the_evidence_is_whole_without_it(site: Path, retracted_once: Path) -> None:
    evidence = site / "evidence"
    (key,) = (evidence / "keys").iterdir()
    assert broken(audit_export(evidence / "ledger.ndjson", evidence / "bundles", [read_public_key(key)])) == []
    assert has_all_bundles(Site(survey_workspace(Workspace(retracted_once), now=monthly.AFTERWARDS)))


def test_a_bundle_that_was_deleted_changes_no_page_but_its_own_checks(
    workspace: Workspace, site: Path, tmp_path: Path
) -> None:
    shutil.rmtree(workspace.bundle("small", SECOND))
    out = tmp_path / "site"
    assert written(workspace, out).ok
    assert bundles_on(out) == {FIRST, THIRD}
    assert "The bundle is missing" not in text_of(out, f"releases/{SECOND}.html")
    assert "may be deleted" in text_of(out, f"releases/{SECOND}.html")
    assert dead_links(out) == []


# ---------------------------------------------------------------- in doubt


def test_a_bundle_whose_mark_the_ledger_does_not_know_is_withheld_and_the_audit_fails(
    workspace: Workspace, tmp_path: Path
) -> None:
    mark_beside(workspace.bundle("small", FIRST)).write_text("{}")
    out = tmp_path / "site"
    assert not written(workspace, out).ok
    assert bundles_on(out) == {THIRD}
    words = text_of(out, f"releases/{FIRST}.html")
    assert "The bundle is withheld" in words
    assert "The bundle is missing" not in words
    assert dead_links(out) == []


def test_a_retraction_in_a_part_of_the_ledger_that_is_not_intact_withholds_the_data(
    workspace: Workspace, tmp_path: Path
) -> None:
    mark_beside(workspace.bundle("small", SECOND)).unlink()
    on_the_ledger(workspace, "UPDATE events SET at = '2027-01-01T00:00:00.000000Z' WHERE seq = 9")
    survey = written(workspace, tmp_path / "site")
    assert (survey.ok, survey.verified) == (False, 8)
    assert bundles_on(tmp_path / "site") == {FIRST, THIRD}


def test_a_month_that_was_retracted_stays_so_on_the_strip_until_it_is_measured_anew(
    workspace: Workspace, tmp_path: Path
) -> None:
    def strip(out: Path) -> dict[str, str]:
        written(workspace, out)
        found = re.findall(
            r'class="month \w+" href="[^"]*" title="([\w-]+)">(.*?)</a>', (out / "index.html").read_text()
        )
        return {re.search(r"2026-\d\d", inner)[0]: title for title, inner in found}  # type: ignore[index]

    assert strip(tmp_path / "one") == {"2026-01": "published", "2026-02": "retracted", "2026-03": "published"}
    release(workspace, "2026-02", supersedes=SECOND, reason="without that person")
    assert set(strip(tmp_path / "two").values()) == {"published"}
