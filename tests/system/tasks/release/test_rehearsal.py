"""Whatever keeps a bundle from being written is refused before anything is reserved; the rest is published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import IMPORTS
from support.tasks.bundle.documents import assert_valid_documents
from support.tasks.release.rehearsals import categories, passed, text_of, workspace_of
from support.tasks.staged import release, run_of

import tasks
from dpcore.errors import RefusedError, SpecError
from tasks.audit import audit_workspace
from tasks.release.rehearsal import rehearse
from tasks.spec import ReleaseSpec, parse_spec
from tasks.spec.plan import plan_release

# ---------------------------------------------------------------- refused, with key, rule and hint

SECOND, FIRST_CATEGORY = "columns[1]", "columns[1].categories[0]"
NUMERIC = "name: v, kind: numeric, bounds: "
LABEL = "name: l, kind: boolean, role: label"
REFUSED: dict[str, tuple[str, str, str]] = {
    "half-a-character": (text_of(categories(r"\ud800", "b")), "text-unwritable", FIRST_CATEGORY),
    "two-halves": (text_of(categories(r"\ud83d\ude00", "b")), "text-unwritable", FIRST_CATEGORY),
    "half-a-name": (text_of(r'name: "\udfff", kind: boolean'), "text-unwritable", f"{SECOND}.name"),
    "half-a-key": (text_of(more=r'"\ud800": 1'), "text-unwritable", "release.yaml"),
    "half-a-curator": (text_of(more=r'about: {curator: "\ud800"}'), "text-unwritable", "about.curator"),
    "half-a-check": (text_of(more=r'checks: {"\ud800": 1}'), "text-unwritable", "checks"),
    "nul": (text_of(categories(r"\0", "b")), "text-unprintable", FIRST_CATEGORY),
    "bell": (text_of(categories(r"\a", "b")), "text-unprintable", FIRST_CATEGORY),
    "line-break": (text_of(categories(r"a\nb", "b")), "text-unprintable", FIRST_CATEGORY),
    "next-line": (text_of(categories(r"a\Nb", "b")), "text-unprintable", FIRST_CATEGORY),
    "line-separator": (text_of(categories(r"a\Lb", "b")), "text-unprintable", FIRST_CATEGORY),
    "nul-in-a-name": (text_of(r'name: "a\0", kind: boolean'), "text-unprintable", f"{SECOND}.name"),
    "long-category": (text_of(categories("a" * 1001, "b")), "text-too-long", FIRST_CATEGORY),
    "long-name": (text_of(f"name: {'a' * 1001}, kind: boolean"), "text-too-long", f"{SECOND}.name"),
    "padded": (text_of(categories(" a", "b")), "category-padded", FIRST_CATEGORY),
    "blank": (text_of(categories(" ", "b")), "category-padded", FIRST_CATEGORY),
    "one-text-in-two-spellings": (
        text_of(categories(r"\u00e9", r"e\u0301")),
        "category-duplicate",
        "columns[1].categories[1]",
    ),
    "called-as-the-missing-level": (
        text_of(f"{categories('(missing)', 'b')}, missing: category"),
        "category-missing",
        "columns[1].categories",
    ),
    "bounds-beyond-squares": (text_of(f"{NUMERIC}[0, 1.0e+155]"), "bounds-range", f"{SECOND}.bounds"),
    "bounds-near-the-largest": (text_of(f"{NUMERIC}[-8.0e+307, 8.0e+307]"), "bounds-range", f"{SECOND}.bounds"),
    "bounds-that-vanish": (text_of(f"{NUMERIC}[0, 5.0e-308]"), "bounds-range", f"{SECOND}.bounds"),
    "integers-beyond-floats": (
        text_of("name: v, kind: integer, bounds: [0, 9223372036854775808]"),
        "bounds-range",
        f"{SECOND}.bounds",
    ),
    "categories-beyond-64-bits": (
        text_of("name: c, kind: categorical, categories: [1, 9223372036854775808]"),
        "category-kind",
        "columns[1].categories[1]",
    ),
    "a-zone-of-this-machine": (
        text_of("name: t, kind: timestamp, bounds: [2020-01-01, 2030-01-01], timezone: localtime"),
        "timezone",
        f"{SECOND}.timezone",
    ),
    "too-many-rows": (text_of(rows="1000000001"), "rows-too-many", "rows"),
    "lifetime-beyond-floats": (text_of(lifetime="epsilon: 1e399"), "not-finite", "privacy.lifetime.epsilon"),
    "lifetime-beyond-sense": (
        text_of(lifetime="epsilon: 1000000000001"),
        "epsilon-too-large",
        "privacy.lifetime.epsilon",
    ),
    "epsilon-of-nothing": (text_of(epsilon="1.0e-300"), "epsilon-too-small", "privacy.epsilon"),
    "delta-of-nothing": (
        text_of(lifetime="epsilon: 100, delta: 1.0e-300"),
        "delta-range",
        "privacy.lifetime.delta",
    ),
    "check-of-nothing": (
        text_of(LABEL, more="checks: {accuracy: {budget: 1.0e-300}}"),
        "plan-impossible",
        "privacy.epsilon",
    ),
    "checks-that-leave-nothing": (
        text_of(LABEL, more=f"checks: {{accuracy: {{budget: 0.{'9' * 200}}}}}"),
        "plan-impossible",
        "privacy.epsilon",
    ),
    "too-many-clusters": (
        text_of(more="checks: {silhouette: {budget: 0.1, clusters: 1001}}"),
        "too-many-clusters",
        "checks.silhouette.clusters",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_bundle_cannot_hold_is_refused_by_the_specification(case: str):
    text, rule, where = REFUSED[case]
    with pytest.raises(SpecError) as caught:
        plan_release(parse_spec(text))
    assert (caught.value.rule, caught.value.where) == (rule, where)
    assert caught.value.hint
    json.dumps(caught.value.as_json(), ensure_ascii=False).encode()


# ---------------------------------------------------------------- what the specification lets pass is published

ODD_TEXTS = [r"\uFEFFbom", r"\uFFFF", "<script>alert(1)</script>", "a&amp;b", r"$\\frac{$", "$x^$", "{{ 7 * 7 }}", "%s"]
ODD_TEXTS += ["=", "null", "~", "- a", "a: b", "#", "'", r"\"", "no", "1.0", "1", r"\u202ertl", "x" * 1000, "", r"\\"]
ODD_TEXTS += [r"\U0001F600", r"\u200d", "../../x", "A", "a", "(missing)", "missing", "NaN", "inf", "2026-01-01", ","]
ODD_NAMES = [r"$\\frac{$", "<b>x</b>", "../../x", "a.b", "PLAIN", "a = b", "v missing", "plain[0]", "__index_level_0__"]
ODD_NAMES += ["=", "null", "{{ 7 * 7 }}", "%s", r"\U0001F600", r"\uFEFF", " padded ", "1", "'", r"\"", "#", "n" * 1000]
EXTREMES = [
    "name: large, kind: numeric, bounds: [-1.0e+100, 1.0e+100], missing: category",
    "name: small, kind: numeric, bounds: [0, 1.1e-100]",
    "name: narrow, kind: numeric, bounds: [1, 1.0000000000000002]",
    "name: far, kind: numeric, bounds: [1.0e+16, 1.0000000000000002e+16]",
    "name: whole, kind: integer, bounds: [-9007199254740991, 9007199254740991], missing: category",
    "name: last, kind: integer, bounds: [9007199254740990, 9007199254740991]",
    "name: day, kind: date, bounds: [0001-01-01, 9999-12-31], missing: category",
    'name: moment, kind: timestamp, timezone: Pacific/Kiritimati, bounds: ["1684-07-29", "2255-06-05"]',
    'name: instant, kind: timestamp, bounds: ["2020-01-01T00:00:00", "2020-01-01T00:00:00.000001"]',
    "name: code, kind: categorical, categories: [9223372036854775807, -9223372036854775808]",
    "name: truth, kind: categorical, categories: [true, false]",
    r'name: unit, kind: numeric, bounds: [0, 1], unit: "$\\frac{$"',
]
ABOUT = r'about: {curator: "$\\frac{$ <b>", description: "a\nb: - x\t#", use: "%", region: "{{ 7 * 7 }}", why: "="}'
ACCEPTED: dict[str, str] = {
    "texts": text_of(categories(*ODD_TEXTS), more=ABOUT),
    "names": text_of(*(f'name: "{name}", kind: boolean' for name in ODD_NAMES), epsilon="90"),
    "extremes": text_of(*EXTREMES, epsilon="90"),
    "copula": text_of(*EXTREMES[:7], categories("$x$", "<b>"), epsilon="90", more="model: {generator: copula}"),
    "scores": text_of(
        "name: t, kind: numeric, bounds: [0, 1.0e+100], role: target",
        more="checks: {rmse: {budget: 0.3, at_most: 1.0e+300}, silhouette: {budget: 0.3, clusters: 1000}}",
    ),
    "digits": text_of(epsilon=f"20.{'0' * 390}1"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_specification_that_is_accepted_is_published(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.allocate.audit_of_build", passed)
    workspace, spec = workspace_of(tmp_path, ACCEPTED[case])
    bundle = release(workspace, "2026-01")
    assert [(check.name, check.detail) for check in audit_workspace(workspace) if not check.ok] == []
    assert_valid_documents(bundle)
    assert pq.read_table(bundle / "data.parquet").column_names == [column.name for column in spec.columns]


IN_ANY_LOCALE = """
import sys
from pathlib import Path
import tasks.allocate
from support.tasks.release.rehearsals import categories, passed, text_of, workspace_of
from support.tasks.staged import release
from tasks.audit import audit_workspace

