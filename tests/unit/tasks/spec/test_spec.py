"""release.yaml: what loads, exactly; and what is refused, by which rule and where."""

from __future__ import annotations

import hashlib
import json
import pickle
from fractions import Fraction
from pathlib import Path

import pytest
from pydantic import ValidationError
from support import ROOT

from dpcore.errors import SpecError
from dpcore.mechanisms.catalogue import BY_NAME
from dpcore.records.schema import IntervalColumn, Kind, Neighbours, NominalColumn, PrivacyUnit, Role, RowRule
from tasks.spec import ReleaseSpec, load_spec, parse_spec
from tasks.spec.release import public_digest

# The example of the design; its `checks: {...}` stands for thresholds.
EXAMPLE = r"""
name: clinic-visits
source:
  path: landing/*.parquet                   # parquet or csv (dialect, encoding, decimal mark settable)
  period: "visits-(?P<period>\\d{4}-\\d{2})"  # optional: the data's month from the file name
  drop: [patient_name, address]             # undeclared columns are refused, not ignored
privacy:
  population: clinic-patients               # whose lifetime budget this is; several specs may share it
  unit: row                                 # or {person: patient_id, rows: weight} (or rows: at-most 3)
  neighbours: replace-one                   # or add-remove
  epsilon: 1.0                              # per release; no default
  delta: 0                                  # 0 = pure in exact arithmetic
  lifetime: {epsilon: 12.0, delta: 0, delta_num: 1.0e-9}   # first use writes the cap into the ledger
expected_rows: 40000
columns:
  - {name: age,    kind: numeric,     bounds: [0, 120]}
  - {name: visits, kind: integer,     bounds: [0, 50], missing: category}   # its own level, or {impute: VALUE}
  - {name: seen,   kind: timestamp,   bounds: [2020-01-01, 2030-01-01], timezone: UTC}
  - {name: smoker, kind: boolean}
  - {name: sex,    kind: categorical, categories: [f, m, x], other: x}
  - {name: readmitted, kind: categorical, categories: [no, yes], role: label}   # role: target for a numeric one
model:
  projection: {kind: ron, dimension: 8}     # ron | private-pca | public-pca | none; dimension may be auto
  mechanism: auto                           # wishart-difference | gaussian | laplace | ...
  generator: auto                           # gaussian | supervised | mixture | lda | copula
  allocation: auto                          # or fractions summing to 1: {projection: 0.3, moments: 0.6, marginals: 0.1}
rows: auto                                  # auto = the noisy count
checks: {min_rows: 1000, mean_gap: 0.1}     # thresholds on post-processing metrics
schedule: {cron: "0 6 1 * *", timezone: Europe/Berlin, on_landing: true}
"""

SMALL = """
name: small
source: {path: landing}
privacy: {population: people, unit: row, neighbours: add-remove, epsilon: 0.1, lifetime: {epsilon: 1.2}}
expected_rows: 100
columns:
  - {name: age, kind: numeric, bounds: [0, 1]}
"""


def edited(old: str, new: str, text: str = EXAMPLE) -> str:
    assert text.count(old) == 1, f"{old!r} must occur once in the specification"
    return text.replace(old, new)


def with_column(column: str) -> str:
    return f"{SMALL}  - {column}\n"


def only_column(spec: ReleaseSpec) -> IntervalColumn | NominalColumn:
    return spec.schema.columns[-1]


def refusal(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert caught.value.hint, "every refusal says what to do"
    return caught.value


# ---------------------------------------------------------------- what loads


def test_the_example_of_the_design_loads():
    spec = parse_spec(EXAMPLE)
    assert spec.name == "clinic-visits"
    assert spec.source.drop == ("patient_name", "address")
    assert spec.neighbours is Neighbours.REPLACE_ONE
    assert spec.unit == PrivacyUnit()
    assert spec.model.projection.dimension == 8
    assert spec.checks.min_rows == 1000
    assert spec.checks.correlation_gap is None
    assert spec.schedule.on_landing is True


@pytest.mark.parametrize("left_out", ["unit: row", "neighbours: replace-one"])
def test_unit_and_neighbours_default_to_replacing_one_row(left_out: str):
    spec = parse_spec(edited(f"  {left_out}", ""))
    assert (spec.unit, spec.neighbours) == (PrivacyUnit(), Neighbours.REPLACE_ONE)
    assert spec.digest() == parse_spec(EXAMPLE).digest()


def test_the_schema_is_what_dpcore_expects():
    schema = parse_spec(EXAMPLE).schema
    day = 86_400_000_000
    assert schema.columns == (
        IntervalColumn(name="age", kind=Kind.NUMERIC, lower=0, upper=120),
        IntervalColumn(name="visits", kind=Kind.INTEGER, lower=0, upper=50, missing_level=True),
        IntervalColumn(name="seen", kind=Kind.TIMESTAMP, lower=18262 * day, upper=21915 * day),
        NominalColumn(name="smoker", kind=Kind.BOOLEAN, levels=(False, True)),
        NominalColumn(name="sex", kind=Kind.CATEGORICAL, levels=("f", "m", "x"), other=2),
        NominalColumn(name="readmitted", kind=Kind.CATEGORICAL, levels=("no", "yes"), role=Role.LABEL),
    )


def test_what_is_left_out_takes_the_defaults():
    spec = parse_spec(SMALL)
    assert (spec.model.projection.kind, spec.model.projection.dimension) == ("planned", "auto")
    assert (spec.model.radius, spec.model.accept_noise) == ("planned", None)
    assert (spec.model.mechanism, spec.model.generator, spec.model.allocation) == ("auto", "auto", "auto")
    assert (spec.rows, spec.approve, spec.runner, spec.ledger) == ("auto", "none", None, None)
    assert (spec.privacy.delta, spec.privacy.lifetime.delta) == (0, 0)
    assert spec.privacy.lifetime.delta_num == Fraction(1, 10**9)
    assert (spec.schedule.cron, spec.schedule.timezone, spec.schedule.on_landing) == (None, "UTC", False)
    assert (spec.source.csv.delimiter, spec.source.csv.decimal, spec.source.csv.encoding) == (",", ".", "utf-8")
    assert not any(value for _, value in spec.checks)


def test_a_specification_is_immutable_hashable_and_survives_pickling():
    spec = parse_spec(EXAMPLE)
    with pytest.raises(ValidationError):
        spec.name = "other"  # type: ignore[misc]
    assert hash(spec) == hash(parse_spec(EXAMPLE))
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301


def test_a_file_loads_with_or_without_a_byte_order_mark(tmp_path: Path):
    path = tmp_path / "release.yaml"
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_text(EXAMPLE, encoding=encoding)
        assert load_spec(path) == parse_spec(EXAMPLE)


# ---------------------------------------------------------------- exact numbers


def test_twelve_tenths_are_exactly_the_lifetime():
    privacy = parse_spec(SMALL).privacy
    assert 12 * privacy.epsilon == privacy.lifetime.epsilon == Fraction(6, 5)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", Fraction(1)),
        ("1.", Fraction(1)),
        (".5", Fraction(1, 2)),
        ("+0.30", Fraction(3, 10)),
        ("1e-1", Fraction(1, 10)),
        ("1.5E-1", Fraction(3, 20)),
        ('"0.7"', Fraction(7, 10)),
        ("0.1000000000000000055511151231257827", Fraction(1000000000000000055511151231257827, 10**34)),
    ],
)
def test_a_number_is_read_digit_by_digit(text: str, number: Fraction):
    assert parse_spec(edited("epsilon: 0.1", f"epsilon: {text}", SMALL)).privacy.epsilon == number


@pytest.mark.parametrize("text", ["1e-9", "1.0e-9", "0.000000001", '"1e-9"'])
def test_delta_num_may_be_written_in_any_notation(text: str):
    spec = parse_spec(edited("delta_num: 1.0e-9", f"delta_num: {text}"))
    assert spec.privacy.lifetime.delta_num == Fraction(1, 10**9)


def test_the_papers_splits_have_names():
    spec = parse_spec(edited("allocation: auto", "allocation: ron-gauss"))
    assert spec.model.shares == {"mean": Fraction("0.3"), "moments": Fraction("0.7")}
    assert parse_spec(edited("allocation: auto", "allocation: auto")).model.shares is None


