"""The clinic demo: invented outpatient visits, one file a month from 2025-11 to 2026-10.

No person, place or event in it is real. The clinic has 60,000 patients. They are
independent, and drawn once, in this order (N normal, U uniform, B Bernoulli with the
logistic function s):

==============  ======================================================================
of a patient    recipe
==============  ======================================================================
sex             f 52 %, m 46 %, x 2 %
age             101 Beta(2.2, 1.8), on the first of November 2025
bmi             16 + 0.05 min(age, 60) + Gamma(shape 4, scale 2)
smoker          B(s(-1.1 + 0.4 [sex is m] - 0.015 (age - 50)))
insurance       the level with the highest score + Gumbel noise: public 3.2,
                private 1.2 + 0.015 (age - 50), none 0.4 - 0.3 [age < 18]
chronic         B(s(-3.3 + 0.02 (age - 50))): 4 to 5 %
rate            m G + 18 [chronic], m = exp(0.6 + 0.006 age + 0.35 smoker),
                G = Gamma(shape 1.4) with mean 1
pressure        N(0, 9): how far systolic lies above that of similar patients
patient_id      a number of six digits, another for each patient
patient_name    "patient" and the patient_id; dropped by the specification
address         a number of "Example Street"; dropped by the specification
==============  ======================================================================

Month t = 0, 1, ..., 11 has 19,387 + 113 t + U{0, ..., 89} rows. Each is a visit of a
patient who is drawn with probability proportional to rate exp(-0.01 t [smoker]). So
about 14,000 patients come in a month, a quarter of them several times, and chronic
patients come in ten of the twelve months. Sex, smoker, insurance, patient_id,
patient_name and address are the patient's; the other columns are, with
w = cos(2 pi (t - 2) / 12):

==============  ======================================================================
of a visit      recipe
==============  ======================================================================
age             the patient's + t / 12, one decimal
bmi             the patient's + 0.03 t + N(0, 0.4), one decimal; 6 % missing
visits          the patient's rows in the twelve files before (a file before 2025-11
                has Poisson(19,000 rate / sum of all rates) rows of the patient), at
                most 40; 8 % missing
systolic        94 + 0.48 age + 0.9 (bmi - 26) + 4 smoker + 2 w + pressure + N(0, 8),
                whole
arrival         day of the month with weight 1 (Monday to Friday), 0.35 (Saturday) or
                0.15 (Sunday), or with probability 1 % one of the seven days before
                the month; time N(9:30, 75 min) for 60 % and N(14:30, 90 min) for the
                others, to the second, between 6:00 and 22:00
ward            the level with the highest score + Gumbel noise: general 1 + 0.3 w,
                cardiology 0.05 (systolic - 125), dermatology 0.2 (from 2026-05-01 on
                -2), orthopaedics 0.1 (bmi - 26), paediatrics 4 if age < 18, else -9
cost            exp(4.9 + 0.004 t + 0.008 (age - 50) + 0.45 smoker + 0.01 visits
                + 0.3 [ward is cardiology] + N(0, 0.65)), two decimals
readmitted      yes with B(s(-2.65 + 0.03 (age - 55) + 0.9 smoker
                + 0.022 (systolic - 125) + 0.06 (visits - 6)))
==============  ======================================================================

Age and bmi enter the formulas as drawn before rounding. So the months of a series
differ in four ways:

- drift: patients grow older and heavier, smokers come less, and prices rise by 0.4 %
  a month;
- a season: systolic and the share of the general ward are highest in January;
- one break: from May 2026 on, dermatology treats referrals only, and its share falls
  from one visit in six to one in thirty;
- late entries: one row in a hundred belongs to the month before that of its file.

Values are clipped to the specification's bounds, and missing cells are missing at
random. Last, one row in 2,500 a column gets a dirty cell (`DIRT`): outside the
bounds, an undeclared category or null. So about 0.4 % of the rows are dirty.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Values = NDArray[Any]
Columns = dict[str, Values]

MONTHS = tuple(np.datetime_as_string(np.arange("2025-11", "2026-11", dtype="datetime64[M]")).tolist())
FILE_NAMES = tuple(f"visits-{month}.parquet" for month in MONTHS)

PATIENTS = 60_000
LATE_SHARE = 0.01
REFERRALS_ONLY = np.datetime64("2026-05-01", "D")
"""The break: from this day on, dermatology treats few patients."""

SEXES = np.array(["f", "m", "x"], dtype=object)
WARDS = np.array(["general", "cardiology", "dermatology", "orthopaedics", "paediatrics"], dtype=object)
INSURANCES = np.array(["public", "private", "none"], dtype=object)

OF_A_PATIENT = ("sex", "smoker", "insurance", "patient_id", "patient_name", "address")
"""The columns that are the same in all visits of a patient, but for dirty cells."""

MISSING_SHARES = {"bmi": 0.06, "visits": 0.08}

DIRTY_SHARE = 1 / 2500
DIRT: dict[str, tuple[object, ...]] = {
    "age": (-1.0, 199.0),
    "bmi": (0.0, 264.0),
    "systolic": (0.0, 999.0),
    "visits": (-1, 99),
    "cost": (-50.0, 99_999.0),
    "arrival": (None, np.datetime64("1970-01-01T00:00:00", "us")),
    "smoker": (None,),
    "sex": (None, "unknown"),
    "insurance": (None, "unknown"),
    "ward": (None, "unknown"),
}
"""What a dirty cell of a column holds, each alternative equally likely."""


def specification() -> str:
    """The text of the demo's release.yaml."""
    return resources.files(__package__).joinpath("clinic.yaml").read_text(encoding="utf-8")


