"""The release report is a pure, self-contained, escaped page of the record."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.tasks.report.pages import (
    HOSTILE,
    Page,
    checked_record,
    clinic_columns,
    clinic_record,
    correlation,
    days,
    hostile,
    interval,
    nominal,
    spectrum,
)

from tasks.report import plots, wording
from tasks.report.canvas import COLOURS, draw_or_reuse
from tasks.report.report import render_report, utility_plot


def wide_record() -> dict[str, Any]:
    """Sixty-four pixels and ten classes."""
    record = clinic_record()
    pixels = [interval(f"pixel_{i // 8}_{i % 8}", 0, 16, 2 + i % 11, 3.0, kind="integer") for i in range(64)]
    label = nominal("digit", [str(i) for i in range(10)], [0.1] * 10, role="label")
    record["utility"]["columns"] = [*pixels, label]
    record["utility"]["correlation"] = correlation([column["name"] for column in pixels])
    record["utility"]["spectrum"] = spectrum([str(i) for i in range(10)], 64)
    return record


def narrow_record() -> dict[str, Any]:
    """One column, no label, nothing spent before."""
    record = clinic_record()
    record["model"]["classes"] = None
    record["utility"]["columns"] = [interval("age", 0, 100, 45, 18)]
    record["utility"]["correlation"] = {"names": ["age"], "measured": [[1.0]], "synthetic": [[1.0]]}
    record["utility"]["spectrum"] = spectrum(["all rows"], 1)
    record["budget"]["before"] = {"epsilon": 0.0, "delta": 0.0, "delta_num": 0.0}
    return record


SECTIONS = [
    "The guarantee",
    "Budget",
    "Columns",
    "Correlation",
    "Spectrum",
    "Checks",
    "What not to trust",
    "Provenance",
]


@pytest.fixture(scope="module")
def clinic_html() -> str:
    return render_report(clinic_record())


@pytest.fixture(scope="module")
def clinic_page(clinic_html: str) -> Page:
    return Page(clinic_html)


@pytest.fixture(scope="module")
def hostile_page() -> Page:
    return Page(render_report(hostile(clinic_record())))


# -- the page ----------------------------------------------------------------------


def test_sections_stand_in_their_order(clinic_page: Page) -> None:
    assert clinic_page.headings("h2") == SECTIONS


def test_headings_never_skip_a_level(clinic_page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in clinic_page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_the_page_refers_to_nothing_outside_itself(clinic_html: str, clinic_page: Page) -> None:
    assert "http:" not in clinic_html
    assert "https:" not in clinic_html
    assert "@import" not in clinic_html
    assert set(re.findall(r"url\((.)", clinic_html)) == {"#"}
    links = [value for _, attributes in clinic_page.tags for name, value in attributes.items() if "href" in name]
    assert links
    assert all(link and link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert not clinic_page.named("script", "link", "img", "iframe", "object", "a")


def test_the_page_forbids_what_it_does_not_need(clinic_page: Page) -> None:
    policies = [m["content"] for m in clinic_page.named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_identifiers_are_unique_and_references_resolve(clinic_page: Page) -> None:
    ids = [attributes["id"] for _, attributes in clinic_page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = {value for _, a in clinic_page.tags for key, value in a.items() if key == "aria-labelledby"}
    used = {(a.get("xlink:href") or "#")[1:] for a in clinic_page.named("use")}
    clips = {clip[5:-1] for _, a in clinic_page.tags if (clip := a.get("clip-path"))}
    assert named | used | clips <= set(ids)


def test_each_plot_says_in_words_what_it_shows(clinic_page: Page) -> None:
    svgs = clinic_page.named("svg")
    assert len(svgs) == 12 + 2 + 2
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in svgs)
    titles = [text for tag, text in clinic_page.texts if tag == "title"][1:]
    assert titles == [svg["aria-label"] for svg in svgs]


def test_plots_take_the_colours_of_the_page(clinic_html: str) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", clinic_html, flags=re.DOTALL))
    assert "var(--synthetic)" in drawn
    assert "var(--measured)" in drawn
    assert not re.search(r"#[0-9a-f]{6}[;\"]", drawn)


@pytest.mark.parametrize(
    "told",
    [
        "clinic-visits-2026-11-1",
        "16 November 2026, 06:00 UTC",
        "all 3 checks passed",
        "neighbours replace-one",
        "rows 39,876",
        "a person with several rows is protected less",
        "wishart-difference-trace",
        "ε = 0.9",
        "10⁻¹²",
        "9 more releases of this cost fit the lifetime budget",
        "4.1 %",
        "2026-10-14",
        "53.0 ± 1.5 %",
        "may be nothing but noise",
        "8 of 12 directions are above the noise",
        "readmitted = yes",
        "Standard errors computed from the synthetic rows",
        "costs no budget",
        "5f0c9a0e-3f0f-4c6b-9d62-1f7bb3b1b9aa",
        "Sampling seed 7a7a7a7a7a7a…",
        "numpy 2.4.6",
    ],
)
def test_the_page_tells(clinic_page: Page, told: str) -> None:
    assert told in clinic_page.text("title", "text")


@pytest.mark.parametrize(
    ("sampling", "told", "apart"),
    [("rounded", "They are no random sample", True), ("independent", "Rows were drawn independently", False)],
)
def test_the_page_says_how_rows_were_drawn(sampling: str, told: str, apart: bool) -> None:
    record = checked_record()
    record["model"]["sampling"] = sampling
    text = Page(render_report(record)).text()
    assert told in text
    assert ("these rows were drawn together, and their means and shares vary less" in text) == apart


def test_coordinates_of_groups_are_not_counted_among_those_of_the_columns() -> None:
    """A copula's groups have more coordinates than the encoded columns."""
    record = checked_record()
    record["model"]["projection"] |= {"kind": "none", "dimension": 100, "encoded_width": 19}
    record["model"]["generator"] = "copula"
    text = Page(render_report(record)).text()
    assert "none, 100 coordinates of the columns' groups" in text
    assert "100 of 19" not in text