def test_a_radius_is_exact_and_the_whole_ball_is_left_out_of_the_description():
    quarter = parse_spec(edited("allocation: auto", "radius: 0.25"))
    assert quarter.as_public_json()["model"]["radius_exact"] == "1/4"
    assert parse_spec(edited("allocation: auto", "radius: auto")).as_public_json()["model"]["radius"] == "auto"
    whole = parse_spec(edited("allocation: auto", "radius: 1"))
    assert "radius" not in whole.as_public_json()["model"]


@pytest.mark.parametrize("radius", ["", "radius: planned", "radius: auto", "radius: 1", "radius: 0.25"])
def test_what_is_said_of_a_radius_comes_back_from_the_public_description(radius: str):
    spec = parse_spec(edited("allocation: auto", radius))
    back = ReleaseSpec.from_public_json(json.loads(json.dumps(spec.as_public_json())))
    assert (back.model.radius, back.digest()) == (spec.model.radius, spec.digest())


def test_a_choice_that_is_left_out_is_the_same_as_one_that_is_called_planned():
    left_out, called = (
        parse_spec(f"{SMALL}{model}") for model in ("", "model: {projection: {kind: planned}, radius: planned}")
    )
    assert called == left_out
    assert called.digest() == left_out.digest()


def test_a_description_of_earlier_versions_keeps_its_digest_and_its_whole_ball():
    """They named the projection even where the specification did not, and left out the radius 1."""
    public = parse_spec(f"{SMALL}model: {{projection: {{kind: ron}}, radius: 1}}\n").as_public_json()
    assert public["model"]["projection"] == {"kind": "ron", "dimension": "auto"}
    assert "radius" not in public["model"]
    back = ReleaseSpec.from_public_json(public)
    assert back.model.radius is None
    assert back.digest() == public_digest(public)


def test_accepting_noise_is_public_and_keeps_the_digest():
    plain, refusing, accepting = (
        parse_spec(edited("allocation: auto", f"accept_noise: {accept}" if accept else ""))
        for accept in ("", "false", "true")
    )
    assert plain.digest() == refusing.digest() == accepting.digest()
    assert "accept_noise" not in refusing.as_public_json()["model"]
    assert accepting.as_public_json()["model"]["accept_noise"] is True
    assert ReleaseSpec.from_public_json(accepting.as_public_json()).model.accept_noise is True


def test_the_refusal_of_noisy_rows_says_why_and_where_they_can_be_had():
    with pytest.raises(SpecError, match=r"exact number of rows.*local differential privacy.*order") as refusal:
        parse_spec(edited("generator: auto", "generator: noisy-rows"))
    assert all(place in refusal.value.hint for place in BY_NAME["noisy-rows"].offered)


def test_points_that_keep_their_length_are_left_out_of_the_description():
    plain, same = parse_spec(edited("allocation: auto", "")), parse_spec(edited("allocation: auto", "normalise: none"))
    length = parse_spec(edited("allocation: auto", "normalise: length"))
    assert same.digest() == plain.digest() != length.digest()
    assert "normalise" not in plain.as_public_json()["model"]
    assert length.as_public_json()["model"]["normalise"] == "length"


def test_allocation_fractions_are_exact():
    spec = parse_spec(edited("allocation: auto", "allocation: {projection: 0.3, moments: 0.6, marginals: 0.1}"))
    assert spec.model.allocation != "auto"
    assert spec.model.allocation.shares == {
        "projection": Fraction(3, 10),
        "moments": Fraction(3, 5),
        "marginals": Fraction(1, 10),
    }


def test_thirds_can_be_allocated():
    spec = parse_spec(edited("allocation: auto", 'allocation: {projection: 1/3, moments: "1 / 3", marginals: 1/3}'))
    assert spec.model.allocation != "auto"
    assert sum(spec.model.allocation.shares.values()) == 1


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("categories", "levels"),
    [
        ("[no, yes]", ("no", "yes")),
        ("[on, off]", ("on", "off")),
        ("[y, n]", ("y", "n")),
        ("[false, true]", (False, True)),
        ("[0, 1]", (0, 1)),
        ("[01, 02]", ("01", "02")),
        ("[12:30, 23:59]", ("12:30", "23:59")),
        ("[2020-01-01, 2020-01-02]", ("2020-01-01", "2020-01-02")),
        ('["1", "2"]', ("1", "2")),
    ],
)
def test_categories_mean_what_their_writer_sees(categories: str, levels: tuple[object, ...]):
    column = only_column(parse_spec(with_column(f"{{name: a, kind: categorical, categories: {categories}}}")))
    assert isinstance(column, NominalColumn)
    assert column.levels == levels
    assert [type(level) for level in column.levels] == [type(level) for level in levels]


@pytest.mark.parametrize(
    ("column", "lower", "upper"),
    [
        ("kind: numeric, bounds: [-0.5, 1e3]", -0.5, 1000.0),
        ("kind: integer, bounds: [-3, 4.0]", -3.0, 4.0),
        ("kind: date, bounds: [1969-12-31, 1970-01-02]", -1.0, 1.0),
        ("kind: date, bounds: [0001-01-01, 9999-12-31]", -719162.0, 2932896.0),
        ("kind: timestamp, bounds: [1970-01-01, 1970-01-02]", 0.0, 86400e6),
        ("kind: timestamp, bounds: [1970-01-01T00:00:00.000001Z, 1970-01-01 00:00:01]", 1.0, 1e6),
        ("kind: timestamp, timezone: Europe/Berlin, bounds: [1970-01-01, 1970-01-01T01:00:01]", -3600e6, 1e6),
        ("kind: timestamp, timezone: Asia/Kolkata, bounds: ['1970-01-01T05:30', 1970-01-01T00:00:01+00:00]", 0.0, 1e6),
        ("kind: timestamp, timezone: Europe/Berlin, bounds: [1970-01-01T00:00:00Z, 2020-07-01]", 0.0, 1593554400e6),
    ],
)
def test_bounds_become_ticks(column: str, lower: float, upper: float):
    built = only_column(parse_spec(with_column(f"{{name: a, {column}}}")))
    assert isinstance(built, IntervalColumn)
    assert (built.lower, built.upper) == (lower, upper)


@pytest.mark.parametrize(
    ("column", "impute"),
    [
        ("kind: numeric, bounds: [0, 1], missing: {impute: 0.25}", 0.25),
        ("kind: date, bounds: [1970-01-01, 1980-01-01], missing: {impute: 1970-01-11}", 10.0),
        ("kind: boolean, missing: {impute: true}", 1),
        ("kind: categorical, categories: [a, b, c], missing: {impute: c}", 2),
        ("kind: categorical, categories: [a, b, c], other: b", None),
        ("kind: boolean", None),
    ],
)
def test_a_missing_cell_counts_as_the_imputed_value(column: str, impute: float | None):
    built = only_column(parse_spec(with_column(f"{{name: a, {column}}}")))
    assert built.impute == impute
    assert built.missing_level is False


def test_many_categories_are_fine_with_an_other():
    names = ", ".join(f"c{i}" for i in range(101))
    spec = parse_spec(with_column(f"{{name: a, kind: categorical, categories: [{names}], other: c0}}"))
    assert len(spec.columns[-1].levels) == 101


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("row", PrivacyUnit()),
        ("{person: id}", PrivacyUnit(person="id")),
        ("{person: id, rows: weight}", PrivacyUnit(person="id", row_rule=RowRule.WEIGHT)),
        ("{person: id, rows: at-most 3}", PrivacyUnit(person="id", row_rule=RowRule.AT_MOST, most_rows=3)),
        ("{person: id, rows: {at-most: 3}}", PrivacyUnit(person="id", row_rule=RowRule.AT_MOST, most_rows=3)),
    ],
)
def test_the_privacy_unit_is_a_row_or_a_person(unit: str, expected: PrivacyUnit):
    assert parse_spec(edited("unit: row", f"unit: {unit}", SMALL)).unit == expected


@pytest.mark.parametrize("cron", ["* * * * *", "*/15 0-6,12 1,15 jan-MAR mon", "0 0 29 2 *", "0 0 29 2 1", "5 4 * * 7"])
def test_plain_cron_expressions_are_accepted(cron: str):
    assert parse_spec(edited("0 6 1 * *", cron)).schedule.cron == cron


def test_a_csv_dialect_can_be_given():
    dialect = "csv: {delimiter: ';', decimal: ',', encoding: latin-1, quote: \"'\"}"
    csv = parse_spec(edited("path: landing", f"path: landing, period: null, {dialect}", SMALL)).source.csv
    assert (csv.delimiter, csv.decimal, csv.encoding, csv.quote) == (";", ",", "latin-1", "'")