def tables(rng: np.random.Generator) -> Iterator[pa.Table]:
    """The monthly tables, in the order of `FILE_NAMES`."""
    patients = _patients(rng)
    usual = 19_000 * patients["rate"] / patients["rate"].sum()
    year = [rng.poisson(usual) for _ in MONTHS]  # each patient's visits in the twelve months before
    for t in range(len(MONTHS)):
        weights = np.cumsum(patients["rate"] * np.exp(-0.01 * t * patients["smoker"]))
        rows = 19_387 + 113 * t + int(rng.integers(90))
        who = np.searchsorted(weights, rng.random(rows) * weights[-1], side="right")
        visits = _visits(rng, {name: values[who] for name, values in patients.items()}, sum(year)[who], t)
        yield _as_table(_patient_record(rng, visits))
        year = [*year[1:], np.bincount(who, minlength=PATIENTS)]


def _patients(rng: np.random.Generator) -> Columns:
    """Who may come, as they are on the first day, and how often each comes."""
    sex = rng.choice(SEXES, PATIENTS, p=[0.52, 0.46, 0.02])
    age = 101 * rng.beta(2.2, 1.8, PATIENTS)
    bmi = 16 + 0.05 * age.clip(max=60) + rng.gamma(4, 2, PATIENTS)
    smoker = _coin(rng, -1.1 + 0.4 * (sex == "m") - 0.015 * (age - 50))
    insurance = _choice(rng, INSURANCES, [3.2, 1.2 + 0.015 * (age - 50), 0.4 - 0.3 * (age < 18)])
    chronic = _coin(rng, -3.3 + 0.02 * (age - 50))
    rate = np.exp(0.6 + 0.006 * age + 0.35 * smoker) * rng.gamma(1.4, 1 / 1.4, PATIENTS) + 18 * chronic
    pressure = rng.normal(0, 9, PATIENTS)
    numbers = 100_000 + rng.permutation(900_000)[:PATIENTS]
    places = rng.integers(1, 1000, size=PATIENTS)
    return {
        "sex": sex,
        "age": age,
        "bmi": bmi,
        "smoker": smoker,
        "insurance": insurance,
        "rate": rate,
        "pressure": pressure,
        "patient_id": numbers,
        "patient_name": np.array([f"patient {number}" for number in numbers], dtype=object),
        "address": np.array([f"{place} Example Street" for place in places], dtype=object),
    }


def _visits(rng: np.random.Generator, patients: Columns, visits: Values, t: int) -> Columns:
    """The rows of month t, given each row's patient and how often this patient came in the year before."""
    winter = np.cos(2 * np.pi * (t - 2) / 12)
    age = (patients["age"] + t / 12).clip(0, 110)
    bmi = (patients["bmi"] + 0.03 * t + rng.normal(0, 0.4, age.size)).clip(10, 60)
    pressure = 94 + 0.48 * age + 0.9 * (bmi - 26) + 4 * patients["smoker"] + 2 * winter + patients["pressure"]
    columns = {name: patients[name] for name in OF_A_PATIENT} | {
        "age": age,
        "bmi": bmi,
        "visits": visits.clip(max=40),
        "systolic": (pressure + rng.normal(0, 8, age.size)).round().clip(70, 230),
        "arrival": _arrivals(rng, age.size, t),
    }
    columns["ward"] = _wards(rng, columns, winter)
    columns["cost"] = _costs(rng, columns, t)
    columns["readmitted"] = _readmissions(rng, columns)
    return columns


