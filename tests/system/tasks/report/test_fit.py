"""The report's pages on fit, coverage and bought scores: figures arrive, old records do without, text stays text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from matplotlib import rc_context, rcParams
from support.tasks.report.pages import HOSTILE, Page, checked_record, clinic_record, gaps, hostile

from dpcore.evaluation.goodness_of_fit import EDGES, Gaps
from tasks.report.canvas import figure_of
from tasks.report.report import render_report

if TYPE_CHECKING:
    from support.browser import Browser

pytest_plugins = ["support.browser"]


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(checked_record())


@pytest.mark.parametrize(
    "told",
    [
        "3 of 3 inside",
        "3 of 4 inside",
        "age × 7.5",
        "Of 12 levels whose measured share is clearly above 0, 11 appear in the synthetic table",
        "missing: ward = dermatology",
        "0.821 (0.811 to 0.832)",
        "0.838",
        "a classifier of readmitted",
        "a prediction of cost",
        "ledger entry #77",
        "412 (401 to 423)",
    ],
)
def test_the_page_tells(html: str, told: str) -> None:
    assert told in Page(html).text()


def test_each_plot_says_in_words_what_it_shows(html: str) -> None:
    labels = [str(svg["aria-label"]) for svg in Page(html).named("svg")]
    assert "Pairs of columns, differences in standard deviations: 3 of 4 inside the band" in labels
    assert any("accuracy on the real rows: 0.821" in label and "threshold 0.75" in label for label in labels)
    assert any("rmse on the real rows: 412" in label and "threshold" not in label for label in labels)


def test_a_record_that_knows_neither_shows_neither() -> None:
    headings = Page(render_report(clinic_record())).headings("h2")
    assert "Fit" not in headings
    assert "Tested on the real rows" not in headings
    assert {"Fit", "Tested on the real rows"} < set(Page(render_report(checked_record())).headings("h2"))


def test_whatever_was_covered_reads_as_a_sentence() -> None:
    record = checked_record()
    record["utility"]["coverage"] = {"found": 12, "of": 12, "share": 1.0, "missing": []}
    assert "All 12 levels whose measured share is clearly above 0 appear" in Page(render_report(record)).text()
    record["utility"]["coverage"] = {"found": 0, "of": 0, "share": 1.0, "missing": []}
    assert "clearly above 0" not in Page(render_report(record)).text()


def test_nothing_to_compare_is_said() -> None:
    record = checked_record()
    record["utility"]["fit"]["pairs"] = Gaps.of([]).as_json()
    assert "none were measured" in Page(render_report(record)).text()


def test_markup_in_the_record_stays_text() -> None:
    page = Page(render_report(hostile(checked_record())))
    assert HOSTILE in page.text()
    assert not page.named("script", "img")


def test_the_histogram_has_a_bar_for_every_bin() -> None:
    content = gaps([-9.0, -0.1, 0.0, 2.2, 9.0])
    assert len(content["counts"]) == len(EDGES) - 1
    assert (content["counts"][0], content["counts"][-1]) == (1, 1)


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_shuts_nobody_out_and_fits_a_telephone(
    browser: Browser, tmp_path: Path, html: str, dark: bool
) -> None:
    path = tmp_path / "report.html"
    path.write_text(html)
    with browser.visit(path.as_uri(), width=380, dark=dark, bypass_csp=True) as visit:
        assert visit.overflow() == 0
        assert visit.axe() == []
        assert visit.outside == []


def test_a_page_does_not_depend_on_the_settings_of_the_current_folder():
    with figure_of(300, 200, key="k") as figure:
        expected = figure.get_dpi(), rcParams["text.usetex"]
    with rc_context({"text.usetex": True, "figure.dpi": 10}), figure_of(300, 200, key="k") as figure:
        assert (figure.get_dpi(), rcParams["text.usetex"]) == expected