@pytest.mark.parametrize(
    ("generator", "role"),
    [("supervised", "target"), ("mixture", "label"), ("lda", "label"), ("copula", "feature"), ("gaussian", "feature")],
)
def test_a_generator_is_accepted_with_the_role_it_needs(generator: str, role: str):
    kind = "kind: integer, bounds: [0, 9]" if role == "target" else "kind: boolean"
    text = with_column(f"{{name: y, {kind}, role: {role}}}") + f"model: {{generator: {generator}}}\n"
    assert parse_spec(text).model.generator == generator


# ---------------------------------------------------------------- digest and public description


def test_the_digest_is_pinned():
    """A changed digest refuses the resumption of every release in flight: change it knowingly."""
    whole = parse_spec(edited("allocation: auto", "radius: 1"))
    assert whole.digest() == "20a27598ff6c32779acffa2832956b408b20321d5e250ed8b105b37b4a2bc334"
    assert parse_spec(EXAMPLE).digest() == "22652ee5a537f304f7a73b04636f76ccaceb43c83df4ebf7ac95c07534841f91"


@pytest.mark.parametrize("figure", ["epsilon: 12.0", "delta: 0, ", "delta_num: 1.0e-9"])
def test_changing_the_lifetime_keeps_the_digest(figure: str):
    """A raised cap must not keep a release in flight from being finished."""
    changed = {"epsilon: 12.0": "epsilon: 24", "delta: 0, ": "delta: 1e-6, ", "delta_num: 1.0e-9": "delta_num: 0"}
    assert parse_spec(edited(figure, changed[figure])).digest() == parse_spec(EXAMPLE).digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("checks: {min_rows: 1000, mean_gap: 0.1}", "checks: {min_rows: 5}"),
        ('cron: "0 6 1 * *"', 'cron: "0 7 1 * *"'),
        ("rows: auto ", "rows: 500 "),
        ("landing/*.parquet", "elsewhere"),
        ("name: clinic-visits", "approve: required\nname: clinic-visits"),
        ("name: clinic-visits", "ledger: postgresql://host/ledger\nname: clinic-visits"),
        ("name: clinic-visits", "runner: {dask: 'tcp://host:8786'}\nname: clinic-visits"),
        ("epsilon: 1.0", "epsilon: 1.000"),
        ("bounds: [0, 120]", "bounds: [0.0, 1.2e2]"),
        ("[2020-01-01, 2030-01-01]", "[2020-01-01T01:00:00+01:00, 2030-01-01]"),
        ("mechanism: auto ", ""),
    ],
)
def test_the_digest_ignores_notation_and_what_comes_after_the_measurement(old: str, new: str):
    assert parse_spec(edited(old, new)).digest() == parse_spec(EXAMPLE).digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: clinic-visits", "name: clinic-visit"),
        ("epsilon: 1.0", "epsilon: 1.0000000000000000001"),
        ("neighbours: replace-one", "neighbours: add-remove"),
        ("unit: row", "unit: {person: id}"),
        ("expected_rows: 40000", "expected_rows: 40001"),
        ("bounds: [0, 120]", "bounds: [0, 121]"),
        ("kind: boolean", "kind: boolean, missing: {impute: true}"),
        ("kind: boolean", "kind: boolean, missing: category"),
        ("categories: [no, yes]", "categories: [yes, no]"),
        ("other: x", "other: m"),
        ("timezone: UTC", "timezone: Africa/Abidjan"),
        ("dimension: 8", "dimension: auto"),
        ("dimension: 8", "dimension: dfm"),
        ("kind: ron, dimension: 8", "kind: private-pca, dimension: {share: 0.9}"),
        ("allocation: auto", "allocation: {moments: 1}"),
    ],
)
def test_the_digest_tells_measurements_apart(old: str, new: str):
    assert parse_spec(edited(old, new)).digest() != parse_spec(EXAMPLE).digest()


def test_the_public_description_is_json_with_exact_numbers_and_no_secrets():
    text = edited("name: clinic-visits", "ledger: postgresql://user@hunter2/ledger\nname: clinic-visits")
    text = edited("allocation: auto", "allocation: {projection: 1/3, moments: 2/3}", text)
    public = parse_spec(text).as_public_json()
    assert json.loads(json.dumps(public, allow_nan=False)) == public
    assert public["privacy"]["lifetime"]["delta_num"] == 1e-9
    assert public["privacy"]["lifetime"]["delta_num_exact"] == "1/1000000000"
    assert public["model"]["allocation"]["projection_exact"] == "1/3"
    assert public["columns"][2]["bounds"] == ["2020-01-01T00:00:00+00:00", "2030-01-01T00:00:00+00:00"]
    assert public["columns"][1]["bounds"] == [0, 50]
    assert public["privacy"]["unit"] == "row"
    assert "hunter2" not in str(public)
    assert not {"source", "ledger", "runner"} & set(public)


def test_the_public_description_shows_imputed_values_in_the_columns_own_terms():
    date = "{name: d, kind: date, bounds: [2020-01-01, 2021-01-01], missing: {impute: 2020-06-01}}"
    assert parse_spec(with_column(date)).as_public_json()["columns"][-1]["missing"] == {"impute": "2020-06-01"}
    truth = "{name: b, kind: boolean, missing: {impute: false}}"
    assert parse_spec(with_column(truth)).as_public_json()["columns"][-1]["missing"] == {"impute": False}


# ---------------------------------------------------------------- what is refused: the file


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "release.yaml")
    assert caught.value.rule == "spec-not-found"


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path):
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path)
    assert caught.value.rule == "spec-unreadable"


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path):
    path = tmp_path / "release.yaml"
    path.write_bytes("name: café".encode("latin-1"))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert caught.value.rule == "spec-not-text"


BAD_DOCUMENTS = {
    "empty": ("", "spec-empty", "release.yaml"),
    "only-comments": ("# nothing\n", "spec-empty", "release.yaml"),
    "a-list": ("- name: x\n", "spec-not-a-mapping", "release.yaml"),
    "a-word": ("release\n", "spec-not-a-mapping", "release.yaml"),
    "unclosed-bracket": ("name: [a\n", "yaml-syntax", "line 2, column 1"),
    "a-tab": ("name:\n\tx: 1\n", "yaml-syntax", "line 2, column 1"),
    "two-documents": ("name: x\n---\nname: y\n", "yaml-syntax", "line 2, column 1"),
    "a-python-object": ("name: !!python/object/apply:os.getcwd []\n", "yaml-syntax", "line 1, column 7"),
    "a-control-character": ("name: \x01\n", "yaml-syntax", "release.yaml"),
    "a-list-as-key": ("? [a]\n: 1\n", "yaml-syntax", "line 1, column 3"),
    "a-false-integer": ("name: !!int x\n", "yaml-syntax", "line 1, column 7"),
    "a-false-float": ("name: !!float x\n", "yaml-syntax", "line 1, column 7"),
    "a-false-boolean": ("name: !!bool x\n", "yaml-syntax", "line 1, column 7"),
    "an-endless-integer": (f"name: {'9' * 5000}\n", "yaml-syntax", "line 1, column 7"),
    "bottomless-nesting": ("[" * 600, "yaml-syntax", "release.yaml"),
    "a-key-twice": ("name: a\nname: b\n", "duplicate-key", "name"),
    "a-nested-key-twice": (edited("delta: 0  ", "epsilon: 2  "), "duplicate-key", "privacy.epsilon"),
    "a-column-key-twice": (edited("kind: boolean", "kind: boolean, kind: date"), "duplicate-key", "columns[3].kind"),
    "a-mapping-inside-itself": ("name: &a {b: *a}\n", "yaml-syntax", "line 1, column 14"),
}


@pytest.mark.parametrize("case", BAD_DOCUMENTS)
def test_a_broken_document_is_refused(case: str):
    text, rule, where = BAD_DOCUMENTS[case]
    error = refusal(text)
    assert (error.rule, error.where) == (rule, where)


# ---------------------------------------------------------------- what is refused: edits of the example