def test_rows_of_a_record_that_does_not_say_are_independent(clinic_page: Page) -> None:
    assert "Rows were drawn independently of each other" in clinic_page.text()


def test_hashes_are_short_to_see_and_whole_to_copy(clinic_page: Page) -> None:
    titles = [attributes.get("title") for attributes in clinic_page.named("code")]
    assert {"9f" * 32, "3b" * 32, "5e" * 32, "7a" * 32} <= set(titles)
    assert "9f" * 32 not in clinic_page.text()


def test_a_superseding_release_says_what_and_why() -> None:
    record = narrow_record() | {"supersedes": "clinic-visits-2026-10-1", "reason": "a column was mislabelled"}
    assert "supersedes clinic-visits-2026-10-1 : a column was mislabelled" in Page(render_report(record)).text()


def test_a_failed_check_shows_at_the_head_and_in_the_table() -> None:
    record = narrow_record()
    record["checks"][0] |= {"value": 0.07, "ok": False}
    text = Page(render_report(record)).text()
    assert "1 of 3 checks failed" in text
    assert "mean gap 0.07 ≤ 0.05 ✕ failed" in text


@pytest.mark.parametrize(
    ("value", "threshold", "ok", "sign"),
    [
        (1, 2, True, "≤"),
        (3, 2, False, "≤"),
        (3, 2, True, "≥"),
        (1, 2, False, "≥"),
        (2, 2, True, ""),
        (1, None, True, ""),
    ],
)
def test_a_threshold_reads_as_ceiling_or_floor(value: float, threshold: float | None, ok: bool, sign: str) -> None:
    record = narrow_record()
    record["checks"] = [{"name": "gap", "value": value, "threshold": threshold, "ok": ok}]
    shown = f"{sign} {wording.number(threshold)}".strip()
    assert f"gap {value} {shown}" in Page(render_report(record)).text()


@pytest.mark.parametrize(("before", "after", "widths"), [(2.0, 3.0, [2, 1, 9]), (0.0, 1.0, [1, 11]), (0.0, 12.0, [12])])
def test_the_budget_bar_is_to_scale(before: float, after: float, widths: list[float]) -> None:
    record = narrow_record()
    record["budget"]["before"]["epsilon"], record["budget"]["after"]["epsilon"] = before, after
    parts = [a for a in Page(render_report(record)).named("span") if (a.get("class") or "").startswith("part ")]
    shown = [float((part["style"] or "").removeprefix("flex-grow: ")) for part in parts]
    assert shown == pytest.approx([100 * width / 12 for width in widths], abs=1e-3)