def _arrivals(rng: np.random.Generator, rows: int, t: int) -> Values:
    """Times of arrival in month t, UTC: mostly on weekdays, in the morning or the afternoon; some entered late."""
    month = np.datetime64(MONTHS[t], "M")
    days = np.arange(month, month + 1, dtype="datetime64[D]")
    weekday = (days.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday; Monday is 0
    weights = np.select([weekday < 5, weekday == 5], [1.0, 0.35], 0.15)
    day = rng.choice(days, rows, p=weights / weights.sum())
    day = np.where(rng.random(rows) < LATE_SHARE, days[0] - rng.integers(1, 8, rows), day)
    morning = rng.random(rows) < 0.6
    minutes = rng.normal(np.where(morning, 570, 870), np.where(morning, 75, 90)).clip(360, 1320)
    arrivals: Values = day.astype("datetime64[us]") + (minutes * 60).astype("timedelta64[s]")
    return arrivals


def _wards(rng: np.random.Generator, columns: Columns, winter: float) -> Values:
    """Where each visit takes place."""
    scores: dict[str, float | Values] = {
        "general": 1.0 + 0.3 * winter,
        "cardiology": 0.05 * (columns["systolic"] - 125),
        "dermatology": np.where(columns["arrival"] < REFERRALS_ONLY, 0.2, -2.0),
        "orthopaedics": 0.1 * (columns["bmi"] - 26),
        "paediatrics": np.where(columns["age"] < 18, 4.0, -9.0),
    }
    return _choice(rng, WARDS, [scores[ward] for ward in WARDS])


def _costs(rng: np.random.Generator, columns: Columns, t: int) -> Values:
    """What each visit costs, in euros."""
    burden = 0.008 * (columns["age"] - 50) + 0.45 * columns["smoker"] + 0.01 * columns["visits"]
    burden = burden + 0.3 * (columns["ward"] == "cardiology") + 0.004 * t
    costs: Values = np.exp(4.9 + burden + rng.normal(0, 0.65, burden.size)).round(2).clip(0, 2000)
    return costs


def _readmissions(rng: np.random.Generator, columns: Columns) -> Values:
    """The label: whether the patient came back soon."""
    risk = 0.03 * (columns["age"] - 55) + 0.9 * columns["smoker"]
    risk = risk + 0.022 * (columns["systolic"] - 125) + 0.06 * (columns["visits"] - 6)
    return np.where(_coin(rng, risk - 2.65), "yes", "no").astype(object)


def _patient_record(rng: np.random.Generator, columns: Columns) -> dict[str, tuple[Values, Values]]:
    """The columns as a clerk would have typed them: rounded, some missing, a few wrong; with masks of null."""
    typed = columns | {"age": columns["age"].round(1), "bmi": columns["bmi"].round(1)}
    recorded = {}
    for name, values in typed.items():
        null = rng.random(values.size) < MISSING_SHARES.get(name, 0.0)
        recorded[name] = _add_dirt(rng, values, null, DIRT[name]) if name in DIRT else (values, null)
    return recorded


def _add_dirt(
    rng: np.random.Generator, values: Values, null: Values, dirt: tuple[object, ...]
) -> tuple[Values, Values]:
    """The values and the mask of null after a few cells have gone wrong."""
    values, null = values.copy(), null.copy()
    which = np.where(rng.random(values.size) < DIRTY_SHARE, rng.integers(len(dirt), size=values.size), -1)
    for index, wrong in enumerate(dirt):
        hit = which == index
        null[hit] = wrong is None
        if wrong is not None:
            values[hit] = wrong
    return values, null


def _coin(rng: np.random.Generator, log_odds: Values) -> Values:
    """One Bernoulli draw a row with these log-odds."""
    return rng.random(log_odds.size) < 1 / (1 + np.exp(-log_odds))


def _choice(rng: np.random.Generator, levels: Values, scores: list[float | Values]) -> Values:
    """One level a row, with probabilities proportional to exp(score) (the Gumbel-max trick)."""
    table = np.stack(np.broadcast_arrays(*scores))
    chosen: Values = levels[np.argmax(table + rng.gumbel(size=table.shape), axis=0)]
    return chosen


def _as_table(columns: dict[str, tuple[Values, Values]]) -> pa.Table:
    """The Arrow table in the order of its schema."""
    import pyarrow as pa

    schema = _arrow_schema()
    return pa.table(
        [pa.array(columns[field.name][0], field.type, mask=columns[field.name][1]) for field in schema],
        schema=schema,
    )


def _arrow_schema() -> pa.Schema:
    """The columns and types of every monthly file."""
    import pyarrow as pa

    return pa.schema(
        {
            "patient_id": pa.int64(),
            "patient_name": pa.string(),
            "address": pa.string(),
            "age": pa.float64(),
            "bmi": pa.float64(),
            "systolic": pa.float64(),
            "visits": pa.int64(),
            "cost": pa.float64(),
            "arrival": pa.timestamp("us", tz="UTC"),
            "smoker": pa.bool_(),
            "sex": pa.string(),
            "insurance": pa.string(),
            "ward": pa.string(),
            "readmitted": pa.string(),
        }
    )