BAD_EDITS = {
    # top level
    "name-missing": ("name: clinic-visits\n", "", "missing-key", "name"),
    "name-with-capitals": ("name: clinic-visits", "name: Clinic", "slug", "name"),
    "name-with-slash": ("name: clinic-visits", "name: ../x", "slug", "name"),
    "name-with-hyphen-first": ("name: clinic-visits", "name: -x", "slug", "name"),
    "name-with-newline": ("name: clinic-visits", 'name: "x\\n"', "slug", "name"),
    "name-too-long": ("name: clinic-visits", f"name: {'x' * 65}", "slug", "name"),
    "name-is-a-number": ("name: clinic-visits", "name: 7", "not-text", "name"),
    "unknown-top-key": ("expected_rows: 40000", "expected_row: 40000", "unknown-key", "expected_row"),
    "number-as-key": ("expected_rows: 40000", "1: 40000", "unknown-key", "1"),
    "expected-rows-missing": ("expected_rows: 40000\n", "", "missing-key", "expected_rows"),
    "expected-rows-zero": ("expected_rows: 40000", "expected_rows: 0", "not-positive", "expected_rows"),
    "expected-rows-negative": ("expected_rows: 40000", "expected_rows: -5", "not-positive", "expected_rows"),
    "expected-rows-broken": ("expected_rows: 40000", "expected_rows: 1.5", "not-whole", "expected_rows"),
    "expected-rows-true": ("expected_rows: 40000", "expected_rows: true", "not-a-number", "expected_rows"),
    "expected-rows-huge": ("expected_rows: 40000", "expected_rows: 1e300", "not-positive", "expected_rows"),
    "rows-zero": ("rows: auto ", "rows: 0 ", "not-positive", "rows"),
    "rows-a-word": ("rows: auto ", "rows: all ", "not-a-number", "rows"),
    "rows-nothing": ("rows: auto ", "rows: ", "not-a-number", "rows"),
    "approve-unknown": ("name: clinic-visits", "name: x\napprove: maybe", "unknown-value", "approve"),
    "runner-unknown": ("name: clinic-visits", "name: x\nrunner: {spark: 'a://b'}", "unknown-key", "runner.spark"),
    "path-with-credentials": (
        "path: landing/*.parquet",
        "path: s3://key:hidden@bucket/x",
        "path-url",
        "source.path",
    ),
    "runner-no-address": ("name: clinic-visits", "name: x\nrunner: {dask: host}", "dask-address", "runner.dask"),
    "ledger-not-a-url": ("name: clinic-visits", "name: x\nledger: ledger.db", "ledger-url", "ledger"),
    "ledger-of-another-kind": ("name: clinic-visits", "name: x\nledger: mysql://h/d", "ledger-url", "ledger"),
    # source
    "source-path-missing": ("path: landing/*.parquet", "drops: []", "unknown-key", "source.drops"),
    "source-path-empty": ("path: landing/*.parquet", 'path: ""', "empty-text", "source.path"),
    "source-empty": ("path: landing/*.parquet", "path:", "not-text", "source.path"),
    "period-not-a-pattern": ("visits-(?P", "visits-((?P", "period-pattern", "source.period"),
    "period-without-group": ("?P<period>", "?P<month>", "period-group", "source.period"),
    "drop-not-a-list": ("drop: [patient_name, address]", "drop: address", "not-a-list", "source.drop"),
    "drop-twice": ("drop: [patient_name, address]", "drop: [a, b, a]", "drop-duplicate", "source.drop[2]"),
    "drop-a-number": ("drop: [patient_name, address]", "drop: [1]", "not-text", "source.drop[0]"),
    "drop-empty-name": ("drop: [patient_name, address]", 'drop: [" "]', "empty-text", "source.drop[0]"),
    "drop-declared": ("drop: [patient_name, address]", "drop: [address, age]", "drop-declared", "source.drop[1]"),
    "csv-long-delimiter": (
        "drop: [patient",
        'csv: {delimiter: "||"}\n  drop: [p',
        "one-character",
        "source.csv.delimiter",
    ),
    "csv-newline-quote": ("drop: [patient", 'csv: {quote: "\\n"}\n  drop: [p', "one-character", "source.csv.quote"),
    "csv-encoding": ("drop: [patient", "csv: {encoding: utf-9}\n  drop: [p", "encoding", "source.csv.encoding"),
    "csv-binary-encoding": ("drop: [patient", "csv: {encoding: base64}\n  drop: [p", "encoding", "source.csv.encoding"),
    "csv-decimal": ("drop: [patient", "csv: {decimal: ';'}\n  drop: [p", "unknown-value", "source.csv.decimal"),
    "csv-same-marks": ("drop: [patient", "csv: {decimal: ','}\n  drop: [p", "csv-marks", "source.csv"),
    # privacy
    "epsilon-missing": ("  epsilon: 1.0 ", "  ", "epsilon-missing", "privacy.epsilon"),
    "epsilon-empty": ("epsilon: 1.0 ", "epsilon: ", "epsilon-missing", "privacy.epsilon"),
    "epsilon-zero": ("epsilon: 1.0 ", "epsilon: 0 ", "epsilon-not-positive", "privacy.epsilon"),
    "epsilon-negative": ("epsilon: 1.0 ", "epsilon: -1 ", "epsilon-not-positive", "privacy.epsilon"),
    "epsilon-true": ("epsilon: 1.0 ", "epsilon: true ", "not-a-number", "privacy.epsilon"),
    "epsilon-a-word": ("epsilon: 1.0 ", "epsilon: one ", "not-a-number", "privacy.epsilon"),
    "epsilon-a-ratio": ("epsilon: 1.0 ", "epsilon: 1/3 ", "not-a-number", "privacy.epsilon"),
    "epsilon-a-list": ("epsilon: 1.0 ", "epsilon: [1.0] ", "not-a-number", "privacy.epsilon"),
    "epsilon-nan": ("epsilon: 1.0 ", "epsilon: .nan ", "not-finite", "privacy.epsilon"),
    "epsilon-nan-as-text": ("epsilon: 1.0 ", "epsilon: nan ", "not-finite", "privacy.epsilon"),
    "epsilon-infinite": ("epsilon: 1.0 ", "epsilon: .inf ", "not-finite", "privacy.epsilon"),
    "epsilon-minus-infinite": ("epsilon: 1.0 ", "epsilon: -.INF ", "not-finite", "privacy.epsilon"),
    "epsilon-bomb": ("epsilon: 1.0 ", "epsilon: 1e999999999 ", "number-range", "privacy.epsilon"),
    "epsilon-above-every-float": ("epsilon: 1.0 ", "epsilon: 1e399 ", "not-finite", "privacy.epsilon"),
    "epsilon-below-every-float": ("epsilon: 1.0 ", "epsilon: 1e-399 ", "number-range", "privacy.epsilon"),
    "epsilon-drowned": ("epsilon: 1.0 ", "epsilon: 1e-30 ", "epsilon-too-small", "privacy.epsilon"),
    "delta-vanishing": ("delta: 0  ", "delta: 1e-200  ", "delta-range", "privacy.delta"),
    "delta-above-every-float": ("delta: 0  ", "delta: 1e399  ", "not-finite", "privacy.delta"),
    "lifetime-bomb": ("{epsilon: 12.0", "{epsilon: 1e99999999", "number-range", "privacy.lifetime.epsilon"),
    "lifetime-above-every-float": ("{epsilon: 12.0", "{epsilon: 1e399", "not-finite", "privacy.lifetime.epsilon"),
    "lifetime-far-below-zero": ("{epsilon: 12.0", "{epsilon: -1e399", "not-finite", "privacy.lifetime.epsilon"),
    "rows-bomb": ("expected_rows: 40000", "expected_rows: 1e99999999", "number-range", "expected_rows"),
    "ledger-with-password": (
        "name: clinic",
        "ledger: postgresql://u:s3@h/d\nname: clinic",
        "ledger-password",
        "ledger",
    ),
    "ledger-with-password-option": (
        "name: clinic",
        "ledger: postgresql://u@h/d?password=s3\nname: clinic",
        "ledger-password",
        "ledger",
    ),
    "ledger-with-hidden-password-option": (
        "name: clinic",
        "ledger: postgresql://u@h/d?p%61ssword=s3\nname: clinic",
        "ledger-password",
        "ledger",
    ),
    "lineage-with-password": (
        "name: clinic",
        "lineage: {url: 'https://u:s3@h'}\nname: clinic",
        "lineage-url",
        "lineage.url",
    ),
    "epsilon-tiny-bomb": ("epsilon: 1.0 ", "epsilon: 1e-999999999 ", "number-range", "privacy.epsilon"),
    "epsilon-too-large": ("epsilon: 1.0 ", "epsilon: 100.1 ", "epsilon-too-large", "privacy.epsilon"),
    "epsilon-misspelt": ("epsilon: 1.0 ", "epsilom: 1.0 ", "unknown-key", "privacy.epsilom"),
    "delta-negative": ("delta: 0  ", "delta: -1e-9  ", "delta-range", "privacy.delta"),
    "delta-one": ("delta: 0  ", "delta: 1  ", "delta-range", "privacy.delta"),
    "delta-too-large": ("delta: 0  ", "delta: 0.0011  ", "delta-too-large", "privacy.delta"),
    "delta-false": ("delta: 0  ", "delta: false  ", "not-a-number", "privacy.delta"),
    "lifetime-missing": (
        "  lifetime: {epsilon: 12.0, delta: 0, delta_num: 1.0e-9}",
        "",
        "missing-key",
        "privacy.lifetime",
    ),
    "lifetime-epsilon-missing": ("epsilon: 12.0, ", "", "epsilon-missing", "privacy.lifetime.epsilon"),
    "lifetime-epsilon-small": ("epsilon: 12.0", "epsilon: 0.999", "lifetime-too-small", "privacy.lifetime.epsilon"),
    "lifetime-epsilon-zero": ("epsilon: 12.0", "epsilon: 0", "epsilon-not-positive", "privacy.lifetime.epsilon"),
    "lifetime-delta-small": ("delta: 0  ", "delta: 1e-6  ", "lifetime-too-small", "privacy.lifetime.delta"),
    "lifetime-delta-one": ("delta: 0, ", "delta: 1.0, ", "delta-range", "privacy.lifetime.delta"),
    "lifetime-delta-num": ("delta_num: 1.0e-9", "delta_num: -1", "delta-range", "privacy.lifetime.delta_num"),
    "lifetime-a-number": ("{epsilon: 12.0, delta: 0, delta_num: 1.0e-9}", "12", "not-a-mapping", "privacy.lifetime"),
    "population-missing": ("  population: clinic-patients", "", "missing-key", "privacy.population"),
    "population-with-space": ("population: clinic-patients", "population: our people", "slug", "privacy.population"),
    "neighbours-unknown": ("neighbours: replace-one", "neighbours: swap", "unknown-value", "privacy.neighbours"),
    "unit-a-word": ("unit: row", "unit: person", "unit", "privacy.unit"),
    "unit-empty": ("unit: row", "unit: {}", "unit", "privacy.unit"),
    "unit-without-person": ("unit: row", "unit: {rows: weight}", "unit", "privacy.unit"),
    "unit-person-nothing": ("unit: row", "unit: {person: }", "unit", "privacy.unit"),
    "unit-person-blank": ("unit: row", "unit: {person: ''}", "empty-text", "privacy.unit.person"),
    "unit-misspelt": ("unit: row", "unit: {persons: id}", "unknown-key", "privacy.unit.persons"),
    "unit-rows-word": ("unit: row", "unit: {person: id, rows: all}", "unit-rows", "privacy.unit.rows"),
    "unit-rows-bare": ("unit: row", "unit: {person: id, rows: 3}", "unit-rows", "privacy.unit.rows"),
    "unit-rows-zero": ("unit: row", "unit: {person: id, rows: at-most 0}", "not-positive", "privacy.unit.rows"),
    "unit-rows-half": ("unit: row", "unit: {person: id, rows: {at-most: 1.5}}", "not-whole", "privacy.unit.rows"),
    "unit-rows-true": ("unit: row", "unit: {person: id, rows: {at-most: true}}", "not-a-number", "privacy.unit.rows"),
    "person-declared": ("unit: row", "unit: {person: age}", "person-declared", "privacy.unit.person"),
    "person-dropped": ("unit: row", "unit: {person: address}", "person-dropped", "privacy.unit.person"),
    # columns, as a whole
    "column-twice": ("name: smoker", "name: age", "column-duplicate", "columns[3].name"),
    "column-name-missing": ("name: smoker, ", "", "missing-key", "columns[3].name"),
    "column-name-empty": ("name: smoker", 'name: ""', "empty-text", "columns[3].name"),
    "column-name-true": ("name: smoker", "name: true", "not-text", "columns[3].name"),
    "column-kind-missing": ("name: smoker, kind: boolean", "name: smoker", "missing-key", "columns[3].kind"),
    "column-kind-unknown": ("kind: boolean", "kind: bool", "unknown-value", "columns[3].kind"),
    "column-kind-a-list": ("kind: boolean", "kind: [boolean]", "unknown-value", "columns[3].kind"),
    "column-kind-text": ("kind: boolean", "kind: text", "free-text", "columns[3].kind"),
    "column-kind-string": ("kind: boolean", "kind: string", "free-text", "columns[3].kind"),
    "column-unknown-key": ("bounds: [0, 120]", "bound: [0, 120]", "unknown-key", "columns[0].bound"),
    "column-not-a-mapping": ("{name: smoker, kind: boolean}", "smoker", "not-a-mapping", "columns[3]"),
    "two-labels": ("kind: boolean", "kind: boolean, role: label", "two-labels", "columns[5].role"),
    "label-and-target": ("bounds: [0, 120]", "bounds: [0, 120], role: target", "label-and-target", "columns[5].role"),
    "role-unknown": ("role: label", "role: labels", "unknown-value", "columns[5].role"),
    "label-without-categories": ("categories: [no, yes], ", "", "categories-missing", "columns[5].categories"),
    # model
    "projection-kind": ("kind: ron", "kind: pca", "unknown-value", "model.projection.kind"),
    "projection-a-word": ("{kind: ron, dimension: 8}", "ron", "not-a-mapping", "model.projection"),
    "dimension-zero": ("dimension: 8", "dimension: 0", "not-positive", "model.projection.dimension"),
    "dimension-half": ("dimension: 8", "dimension: 2.5", "not-whole", "model.projection.dimension"),
    "output-unknown": (
        "projection: {kind: ron",
        "output: points\n  projection: {kind: ron",
        "unknown-value",
        "model.output",
    ),
    "dimension-a-word": ("dimension: 8", "dimension: all", "not-a-number", "model.projection.dimension"),
    "share-of-all": ("dimension: 8", "dimension: {share: 1}", "share-out-of-range", "model.projection.dimension.share"),
    "share-of-none": (
        "dimension: 8",
        "dimension: {share: 0}",
        "share-out-of-range",
        "model.projection.dimension.share",
    ),
    "share-a-word": ("dimension: 8", "dimension: {share: most}", "not-a-number", "model.projection.dimension.share"),
    "share-missing": ("dimension: 8", "dimension: {}", "missing-key", "model.projection.dimension.share"),
    "share-misspelt": ("dimension: 8", "dimension: {part: 0.9}", "unknown-key", "model.projection.dimension.part"),
    "dimension-too-large": ("dimension: 8", "dimension: 9", "dimension-too-large", "model.projection.dimension"),
    "dimension-of-nothing": ("kind: ron", "kind: none", "dimension-without-projection", "model.projection.dimension"),
    "mechanism-not-a-slug": ("mechanism: auto", "mechanism: Laplace!", "slug", "model.mechanism"),
    "generator-of-noisy-rows": ("generator: auto", "generator: noisy-rows", "generator-local", "model.generator"),
    "generator-unknown": ("generator: auto", "generator: gan", "unknown-value", "model.generator"),
    "supervised-without-target": (
        "generator: auto",
        "generator: supervised",
        "generator-needs-target",
        "model.generator",
    ),
    "allocation-a-word": ("allocation: auto", "allocation: equal", "unknown-value", "model.allocation"),
    "allocation-nothing": ("allocation: auto", "allocation: ", "not-a-mapping", "model.allocation"),
    "allocation-empty": ("allocation: auto", "allocation: {}", "allocation-sum", "model.allocation"),
    "allocation-name": ("allocation: auto", "allocation: {moment: 1}", "unknown-key", "model.allocation.moment"),
    "allocation-sum": (
        "allocation: auto",
        "allocation: {moments: 0.9999999999999999999}",
        "allocation-sum",
        "model.allocation",
    ),
    "allocation-thirds": (
        "allocation: auto",
        "allocation: {moments: 2/3, marginals: 0.33}",
        "allocation-sum",
        "model.allocation",
    ),
    "allocation-zero": (
        "allocation: auto",
        "allocation: {moments: 1, marginals: 0}",
        "not-positive",
        "model.allocation.marginals",
    ),
    "allocation-by-zero": (
        "allocation: auto",
        "allocation: {moments: 1/0}",
        "not-a-number",
        "model.allocation.moments",
    ),
    "radius-a-word": ("allocation: auto", "radius: small", "not-a-number", "model.radius"),
    "radius-zero": ("allocation: auto", "radius: 0", "radius-out-of-range", "model.radius"),
    "radius-above-the-ball": ("allocation: auto", "radius: 1.5", "radius-out-of-range", "model.radius"),
    # checks and schedule
    "checks-unknown": ("min_rows: 1000", "minimum_rows: 1000", "unknown-key", "checks.minimum_rows"),
    "checks-placeholder": ("{min_rows: 1000, mean_gap: 0.1}", "{...}", "unknown-key", "checks...."),
    "checks-nothing": ("{min_rows: 1000, mean_gap: 0.1}", "", "not-a-mapping", "checks"),
    "checks-half-a-row": ("min_rows: 1000", "min_rows: 0.5", "not-whole", "checks.min_rows"),
    "checks-zero-gap": ("mean_gap: 0.1", "mean_gap: 0", "not-positive", "checks.mean_gap"),
    "checks-huge-gap": ("mean_gap: 0.1", "mean_gap: 1e399", "not-finite", "checks.mean_gap"),
    "checks-true-gap": ("mean_gap: 0.1", "mean_gap: true", "not-a-number", "checks.mean_gap"),
    "cron-four-fields": ("0 6 1 * *", "0 6 1 *", "cron", "schedule.cron"),
    "cron-six-fields": ("0 6 1 * *", "0 0 6 1 * *", "cron", "schedule.cron"),
    "cron-minute-60": ("0 6 1 * *", "60 6 1 * *", "cron", "schedule.cron"),
    "cron-day-zero": ("0 6 1 * *", "0 6 0 * *", "cron", "schedule.cron"),
    "cron-reversed-range": ("0 6 1 * *", "0 6 9-3 * *", "cron", "schedule.cron"),
    "cron-step-zero": ("0 6 1 * *", "*/0 6 1 * *", "cron", "schedule.cron"),
    "cron-unknown-month": ("0 6 1 * *", "0 6 1 foo *", "cron", "schedule.cron"),
    "cron-dangling-comma": ("0 6 1 * *", "0 6 1, * *", "cron", "schedule.cron"),
    "cron-never": ("0 6 1 * *", "0 6 30 2 *", "cron", "schedule.cron"),
    "cron-never-beside-a-weekday": ("0 6 1 * *", "0 6 31 2 1", "cron", "schedule.cron"),
    "cron-a-macro": ("0 6 1 * *", "@monthly", "cron", "schedule.cron"),
    "timezone-unknown": ("Europe/Berlin", "Europe/Berln", "timezone", "schedule.timezone"),
    "timezone-a-path": ("Europe/Berlin", "/etc/passwd", "timezone", "schedule.timezone"),
    "timezone-a-folder": ("Europe/Berlin", "Europe", "timezone", "schedule.timezone"),
    "on-landing-yes": ("on_landing: true", "on_landing: yes", "not-a-boolean", "schedule.on_landing"),
}