def test_an_empty_lifetime_budget_still_renders() -> None:
    record = narrow_record()
    record["budget"] = {"lifetime": {"epsilon": 0.0}, "before": {}, "after": {}, "releases_left": 0}
    assert "No further release of this cost fits" in Page(render_report(record)).text()


# -- untrusted text ----------------------------------------------------------------


def test_markup_in_the_record_stays_text(hostile_page: Page) -> None:
    assert not hostile_page.named("script")
    assert all(not name.startswith("on") for _, attributes in hostile_page.tags for name in attributes)


def test_text_arrives_unchanged(hostile_page: Page) -> None:
    assert HOSTILE + "Rare levels" in hostile_page.text()
    assert HOSTILE + "weight_kg" in hostile_page.text("svg", "text", "title")


def test_plots_show_dollars_and_brackets_as_they_are() -> None:
    column = nominal("price", ["$1 & <b>", "$\\frac{1}{$"], [0.5, 0.5])
    page = Page(plots.column_svg(column, key="k", alt='"><script>'))
    labels = [text for tag, text in page.texts if tag == "text"]
    assert {"$1 & <b>", "$\\frac{1}{$"} <= set(labels)
    assert page.named("svg")[0]["aria-label"] == '"><script>'


@pytest.mark.parametrize("name", ["年齢", "😀", "a\nb\x00\x1b[31m", "", " ", "x" * 500, "fill: #2f68c5;", '" style="'])
def test_any_name_can_be_drawn(name: str) -> None:
    record = narrow_record()
    levels = [name, "other"]
    record["utility"]["columns"] = [nominal(name, levels, [0.5, 0.5]), interval(name, 0, 1, 0.5, 0.2)]
    record["utility"]["correlation"] = correlation([name, "other"])
    shown = wording.plain_label(name, 18)
    page = Page(render_report(record))
    assert not shown or shown in [text for tag, text in page.texts if tag == "text"]
    assert utility_plot(record).startswith(PNG)


# -- shapes of records -------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n"


def test_one_column_without_a_label_is_a_whole_report() -> None:
    page = Page(render_report(narrow_record()))
    assert page.headings("h2") == SECTIONS
    assert "fewer than two coordinates" in page.text()
    assert "of each class" not in page.text()
    assert "all rows" in page.headings("h3")


def test_many_columns_are_counted_rather_than_drawn() -> None:
    html = render_report(wide_record())
    page = Page(html)
    plotted = [svg["aria-label"] or "" for svg in page.named("svg")]
    assert sum(alt.startswith(("pixel_", "digit: ")) for alt in plotted) == 24
    assert sum(alt.startswith("digit: ") for alt in plotted) == 1  # the label is always drawn
    assert "41 more columns not shown" in page.text()
    assert "64 coordinates in the order of the columns; too many to name" in page.text()
    assert "pixel_0_0" not in [text for tag, text in page.texts if tag == "text"]
    assert len(html) < 1_000_000


def test_many_levels_are_cut_in_the_plot_and_whole_in_the_table() -> None:
    record = narrow_record()
    shares = [(i + 1) / 820 for i in range(40)]
    record["utility"]["columns"] = [nominal("code", [f"L{i}" for i in range(40)], shares)]
    page = Page(render_report(record))
    drawn = [text for tag, text in page.texts if tag == "text" and text.startswith("L")]
    assert drawn == [f"L{i}" for i in range(28, 40)]
    assert "12 largest of 40 levels" in page.text()
    assert "L0" in page.headings("th")


@pytest.mark.parametrize(
    ("eigenvalues", "noise"),
    [
        ([0.5, 0.1, -0.02, -0.4], 0.05),
        ([-0.1, -0.2], 0.05),
        ([0.01, 0.001], 5.0),
        ([0.0], 0.01),
        ([0.2, 0.1], 0.0),
        ([0.2, None], None),
        ([], 0.1),
        ([1e9, 1.0], 1e-9),
    ],
)
def test_any_spectrum_can_be_drawn(eigenvalues: list[float | None], noise: float | None) -> None:
    record = narrow_record()
    record["utility"]["spectrum"] = {"blocks": [{"label": "all", "eigenvalues": eigenvalues}], "noise_level": noise}
    page = Page(render_report(record))
    above = sum(value is not None and value > (noise or 0) for value in eigenvalues)
    assert f"{above} of {len(eigenvalues)} directions are above the noise" in page.text()


