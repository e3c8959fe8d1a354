"""The demos give the same public tables every time, as their specifications declare them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from scipy.stats import skew, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpcore.accounting import Cost, Months, times
from dpcore.errors import WorkspaceError
from flows.demos import DEMOS, clinic, write_demo
from tasks.spec import parse_spec
from tasks.spec.plan import cap_of, plan_release

Tables = dict[str, pa.Table]

TIMESTAMP = pa.timestamp("us", tz="UTC")
CLINIC_TYPES = {
    "patient_id": pa.int64(),
    "patient_name": pa.string(),
    "address": pa.string(),
    "age": pa.float64(),
    "bmi": pa.float64(),
    "systolic": pa.float64(),
    "visits": pa.int64(),
    "cost": pa.float64(),
    "arrival": TIMESTAMP,
    "smoker": pa.bool_(),
    "sex": pa.string(),
    "insurance": pa.string(),
    "ward": pa.string(),
    "readmitted": pa.string(),
}


def written(name: str, folder: Path) -> Tables:
    write_demo(name, folder)
    return {path.name: pq.read_table(path) for path in sorted((folder / "landing").iterdir())}


def specification(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "release.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def clinic_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clinic")


@pytest.fixture(scope="module")
def months(clinic_folder: Path) -> Tables:
    return written("clinic", clinic_folder)


@pytest.fixture(scope="module")
def year(months: Tables) -> pa.Table:
    return pa.concat_tables(months.values())


@pytest.fixture(scope="module")
def digits_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def images(digits_folder: Path) -> pa.Table:
    return written("digits", digits_folder)["digits.parquet"]


@pytest.fixture(params=DEMOS)
def demo_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_demo(request.param, tmp_path)
    return tmp_path


def floats(table: pa.Table, name: str) -> np.ndarray:
    """The column as floats, NaN for null, clamped to the demo's bounds as a release would."""
    bounds = {
        column["name"]: column.get("bounds", [0, 1]) for column in yaml.safe_load(clinic.specification())["columns"]
    }
    return table[name].cast(pa.float64()).to_numpy().clip(*bounds[name])


Rows = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def rows(months: Tables) -> Rows:
    """The cells of all months as typed; null is NaN, an empty text or 1970; and t, the number of the month."""
    year = pa.concat_tables(months.values())
    cells = {name: pc.fill_null(year[name], "").to_numpy() for name in ("sex", "insurance", "ward")}
    cells |= {name: year[name].cast(pa.float64()).to_numpy() for name in ("age", "bmi", "systolic", "visits", "cost")}
    cells |= {"smoker": year["smoker"].cast(pa.float64()).to_numpy(), "patient_id": year["patient_id"].to_numpy()}
    cells["arrival"] = pc.fill_null(year["arrival"].cast(pa.timestamp("us")), 0).to_numpy()
    return cells | {"t": np.repeat(np.arange(len(months)), [table.num_rows for table in months.values()])}


def arrival_days(table: pa.Table) -> np.ndarray:
    return table["arrival"].drop_null().cast(pa.timestamp("us")).to_numpy().astype("datetime64[D]")