@pytest.mark.parametrize("case", BAD_EDITS)
def test_a_broken_edit_of_the_example_is_refused(case: str):
    old, new, rule, where = BAD_EDITS[case]
    error = refusal(edited(old, new))
    assert (error.rule, error.where) == (rule, where)


@pytest.mark.parametrize("answer", ["yes", "1", '"true"', "on"])
def test_noise_is_accepted_by_true_alone(answer: str):
    error = refusal(f"{SMALL}model: {{accept_noise: {answer}}}\n")
    assert (error.rule, error.where) == ("not-a-boolean", "model.accept_noise")


# ---------------------------------------------------------------- what is refused: one column

BAD_COLUMNS = {
    "bounds-missing": ("kind: numeric", "bounds-missing", "bounds"),
    "bounds-nothing": ("kind: date, bounds: ", "bounds-missing", "bounds"),
    "bounds-reversed": ("kind: numeric, bounds: [1, 0]", "bounds-order", "bounds"),
    "bounds-equal": ("kind: integer, bounds: [1, 1]", "bounds-order", "bounds"),
    "bounds-equal-as-floats": ("kind: numeric, bounds: [1, 1.00000000000000000001]", "bounds-order", "bounds"),
    "bounds-of-three": ("kind: numeric, bounds: [0, 1, 2]", "bounds-shape", "bounds"),
    "bounds-a-number": ("kind: numeric, bounds: 5", "bounds-shape", "bounds"),
    "bounds-nan": ("kind: numeric, bounds: [.nan, 1]", "not-finite", "bounds"),
    "bounds-infinite": ("kind: numeric, bounds: [0, .inf]", "not-finite", "bounds"),
    "bounds-overflow": ("kind: numeric, bounds: [0, 1e309]", "not-finite", "bounds"),
    "bounds-width-overflow": ("kind: numeric, bounds: [-1.7e308, 1.7e308]", "bounds-range", "bounds"),
    "bounds-width-underflow": ("kind: numeric, bounds: [0, 5e-324]", "number-range", "bounds"),
    "bounds-boolean": ("kind: numeric, bounds: [false, true]", "not-a-number", "bounds"),
    "bounds-word": ("kind: numeric, bounds: [low, high]", "not-a-number", "bounds"),
    "bounds-dates-of-numbers": ("kind: numeric, bounds: [2020-01-01, 2021-01-01]", "not-a-number", "bounds"),
    "bounds-not-whole": ("kind: integer, bounds: [0, 1.5]", "not-whole", "bounds"),
    "bounds-beyond-floats": ("kind: integer, bounds: [0, 9007199254740992]", "bounds-range", "bounds"),
    "bounds-years-as-dates": ("kind: date, bounds: [2020, 2021]", "not-a-date", "bounds"),
    "bounds-times-as-dates": ("kind: date, bounds: [2020-01-01T00:00:00, 2021-01-01]", "not-a-date", "bounds"),
    "bounds-no-such-day": ("kind: date, bounds: [2021-02-29, 2022-01-01]", "not-a-date", "bounds"),
    "bounds-years-as-times": ("kind: timestamp, bounds: [2020, 2021]", "not-a-timestamp", "bounds"),
    "bounds-no-such-hour": ("kind: timestamp, bounds: [2020-01-01T25:00:00, 2021-01-01]", "not-a-timestamp", "bounds"),
    "bounds-far-future": ("kind: timestamp, bounds: [2020-01-01, 9999-12-31]", "bounds-range", "bounds"),
    "bounds-far-past": (
        "kind: timestamp, timezone: Europe/Berlin, bounds: [0001-01-01, 2020-01-01]",
        "bounds-range",
        "bounds",
    ),
    "bounds-of-categories": ("kind: categorical, categories: [a, b], bounds: [0, 1]", "bounds-kind", "bounds"),
    "bounds-of-booleans": ("kind: boolean, bounds: [0, 1]", "bounds-kind", "bounds"),
    "categories-missing": ("kind: categorical", "categories-missing", "categories"),
    "categories-a-word": ("kind: categorical, categories: a", "not-a-list", "categories"),
    "categories-none": ("kind: categorical, categories: []", "categories-few", "categories"),
    "categories-one": ("kind: categorical, categories: [a]", "categories-few", "categories"),
    "categories-twice": ("kind: categorical, categories: [a, b, a]", "category-duplicate", "categories[2]"),
    "categories-mixed": ("kind: categorical, categories: [1, a]", "categories-mixed", "categories"),
    "categories-true-and-1": ("kind: categorical, categories: [true, 1]", "categories-mixed", "categories"),
    "categories-of-decimals": ("kind: categorical, categories: [1.5, 2.5]", "category-kind", "categories[0]"),
    "categories-of-nothing": ("kind: categorical, categories: [a, null]", "category-kind", "categories[1]"),
    "categories-of-lists": ("kind: categorical, categories: [a, [b]]", "category-kind", "categories[1]"),
    "categories-beyond-64-bits": (
        "kind: categorical, categories: [0, 9223372036854775808]",
        "category-kind",
        "categories[1]",
    ),
    "categories-of-numbers": ("kind: numeric, bounds: [0, 1], categories: [a, b]", "categories-kind", "categories"),
    "categories-of-booleans": ("kind: boolean, categories: [a, b]", "categories-kind", "categories"),
    "too-many-categories": (
        f"kind: categorical, categories: [{', '.join(f'c{i}' for i in range(101))}]",
        "cardinality",
        "categories",
    ),
    "other-undeclared": ("kind: categorical, categories: [a, b], other: c", "other-unknown", "other"),
    "other-of-another-type": ("kind: categorical, categories: [0, 1], other: true", "other-unknown", "other"),
    "other-a-list": ("kind: categorical, categories: [a, b], other: [a]", "other-unknown", "other"),
    "other-of-booleans": ("kind: boolean, other: true", "other-kind", "other"),
    "other-of-numbers": ("kind: numeric, bounds: [0, 1], other: 1", "other-kind", "other"),
    "missing-a-word": ("kind: boolean, missing: drop", "missing-rule", "missing"),
    "missing-a-misspelling": ("kind: boolean, missing: {input: true}", "missing-rule", "missing"),
    "missing-two-keys": ("kind: boolean, missing: {impute: true, to: 1}", "missing-rule", "missing"),
    "impute-outside": ("kind: numeric, bounds: [0, 1], missing: {impute: 1.1}", "impute-outside", "missing"),
    "impute-nan": ("kind: numeric, bounds: [0, 1], missing: {impute: .nan}", "not-finite", "missing"),
    "impute-not-whole": ("kind: integer, bounds: [0, 9], missing: {impute: 0.5}", "not-whole", "missing"),
    "impute-nothing": ("kind: integer, bounds: [0, 9], missing: {impute: }", "not-a-number", "missing"),
    "impute-undeclared": ("kind: categorical, categories: [a, b], missing: {impute: c}", "impute-unknown", "missing"),
    "impute-number-for-boolean": ("kind: boolean, missing: {impute: 1}", "impute-unknown", "missing"),
    "timezone-of-a-date": ("kind: date, timezone: UTC, bounds: [2020-01-01, 2021-01-01]", "timezone-kind", "timezone"),
    "timezone-unknown": ("kind: timestamp, timezone: Mars, bounds: [2020-01-01, 2021-01-01]", "timezone", "timezone"),
    "label-numeric": ("kind: numeric, bounds: [0, 1], role: label", "label-kind", "role"),
    "label-date": ("kind: date, bounds: [2020-01-01, 2021-01-01], role: label", "label-kind", "role"),
    "target-categorical": ("kind: categorical, categories: [a, b], role: target", "target-kind", "role"),
    "target-timestamp": ("kind: timestamp, bounds: [2020-01-01, 2021-01-01], role: target", "target-kind", "role"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_a_broken_column_is_refused(case: str):
    column, rule, where = BAD_COLUMNS[case]
    error = refusal(with_column(f"{{name: a, {column}}}"))
    assert (error.rule, error.where) == (rule, f"columns[1].{where}")


def test_two_targets_are_refused():
    target = "{{name: {}, kind: integer, bounds: [0, 1], role: target}}"
    error = refusal(f"{with_column(target.format('a'))}  - {target.format('b')}")
    assert (error.rule, error.where) == ("two-targets", "columns[2].role")


@pytest.mark.parametrize("columns", ["[]", "[{name: a, kind: boolean, role: label}]"])
def test_a_release_without_features_is_refused(columns: str):
    text = edited("columns:\n  - {name: age, kind: numeric, bounds: [0, 1]}", f"columns: {columns}", SMALL)
    assert (refusal(text).rule, refusal(text).where) == ("no-features", "columns")


def test_the_targets_coordinate_is_never_projected():
    text = with_column("{name: y, kind: numeric, bounds: [0, 1], role: target}")
    assert parse_spec(text + "model: {projection: {dimension: 1}}\n").model.projection.dimension == 1
    assert refusal(text + "model: {projection: {dimension: 2}}\n").rule == "dimension-too-large"


@pytest.mark.parametrize("generator", ["mixture", "lda"])
def test_a_generator_of_classes_needs_a_label(generator: str):
    error = refusal(SMALL + f"model: {{generator: {generator}}}\n")
    assert (error.rule, error.where) == ("generator-needs-label", "model.generator")


# ---------------------------------------------------------------- how a refusal speaks


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("expected_rows", "expected_row", "`expected_rows`"),
        ("epsilon: 1.0", "epsilom: 1.0", "`epsilon`"),
        ("kind: ron", "kind: pivate-pca", "`private-pca`"),
        ("neighbours: replace-one", "neighbours: Replace_One", "`replace-one`"),
        ("kind: boolean", "kind: bool", "`boolean`"),
        ("Europe/Berlin", "europe/berlin", "Europe/Berlin"),
        ("generator: auto", "generator: zzz", "use one of auto, gaussian"),
        ("epsilon: 1.0 ", "epsilon: 101 ", "promises nothing"),
        ("  epsilon: 1.0 ", "  ", "there is no default"),
        ("bounds: [0, 120]", "role: label, bounds: [0, 120]", "role: target"),
        ("kind: boolean", "kind: text", "source.drop"),
    ],
)
def test_the_hint_helps(old: str, new: str, word: str):
    assert word in refusal(edited(old, new)).hint