def lost_figures(html: str) -> list[str]:
    """Words that a missing number leaves where it is printed unguarded, in the page and in its plots."""
    without_pictures = re.sub(r"base64,\s*[A-Za-z0-9+/=\s]+", "", html)
    return re.findall(r"\b(?:nan|NaN|inf|None|Undefined)\b", without_pictures)


def without(value: Any, absent: float | None) -> Any:
    """The measured part with every number absent."""
    if isinstance(value, dict):
        return {key: without(item, absent) for key, item in value.items()}
    if isinstance(value, list):
        return [without(item, absent) for item in value]
    return absent


def test_the_page_says_what_the_audit_of_the_build_measured(clinic_html: str) -> None:
    words = " ".join(re.sub("<[^>]+>", "", clinic_html).split())
    assert "set to ε = 2. The attack measured an ε of at least 0.71 with 2,000 draws" in words
    assert "101 % of the planned mean square" in words
    record = clinic_record()
    record["privacy"]["measurements"][0]["build"]["attack"]["delta"] = 0.01
    words = " ".join(re.sub("<[^>]+>", "", render_report(record)).split())
    assert "set to ε = 2 at δ = 0.01. The attack measured an ε of at least 0.71 at that δ" in words, (
        "what it shows is an epsilon at that delta"
    )
    assert "up to 99.5 % of the sensitivity" in words


def test_the_page_says_where_an_attack_takes_the_shape_of_the_noise_as_known() -> None:
    record = clinic_record()
    record["privacy"]["measurements"][0]["build"]["attack"]["how"] = "real, two classes, known shape"
    words = " ".join(re.sub("<[^>]+>", "", render_report(record)).split())
    assert "with 2,000 draws on each of two tables, taking the shape of the noise as known; its" in words


@pytest.mark.parametrize("absent", [None, float("nan"), float("inf")])
def test_absent_measurements_leave_a_dash_and_no_nan(absent: float | None) -> None:
    record = clinic_record()
    record["utility"]["columns"] = [clinic_columns()[place] for place in (0, 1, 8)]  # a number, a level, a date
    for column in record["utility"]["columns"]:
        column["measured"] = without(column["measured"], absent)
    record["utility"]["correlation"]["measured"] = without(record["utility"]["correlation"]["measured"], absent)
    record["checks"][0]["value"] = absent
    html = render_report(record)
    assert not lost_figures(html)
    assert "Mean — 45" in Page(html).text()
    assert utility_plot(record).startswith(PNG)


def test_no_figure_of_a_whole_record_is_lost_to_nan(clinic_html: str) -> None:
    assert not lost_figures(clinic_html)


def test_a_mean_far_outside_its_bounds_leaves_the_histogram_readable() -> None:
    column = interval("age", 0, 100, 50, 10)
    column["measured"]["mean"] = 1e6
    low, high = plots._horizontal_limits([0, 100], column, 1.0)
    assert (low, high) == (0, 150)


@pytest.mark.parametrize(
    ("first", "last", "label"),
    [
        ((1, 1, 1), (9999, 12, 31), "4001"),
        ((2016, 1, 1), (2026, 1, 1), "2020"),
        ((2026, 1, 1), (2027, 1, 1), "Jan"),
        ((2026, 10, 1), (2026, 11, 1), "15 Oct"),
        ((2026, 10, 1), (2026, 10, 2), "12:00"),
    ],
)
@pytest.mark.parametrize(("kind", "unit"), [("date", 1.0), ("timestamp", 86_400e6)])
def test_calendar_axes_read_as_dates(
    first: tuple[int, int, int], last: tuple[int, int, int], label: str, kind: str, unit: float
) -> None:
    low, high = days(*first) * unit, days(*last) * unit
    column = interval("when", low, high, (low + high) / 2, (high - low) / 6, kind=kind)
    page = Page(plots.column_svg(column, key="k", alt="when"))
    assert label in [text for tag, text in page.texts if tag == "text"]


# -- the same every time, and soon -------------------------------------------------


def test_the_page_is_a_function_of_the_record(clinic_html: str) -> None:
    record = clinic_record()
    untouched = copy.deepcopy(record)
    draw_or_reuse.cache_clear()
    assert render_report(record) == clinic_html
    assert record == untouched


def test_the_record_may_come_from_json(clinic_html: str) -> None:
    draw_or_reuse.cache_clear()
    assert render_report(json.loads(json.dumps(clinic_record()))) == clinic_html