def by_patient(patients: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The first and the last value of each patient, as two rows."""
    order = np.argsort(patients, kind="stable")
    starts = np.flatnonzero(np.diff(patients[order], prepend=-1))
    ends = np.append(starts[1:], len(order)) - 1
    return np.array([values[order][starts], values[order][ends]])


def monthly_means(values: np.ndarray, which: np.ndarray, t: np.ndarray) -> np.ndarray:
    which = which & ~np.isnan(values)
    return np.bincount(t[which], values[which]) / np.bincount(t[which])


class TestWriting:
    @pytest.mark.parametrize("name", DEMOS)
    def test_every_call_writes_the_same_files(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        one, two = written(name, tmp_path / "one"), written(name, tmp_path / "two")
        assert tuple(one) == tuple(two) == DEMOS[name].file_names
        assert all(one[file_name].equals(two[file_name]) for file_name in one)
        assert specification(tmp_path / "one") == specification(tmp_path / "two")

    @pytest.mark.parametrize("file_name", ["release.yaml", "landing/visits-2026-10.parquet"])
    def test_an_existing_file_is_never_overwritten(self, file_name: str, tmp_path: Path) -> None:
        path = tmp_path / file_name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        with pytest.raises(WorkspaceError, match="already exists") as refusal:
            write_demo("clinic", tmp_path)
        assert refusal.value.where == file_name
        assert path.read_text() == "mine"
        assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]

    def test_a_link_that_leads_nowhere_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "release.yaml").symlink_to(tmp_path / "elsewhere.yaml")
        with pytest.raises(WorkspaceError, match="already exists"):
            write_demo("digits", tmp_path)
        assert not (tmp_path / "elsewhere.yaml").exists()

    def test_other_files_in_the_landing_folder_stay(self, tmp_path: Path) -> None:
        (tmp_path / "landing" / "quarantine").mkdir(parents=True)
        write_demo("digits", tmp_path)
        assert (tmp_path / "landing" / "quarantine").is_dir()

    def test_an_unknown_demo_is_refused_with_the_names(self, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceError, match="no demo 'hospital'") as refusal:
            write_demo("hospital", tmp_path)
        assert refusal.value.hint == "choose one of: clinic, digits"

    def test_a_missing_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceError, match="does not exist"):
            write_demo("clinic", tmp_path / "nowhere")

    @pytest.mark.parametrize("name", DEMOS)
    def test_a_demo_carries_its_own_name(self, name: str) -> None:
        assert DEMOS[name].name == name


class TestSpecifications:
    def test_the_files_hold_exactly_the_declared_and_the_dropped_columns(self, demo_folder: Path) -> None:
        spec = specification(demo_folder)
        expected = {column["name"] for column in spec["columns"]} | set(spec["source"].get("drop", []))
        expected |= {spec["privacy"]["unit"]["person"]} if spec["privacy"]["unit"] != "row" else set()
        for path in (demo_folder / "landing").iterdir():
            assert set(pq.read_schema(path).names) == expected

    def test_every_landing_file_matches_the_source(self, demo_folder: Path) -> None:
        matched = set(demo_folder.glob(specification(demo_folder)["source"]["path"]))
        assert matched == set((demo_folder / "landing").iterdir())

    def test_the_clinic_protects_patients_within_twelve_months_of_arrivals(self) -> None:
        spec = parse_spec(clinic.specification())
        assert spec.protects == "person by patient_id (rows: weight)"
        assert (spec.privacy.unit.months, spec.source.period_column) == (12, "arrival")

    def test_the_clinics_cap_holds_twelve_months_and_so_a_release_of_every_month_for_good(self) -> None:
        spec = parse_spec(clinic.specification())
        cap, cost, span = cap_of(spec), plan_release(spec).cost, spec.privacy.unit.months
        year = times(cost, 12)
        assert cap.admits(year)
        assert cap.balance(year).epsilon == pytest.approx(3.9, abs=0.05), "as a comment in the specification says"
        assert cap.admits(Months(dict.fromkeys(range(60), cost), Cost()).largest(span))
        assert not cap.admits(
            Months({month: times(cost, 1 + (month == 30)) for month in range(60)}, Cost()).largest(span)
        )

    def test_the_clinics_categories_are_strings_and_its_arrivals_dates(self) -> None:
        columns = {column["name"]: column for column in yaml.safe_load(clinic.specification())["columns"]}
        nominal = [column for column in columns.values() if column["kind"] == "categorical"]
        assert all(isinstance(level, str) for column in nominal for level in column["categories"])
        assert columns["readmitted"]["categories"] == ["no", "yes"]
        assert columns["arrival"]["bounds"] == [dt.date(2025, 11, 1), dt.date(2026, 11, 1)]

    def test_the_digits_have_64_pixels_and_a_label(self, digits_folder: Path, images: pa.Table) -> None:
        *pixels, label = specification(digits_folder)["columns"]
        assert [pixel["name"] for pixel in pixels] == [f"px{row}{column}" for row in range(8) for column in range(8)]
        assert all((pixel["kind"], pixel["bounds"]) == ("integer", [0, 16]) for pixel in pixels)
        assert label == {"name": "digit", "kind": "categorical", "categories": list(range(10)), "role": "label"}

    def test_each_column_of_the_digits_has_its_own_line(self, digits_folder: Path, images: pa.Table) -> None:
        lines = (digits_folder / "release.yaml").read_text(encoding="utf-8").splitlines()
        assert sum(line.startswith("  - {name: ") for line in lines) == 65
        assert max(map(len, lines)) < 120

    def test_the_project_loads_both(self, demo_folder: Path) -> None:
        spec = pytest.importorskip("tasks.spec")
        load: Callable[[Path], object] = spec.load_spec
        assert load(demo_folder / "release.yaml")


class TestClinic:
    def test_there_are_twelve_months(self, months: Tables) -> None:
        names = tuple(months)
        assert (names[0], names[-1], len(names)) == ("visits-2025-11.parquet", "visits-2026-10.parquet", 12)

    def test_months_grow_slowly_around_20000_rows(self, months: Tables) -> None:
        counts = [table.num_rows for table in months.values()]
        assert counts == sorted(set(counts))
        assert all(19_000 < count < 21_000 and count % 100 for count in counts)

    def test_months_differ(self, months: Tables) -> None:
        heads = [table["cost"].slice(0, 100).to_pylist() for table in months.values()]
        assert all(heads[i] != heads[j] for i in range(12) for j in range(i))

    def test_columns_have_the_declared_types(self, months: Tables) -> None:
        for table in months.values():
            assert {field.name: field.type for field in table.schema} == CLINIC_TYPES

    def test_files_are_compressed_with_zstd(self, clinic_folder: Path, months: Tables) -> None:
        metadata = pq.read_metadata(clinic_folder / "landing" / next(iter(months)))
        assert metadata.row_group(0).column(0).compression == "ZSTD"

    @pytest.mark.parametrize(
        ("name", "least", "most"),
        [("bmi", 0.05, 0.07), ("visits", 0.07, 0.09), ("sex", 1e-6, 0.001), ("arrival", 1e-6, 0.001), ("age", 0, 0)],
    )
    def test_the_share_of_missing_cells(self, year: pa.Table, name: str, least: float, most: float) -> None:
        assert least <= year[name].null_count / year.num_rows <= most

    def test_one_arrival_in_a_hundred_is_entered_late(self, months: Tables) -> None:
        for name, table in months.items():
            inside = pc.equal(pc.strftime(table["arrival"], format="visits-%Y-%m.parquet"), name)
            assert 0.986 < pc.sum(inside).as_py() / table.num_rows < 0.993
            first = np.datetime64(name[len("visits-") :][:7], "D")
            early = (first - arrival_days(table)).astype(int)
            dirty = early > 365  # 1970
            assert set(early[(early > 0) & ~dirty]) == set(range(1, 8))
            assert 0 < dirty.mean() < 2 * clinic.DIRTY_SHARE

    def test_every_bounded_column_has_dirty_cells(self, year: pa.Table) -> None:
        for column in yaml.safe_load(clinic.specification())["columns"]:
            if column["kind"] in {"numeric", "integer"}:
                least, most = column["bounds"]
                assert pc.min(year[column["name"]]).as_py() < least
                assert pc.max(year[column["name"]]).as_py() > most

    @pytest.mark.parametrize("name", ["sex", "insurance", "ward"])
    def test_only_a_few_categories_are_undeclared(self, year: pa.Table, name: str) -> None:
        columns = {column["name"]: column for column in yaml.safe_load(clinic.specification())["columns"]}
        levels = set(pc.unique(year[name]).to_pylist()) - {None}
        assert levels - set(columns[name]["categories"]) == {"unknown"}
        assert set(columns[name]["categories"]) < levels

    def test_well_under_one_row_in_a_hundred_is_dirty(self, year: pa.Table) -> None:
        assert clinic.DIRTY_SHARE * len(clinic.DIRT) < 0.005
        unknown = pc.sum(pc.equal(year["insurance"], "unknown")).as_py()
        assert 0 < unknown / year.num_rows < 0.001

    def test_names_and_addresses_are_plainly_invented(self, year: pa.Table) -> None:
        names = pc.binary_join_element_wise("patient", pc.cast(year["patient_id"], pa.string()), " ")
        assert year["patient_name"].equals(names)
        assert pc.min(year["patient_id"]).as_py() >= 100_000
        assert pc.max(year["patient_id"]).as_py() < 1_000_000
        assert pc.all(pc.match_substring_regex(year["address"], r"^\d{1,3} Example Street$")).as_py()

    def test_cost_and_visits_lean_to_the_right(self, year: pa.Table) -> None:
        assert skew(floats(year, "cost")) > 1
        assert skew(floats(year, "visits"), nan_policy="omit") > 1

    @pytest.mark.parametrize(
        ("one", "other", "least"),
        [
            ("age", "systolic", 0.5),
            ("age", "visits", 0.15),
            ("bmi", "systolic", 0.2),
            ("smoker", "cost", 0.15),
            ("age", "cost", 0.15),
        ],
    )
    def test_columns_depend_on_each_other(self, year: pa.Table, one: str, other: str, least: float) -> None:
        pairs = np.column_stack([floats(year, one), floats(year, other)])
        assert spearmanr(pairs[~np.isnan(pairs).any(axis=1)]).statistic > least

    def test_about_one_patient_in_six_is_readmitted(self, months: Tables) -> None:
        for table in months.values():
            assert set(pc.unique(table["readmitted"]).to_pylist()) == {"no", "yes"}
            assert 0.14 < pc.mean(pc.equal(table["readmitted"], "yes")).as_py() < 0.18

    def test_a_classifier_can_learn_the_label_but_not_perfectly(self, months: Tables) -> None:
        table = months["visits-2025-11.parquet"]
        names = ["age", "bmi", "systolic", "visits", "cost", "smoker"]
        X = np.column_stack([floats(table, name) for name in names])
        X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
        y = table["readmitted"].to_numpy() == "yes"
        half = len(y) // 2
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:half], y[:half])
        assert 0.72 < roc_auc_score(y[half:], model.predict_proba(X[half:])[:, 1]) < 0.82


class TestClinicsPatients:
    def test_a_month_has_about_14000_patients_and_a_quarter_of_them_come_several_times(self, months: Tables) -> None:
        for table in months.values():
            _, counts = np.unique(table["patient_id"].to_numpy(), return_counts=True)
            assert 13_800 < len(counts) < 15_000
            assert 0.24 < (counts > 1).mean() < 0.29
            assert counts.max() > 5

    def test_most_patients_come_in_several_months_and_those_who_come_often_in_most_months(self, rows: Rows) -> None:
        counts = np.zeros((1_000_000, len(clinic.MONTHS)), dtype=int)
        np.add.at(counts, (rows["patient_id"], rows["t"]), 1)
        counts = counts[counts.any(axis=1)]
        assert 0.7 < ((counts > 0).sum(axis=1) > 1).mean() < 0.8
        often = counts[counts.sum(axis=1) >= 18]
        assert len(often) > 1000
        assert (often > 0).sum(axis=1).mean() > 10

    @pytest.mark.parametrize("name", ["sex", "smoker", "insurance", "patient_name", "address"])
    def test_patients_keep_what_is_theirs(self, year: pa.Table, name: str) -> None:
        sound = year.filter(pc.fill_null(pc.not_equal(pc.cast(year[name], pa.string()), "unknown"), False))
        assert sound.num_rows > 0.998 * year.num_rows
        values = sound.group_by("patient_id").aggregate([(name, "count_distinct")])
        assert set(values[f"{name}_count_distinct"].to_pylist()) == {1}

    def test_patients_grow_older_by_a_twelfth_of_a_year_a_month(self, rows: Rows) -> None:
        sound = (rows["age"] >= 0) & (rows["age"] <= 110)
        birth = by_patient(rows["patient_id"][sound], (rows["age"] - rows["t"] / 12)[sound])
        assert np.ptp(birth, axis=0).max() <= 0.1 + 1e-9, "both are rounded to one decimal"

    def test_patients_weigh_about_the_same_at_every_visit_but_for_the_drift(self, rows: Rows) -> None:
        sound = (rows["bmi"] > 10) & (rows["bmi"] < 60)
        first, last = by_patient(rows["patient_id"][sound], (rows["bmi"] - 0.03 * rows["t"])[sound])
        several = first != last
        assert np.std((last - first)[several]) == pytest.approx(0.4 * np.sqrt(2), rel=0.1)
        assert np.mean((last - first)[several]) == pytest.approx(0, abs=0.02)

    def test_visits_counts_the_rows_of_the_year_before(self, rows: Rows) -> None:
        before = np.zeros(1_000_000, dtype=int)
        earlier = []  # rows in files from before the first one
        for t in range(len(clinic.MONTHS)):
            mine = rows["t"] == t
            visits, patients = rows["visits"][mine], rows["patient_id"][mine]
            sound = (visits >= 0) & (visits < 40)
            earlier.append((visits - before[patients])[sound])
            np.add.at(before, patients, 1)
        assert min(map(np.min, earlier)) >= 0
        share = [values.mean() / earlier[0].mean() for values in earlier]
        assert share == pytest.approx((12 - np.arange(12)) / 12, abs=0.05)


class TestClinicsSeries:
    """Each comparison takes away what the recipe explains otherwise, so that what it states for the months is left."""

    def test_prices_rise_by_four_thousandths_a_month(self, rows: Rows) -> None:
        burden = 0.008 * (rows["age"] - 50) + 0.45 * rows["smoker"] + 0.01 * rows["visits"]
        burden = burden + 0.3 * (rows["ward"] == "cardiology")
        sound = (rows["cost"] > 0) & (rows["cost"] < 2000) & (np.abs(rows["age"] - 55) <= 55) & (rows["visits"] >= 0)
        excess = monthly_means(np.log(np.where(sound, rows["cost"], 1)) - burden, sound, rows["t"])
        slope, level = np.polyfit(np.arange(12), excess, 1)
        assert level == pytest.approx(4.9, abs=0.02)
        assert slope == pytest.approx(0.004, abs=0.001)

    def test_smokers_come_less_every_month(self, rows: Rows) -> None:
        share = monthly_means(rows["smoker"], ~np.isnan(rows["smoker"]), rows["t"])
        slope, _ = np.polyfit(np.arange(12), np.log(share / (1 - share)), 1)
        assert slope == pytest.approx(-0.01, abs=0.004)

    def test_systolic_is_highest_in_january(self, rows: Rows) -> None:
        usual = 94 + 0.48 * rows["age"] + 0.9 * (rows["bmi"] - 26) + 4 * rows["smoker"]
        sound = (
            (np.abs(rows["age"] - 55) <= 55) & (np.abs(rows["bmi"] - 35) < 25) & (np.abs(rows["systolic"] - 150) < 80)
        )
        season = monthly_means(rows["systolic"] - usual, sound & ~np.isnan(rows["smoker"]), rows["t"])
        assert season == pytest.approx(2 * np.cos(2 * np.pi * (np.arange(12) - 2) / 12), abs=0.5)

    def test_dermatology_breaks_off_on_the_first_of_may(self, rows: Rows) -> None:
        share = monthly_means(rows["ward"] == "dermatology", rows["ward"] != "", rows["t"])
        assert all(0.15 < s < 0.2 for s in share[:6])
        assert all(0.02 < s < 0.04 for s in share[6:])
        late = (rows["t"] == 6) & (rows["arrival"] < np.datetime64("2026-05-01")) & (rows["arrival"].astype(int) > 0)
        assert 0.1 < (rows["ward"][late] == "dermatology").mean() < 0.3, "late entries are of April"

    def test_no_other_month_breaks_a_column(self, months: Tables) -> None:
        """No mean of a number moves by more than a tenth of its standard deviation from one month to the next."""
        for name in ("age", "bmi", "systolic", "visits", "cost", "smoker"):
            cells = [floats(table, name) for table in months.values()]
            means, spread = [np.nanmean(c) for c in cells], np.nanstd(cells[0])
            assert np.abs(np.diff(means)).max() < 0.1 * spread


class TestDigits:
    def test_there_are_1797_images_of_whole_numbers(self, images: pa.Table) -> None:
        assert images.num_rows == 1797
        assert {field.type for field in images.schema} == {pa.int64()}
        assert sum(column.null_count for column in images.columns) == 0

    def test_pixels_stay_inside_their_bounds_and_digits_are_all_there(self, images: pa.Table) -> None:
        pixels = np.column_stack([images[name].to_numpy() for name in images.column_names[:-1]])
        assert (pixels.min(), pixels.max()) == (0, 16)
        assert set(images["digit"].to_pylist()) == set(range(10))

    def test_pixels_are_named_by_row_then_column(self, images: pa.Table) -> None:
        # The first image is a zero: ink at the top middle, none at the top left.
        assert images["digit"][0].as_py() == 0
        assert [images[f"px0{column}"][0].as_py() for column in range(8)] == [0, 0, 5, 13, 9, 1, 0, 0]