def test_a_refusal_says_how_many_more_problems_there_are():
    one = edited("epsilon: 1.0 ", "epsilon: 0 ")
    two = edited("expected_rows: 40000", "expected_rows: 0", one)
    three = edited("generator: auto", "generator: gan", two)
    assert "more" not in refusal(one).message
    assert refusal(two).message.endswith("(and 1 more problem)")
    assert refusal(three).message.endswith("(and 2 more problems)")
    assert refusal(three).where == "privacy.epsilon"


@pytest.mark.parametrize(
    "column",
    [
        "kind: bool, role: label, bounds: [1, 0], categories: [], other: x, missing: {impute: 1}",
        "kind: categorical, categories: [a], other: x, missing: {impute: x}",
        "kind: numeric, bounds: [1, 0], missing: {impute: 5}",
        "kind: timestamp, timezone: Mars, bounds: [2, 1], missing: {impute: 5}",
    ],
)
def test_what_follows_from_one_mistake_is_not_counted_as_more(column: str):
    assert "more" not in refusal(with_column(f"{{name: a, {column}}}")).message


def test_braces_in_the_specification_do_not_garble_the_message():
    assert "'{hint}'" in refusal(edited("name: clinic-visits", "name: '{hint}'")).message


def test_a_refusal_quotes_long_values_in_short_and_passwords_not_at_all():
    assert len(refusal(edited("name: clinic-visits", f"name: {'X' * 999}")).message) < 200
    error = refusal(edited("name: clinic-visits", "name: x\nledger: mysql://user:hunter2@host/db"))
    assert "hunter2" not in str(error.as_json())