tasks.allocate.audit_of_build = passed
workspace, _ = workspace_of(Path(sys.argv[1]), text_of(categories("\\u65e5", "\\u672c")))
release(workspace, "2026-01")
print([check.name for check in audit_workspace(workspace) if not check.ok])
"""


@pytest.mark.parametrize("module", ["publish.py", "backup/archive.py"])
def test_the_files_of_a_bundle_are_written_and_read_in_one_encoding(module: str):
    source = (Path(tasks.__file__).parent / module).read_text(encoding="utf-8")
    calls = [line for line in source.splitlines() if ".read_text(" in line or ".write_text(" in line]
    assert calls
    assert [line for line in calls if 'encoding="utf-8"' not in line] == []


@pytest.mark.slow
def test_a_bundle_is_utf_8_whatever_the_locale(tmp_path: Path):
    """A machine whose locale is another one wrote half a bundle, after the spend."""
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    environment = os.environ | locale | {"PYTHONPATH": IMPORTS}
    command = [sys.executable, "-c", IN_ANY_LOCALE, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["[]"]), done.stderr[-2000:]


# ---------------------------------------------------------------- the net below

OVERLOOKED: dict[str, Callable[[ReleaseSpec], ReleaseSpec]] = {
    "half-a-character": lambda spec: with_column(spec, categories=("\ud800", "b")),
    "half-a-name": lambda spec: with_column(spec, name="\ud800"),
    "beyond-64-bits": lambda spec: with_column(spec, categories=(1, 2**64)),
    "beyond-squares": lambda spec: with_column(spec, 0, bounds=(0.0, 1e200)),
    "beyond-the-calendar": lambda spec: with_column(spec, 0, kind="date", bounds=(0.0, 1e9)),
}


def with_column(spec: ReleaseSpec, index: int = 1, **changes: Any) -> ReleaseSpec:
    """The specification as it would be if a rule were missing."""
    columns = list(spec.columns)
    columns[index] = columns[index].model_copy(update=changes)
    return spec.model_copy(update={"columns": tuple(columns)})


@pytest.mark.parametrize("case", OVERLOOKED)
def test_the_rehearsal_finds_what_the_rules_overlook(case: str):
    spec = parse_spec(text_of(categories("a", "b")))
    rehearse(spec)
    with pytest.raises(SpecError) as caught:
        rehearse(OVERLOOKED[case](spec))
    assert (caught.value.rule, caught.value.where) == ("specification-unwritable", "columns")


@given(words=st.lists(st.text(max_size=12), min_size=2, max_size=5), name=st.text(max_size=8))
def test_any_text_is_refused_by_the_specification_or_survives_the_rehearsal(words: list[str], name: str):
    column = f"name: {json.dumps(name)}, kind: categorical, categories: {json.dumps(words)}"
    try:
        spec = parse_spec(text_of(column))
    except SpecError as error:
        json.dumps(error.as_json(), ensure_ascii=False).encode()
    else:
        rehearse(spec)


@given(one=st.floats(allow_nan=False, allow_infinity=False), other=st.floats(allow_nan=False, allow_infinity=False))
def test_any_bounds_are_refused_by_the_specification_or_survive_the_rehearsal(one: float, other: float):
    try:
        spec = parse_spec(text_of(f"name: v, kind: numeric, bounds: ['{one!r}', '{other!r}'], missing: category"))
    except SpecError:
        return
    rehearse(spec)


def test_a_run_rehearses_before_it_reserves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also a reason that is no text is refused there; nothing is in the ledger after either."""
    workspace, spec = workspace_of(tmp_path, text_of())
    with pytest.raises(RefusedError) as caught:
        run_of(workspace, workspace.vault, period="2026-01", reason="\udcff")
    assert caught.value.rule == "text-unwritable"
    broken = with_column(spec, 0, bounds=(0.0, 1e200))
    monkeypatch.setattr("tasks.release.context.load_spec", lambda path: broken)
    with pytest.raises(SpecError) as caught:
        release(workspace, "2026-01")
    assert caught.value.rule == "specification-unwritable"
    assert not workspace.ledger_path.exists()