@pytest.mark.slow
def test_threads_draw_the_same_page(clinic_html: str) -> None:
    draw_or_reuse.cache_clear()
    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(render_report, [clinic_record()] * 2)) == {clinic_html}


def test_the_page_is_small_and_soon(clinic_html: str) -> None:
    draw_or_reuse.cache_clear()
    start = time.process_time()
    render_report(clinic_record())
    assert time.process_time() - start < 5
    assert len(clinic_html.encode()) < 300_000


@pytest.mark.parametrize("build", [clinic_record, wide_record, narrow_record])
def test_the_overview_is_one_png(build: Callable[[], dict[str, Any]]) -> None:
    assert utility_plot(build()).startswith(PNG)


@pytest.mark.slow
def test_the_overview_is_always_the_same() -> None:
    assert utility_plot(clinic_record()) == utility_plot(clinic_record())


# -- colours -----------------------------------------------------------------------


def palettes() -> dict[str, dict[str, str]]:
    css = (Path(plots.__file__).parent / "report.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)[:2]
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", body))
        for name, body in [("light", light), ("dark", dark)]
    }


def contrast(first: str, second: str) -> float:
    """The contrast ratio of WCAG 2.2."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_contrast_of_black_on_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("front", "back", "least"),
    [
        *[(ink, back, 4.5) for ink in ("ink", "muted", "accent") for back in ("page", "surface", "plain-back")],
        *[(tone, f"{tone}-back", 4.5) for tone in ("good", "bad", "accent")],
        *[(mark, "surface", 3.0) for mark in ("synthetic", "measured", "faint", "past")],
    ],
)
def test_contrast_meets_wcag_aa(scheme: str, front: str, back: str, least: float) -> None:
    palette = palettes()[scheme]
    assert contrast(palette[front], palette[back]) >= least


def test_plots_and_page_share_one_palette() -> None:
    light, dark = palettes()["light"], palettes()["dark"]
    assert {name: light[name] for name in COLOURS} == COLOURS
    assert set(COLOURS) <= set(dark)


# -- wording -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0 %"),
        (1 / 16_384, "less than 0.1 %"),
        (0.0007, "0.1 %"),
        (0.5, "50.0 %"),
        (0.9993, "99.9 %"),
        (1 - 1 / 16_384, "more than 99.9 %"),
        (1.0, "100.0 %"),
    ],
)
def test_a_share_of_rows_is_none_or_all_only_if_it_is(value: float, text: str) -> None:
    assert wording.share_of_rows(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (1.0, "1"),
        (39876, "39,876"),
        (39876.4, "39,876"),
        (-0.123456, "−0.1235"),
        (1e-9, "10⁻⁹"),
        (-2.5e-12, "−2.5 × 10⁻¹²"),
        (1e20, "10²⁰"),
        (None, "—"),
        (float("nan"), "—"),
        ("2^-20", "2^-20"),
    ],
)
def test_numbers_read(value: Any, text: str) -> None:
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [
        (0.87251, "0.8725", "0.8726"),
        (0.87259, "0.8725", "0.8726"),
        (0.3, "0.3", "0.3"),
        (0, "0", "0"),
        (12345.6, "12,340", "12,350"),
        (1.23456e-9, "1.23 × 10⁻⁹", "1.24 × 10⁻⁹"),
        (9.999e-4, "9.99 × 10⁻⁴", "0.001"),
        (None, "—", "—"),
    ],
)
def test_costs_are_rounded_up_and_findings_down(value: Any, down: str, up: str) -> None:
    assert (wording.rounded_down(value), wording.rounded_up(value)) == (down, up)


@pytest.mark.parametrize(
    ("value", "margin", "kind", "text"),
    [
        (45.123, 0.3, "numeric", "45.12 ± 0.30"),
        (49240.4, 2066.7, "numeric", "49,240 ± 2,067"),
        (45.0, None, "numeric", "45"),
        (None, 0.3, "numeric", "—"),
        (20740.0, 0.5, "date", "2026-10-14\n± 12 hours"),
        (20740 * 86_400e6, 90e6, "timestamp", "2026-10-14\n00:00 UTC\n± 1.5 minutes"),
        (1e18, 1.0, "date", "10¹⁸\n± 1 days"),
    ],
)
def test_measured_values_read_with_their_margin(value: Any, margin: Any, kind: str, text: str) -> None:
    assert wording.with_margin(value, margin, kind) == text