def test_a_ledger_may_name_the_file_that_holds_its_password():
    url = "postgresql://user@host/ledger?passfile=/run/pgpass&sslkey=/run/key.pem"
    assert parse_spec(edited("name: clinic-visits", f"name: clinic-visits\nledger: {url}")).ledger == url


def nested(make: str, depth: int) -> str:
    """A few lines of YAML in which each stands for the line before it nine times over."""
    lines = ["x0: &x0 {a: 1}"]
    return "\n".join(lines + [make.format(i, ", ".join([f"*x{i - 1}"] * 9)) for i in range(1, depth)])


@pytest.mark.parametrize("make", ["x{0}: &x{0} {{<<: [{1}]}}", "x{0}: &x{0} [{1}]"], ids=["merges", "aliases"])
def test_a_text_that_stands_for_more_than_it_says_is_refused_before_it_is_unfolded(make: str):
    error = refusal(nested(make, 12) + EXAMPLE)
    assert (error.rule, error.where[:7]) == ("yaml-syntax", "line 2,")


def test_a_column_may_have_a_thousand_categories_and_is_refused_at_once_with_twenty_thousand():
    listed = [f"c{number}" for number in range(20_000)]
    column = "{{name: a, kind: categorical, other: c0, categories: [{}]}}"
    spec = parse_spec(with_column(column.format(", ".join(listed[:1000]))))
    assert len(spec.columns[1].levels) == 1000
    assert refusal(with_column(column.format(", ".join(listed)))).rule == "cardinality"


def test_reading_the_specification_needs_neither_prefect_nor_pandas():
    folder = ROOT / "tasks" / "spec"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    assert "import prefect" not in text
    assert "from prefect" not in text
    assert "pandas" not in text


# ---------------------------------------------------------------- data that a query gives

QUERY = """
name: small
source: {drop: [note], query: {url: "env:CLINIC_DB_URL", sql: "SELECT * FROM visits"}}
privacy: {population: people, epsilon: 1, lifetime: {epsilon: 12}}
expected_rows: 100
columns:
  - {name: age, kind: numeric, bounds: [0, 1]}
"""


def test_a_source_is_a_query_or_files():
    asked, landed = parse_spec(QUERY).source, parse_spec(SMALL).source
    assert (asked.path, asked.query.variable, asked.query.sql) == ("", "CLINIC_DB_URL", "SELECT * FROM visits")
    assert (landed.path, landed.query) == ("landing", None)


@pytest.mark.parametrize(
    "url", ["sqlite:///clinic.db", "postgresql+psycopg://reader@host:5432/clinic?sslmode=require", "mysql://host/d"]
)
def test_a_database_may_be_named_without_a_password(url: str):
    query = parse_spec(edited("env:CLINIC_DB_URL", url, QUERY)).source.query
    assert (query.url, query.variable) == (url, None)


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT age FROM visits", set()),
        ("-- months\\n(select a::date FROM t WHERE m = :period AND x <> '12:30')", {"period"}),
        (
            "/* all */ SELECT :period_start AS a, :period_end AS b, '\\\\:here' AS c FROM t",
            {"period_start", "period_end"},
        ),
    ],
)
def test_a_query_may_ask_for_the_month(sql: str, parameters: set[str]):
    source = parse_spec(edited("SELECT * FROM visits", sql, QUERY)).source
    assert source.query.parameters == parameters
    assert source.tells_months_apart is bool(parameters)


def test_months_are_told_apart_by_file_names_too():
    assert parse_spec(EXAMPLE).source.tells_months_apart
    assert not parse_spec(SMALL).source.tells_months_apart


BAD_QUERIES = {
    "no-source": ('query: {url: "env:CLINIC_DB_URL", sql: "SELECT * FROM visits"}', "csv: {}", "missing-key", "path"),
    "a-path-too": ("drop: [note]", "path: landing", "query-or-files", "path"),
    "a-pattern-for-file-names": ("drop: [note]", "period: '(?P<period>x)'", "query-or-files", "period"),
    "a-dialect-of-files": ("drop: [note]", 'csv: {delimiter: ";"}', "query-or-files", "csv"),
    "no-url": ("env:CLINIC_DB_URL", "clinic.db hunter2", "query-url", "query.url"),
    "no-variable": ("env:CLINIC_DB_URL", "env:hunter2 $X", "query-url", "query.url"),
    "a-password": ("env:CLINIC_DB_URL", "postgresql://u:hunter2@host/db", "query-password", "query.url"),
    "a-password-with-marks": ("env:CLINIC_DB_URL", "postgresql://u:a/hunter2?@host/db", "query-password", "query.url"),
    "a-password-alone": ("env:CLINIC_DB_URL", "postgresql://:hunter2@host/db", "query-password", "query.url"),
    "a-password-option": ("env:CLINIC_DB_URL", "mysql://h/d?x=1&PassWord=hunter2", "query-password", "query.url"),
    "a-connection-string": ("env:CLINIC_DB_URL", "mssql://?odbc_connect=PWD%3Dhunter2", "query-password", "query.url"),
    "a-statement-that-writes": ("SELECT * FROM visits", "DELETE FROM visits", "query-select", "query.sql"),
    "no-statement": ("SELECT * FROM visits", " ", "empty-text", "query.sql"),
    "another-parameter": ("FROM visits", "FROM visits WHERE a = :month", "query-parameter", "query.sql"),
    "unknown-key": ("sql:", "table: t, sql:", "unknown-key", "query.table"),
}


@pytest.mark.parametrize("case", BAD_QUERIES)
def test_a_broken_query_is_refused_without_its_secrets(case: str):
    old, new, rule, where = BAD_QUERIES[case]
    error = refusal(edited(old, new, QUERY))
    assert (error.rule, error.where) == (rule, f"source.{where}")
    assert "hunter2" not in f"{error!r} {error.as_json()}"


def test_nothing_lands_where_the_data_come_from_a_query():
    error = refusal(f"{QUERY}schedule: {{on_landing: true}}\n")
    assert (error.rule, error.where) == ("elsewhere-on-landing", "schedule.on_landing")
    assert parse_spec(f'{QUERY}schedule: {{cron: "0 6 1 * *"}}\n').schedule.cron


def test_a_query_is_neither_shown_nor_public_and_its_digest_is():
    spec = parse_spec(QUERY)
    assert "CLINIC" not in repr(spec)
    assert "visits" not in f"{spec!r} {spec.as_public_json()}"
    digest = hashlib.sha256(b"SELECT * FROM visits").hexdigest()
    assert spec.as_public_json()["query"] == {"rows": "table", "sql_sha256": digest}
    for text in ("SELECT age FROM visits", "SELECT * FROM  visits", 'SELECT * FROM visits", rows: "answer'):
        assert spec.digest() != parse_spec(edited("SELECT * FROM visits", text, QUERY)).digest()
    assert spec.digest() == parse_spec(edited("env:CLINIC_DB_URL", "sqlite:///clinic.db", QUERY)).digest()
    back = ReleaseSpec.from_public_json(spec.as_public_json())
    assert (back.query, back.digest(), back.source.query) == (spec.query, spec.digest(), None)
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301
    assert len({spec, parse_spec(QUERY)}) == 1


# ---------------------------------------------------------------- words for those who use a release

ABOUT = """
about:
  curator: The clinic
  use: Teaching
  sector: Healthcare
  links: ["https://example.org/clinic"]
"""


def test_words_about_a_release_are_public_and_do_not_shape_its_measurement():
    plain, told = parse_spec(SMALL), parse_spec(SMALL + ABOUT)
    assert told.digest() == plain.digest()
    assert "about" not in plain.as_public_json()
    assert told.as_public_json()["about"]["curator"] == "The clinic"


def test_the_unit_of_a_column_is_public_and_does_not_shape_its_measurement():
    plain = parse_spec(with_column("{name: height, kind: numeric, bounds: [0, 3]}"))
    told = parse_spec(with_column("{name: height, kind: numeric, bounds: [0, 3], unit: metres}"))
    assert told.digest() == plain.digest()
    assert told.as_public_json()["columns"][-1]["unit"] == "metres"
    assert "unit" not in plain.as_public_json()["columns"][-1]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (SMALL + "about: {curater: x}\n", "unknown-key"),
        (SMALL + "about: {use: ' '}\n", "empty-text"),
        (SMALL + f"about: {{use: '{'x' * 2001}'}}\n", "text-too-long"),
        (SMALL + 'about: {use: "a\\x07b"}\n', "text-unprintable"),
        (with_column("{name: ill, kind: boolean, unit: metres}"), "unit-kind"),
    ],
)
def test_words_that_cannot_be_published_are_refused(text: str, rule: str):
    assert refusal(text).rule == rule


@pytest.mark.parametrize(
    ("written", "asked"), [("dfm", "dfm"), ("{share: 0.9}", Fraction(9, 10)), ("{share: 2/3}", Fraction(2, 3))]
)
def test_a_rule_for_the_dimension_is_read_and_comes_back_from_the_public_description(written: str, asked: object):
    kind = "ron" if written == "dfm" else "private-pca"
    spec = parse_spec(edited("kind: ron, dimension: 8", f"kind: {kind}, dimension: {written}"))
    assert spec.model.projection.asked_dimension == asked
    back = ReleaseSpec.from_public_json(json.loads(json.dumps(spec.as_public_json())))
    assert back.model.projection.asked_dimension == asked
    assert back.digest() == spec.digest()


def test_the_tables_that_are_published_keep_the_digest_unless_points_are_asked_for():
    plain = parse_spec(EXAMPLE)
    written = {
        output: parse_spec(edited("projection: {kind: ron", f"output: {output}\n  projection: {{kind: ron"))
        for output in ("original", "projected", "both")
    }
    assert written["original"].digest() == plain.digest()
    assert "output" not in plain.as_public_json()["model"]
    assert len({spec.digest() for spec in written.values()}) == 3
    tables = {
        output: (spec.model.publishes_original, spec.model.publishes_projected) for output, spec in written.items()
    }
    assert tables == {"original": (True, False), "projected": (False, True), "both": (True, True)}
    back = ReleaseSpec.from_public_json(json.loads(json.dumps(written["both"].as_public_json())))
    assert (back.model.output, back.digest()) == ("both", written["both"].digest())
