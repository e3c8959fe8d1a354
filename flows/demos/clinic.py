"""The clinic demo: invented outpatient visits, one file a month from 2025-11 to 2026-10.

No person, place or event in it is real. Month t = 0, 1, ..., 11 has
19,387 + 113 t + U{0, ..., 89} rows. Rows are independent; within a row, and in this
order (N normal, U uniform, B Bernoulli with the logistic function s, age and
bmi as drawn before rounding):

==============  ======================================================================
column          recipe
==============  ======================================================================
sex             f 52 %, m 46 %, x 2 %
age             (101 + 0.2 t) Beta(2.2, 1.8), one decimal
bmi             16 + 0.05 min(age, 60) + Gamma(shape 4, scale 2), one decimal; 6 % missing
smoker          B(s(-1.1 + 0.4 [sex is m] - 0.015 (age - 50) - 0.01 t))
systolic        94 + 0.48 age + 0.9 (bmi - 26) + 4 smoker + 2 cos(2 pi (t - 2) / 12)
                + N(0, 12), whole: highest in January
visits          Poisson(m G), m = exp(0.2 + 0.014 age + 0.35 smoker), G = Gamma(shape 1.4)
                with mean 1 (a negative binomial), at most 40; 8 % missing
ward            the level with the highest score + Gumbel noise: general 1.0,
                cardiology 0.05 (systolic - 125), dermatology 0.2,
                orthopaedics 0.1 (bmi - 26), paediatrics 4 if age < 18, else -9
insurance       likewise: public 3.2, private 1.2 + 0.015 (age - 50), none 0.4 - 0.3 [age < 18]
cost            exp(4.9 + 0.008 (age - 50) + 0.45 smoker + 0.03 visits
                + 0.3 [ward is cardiology] + N(0, 0.65)), two decimals
arrival         day of the month with weight 1 (Monday to Friday), 0.35 (Saturday) or
                0.15 (Sunday); time N(9:30, 75 min) for 60 % and N(14:30, 90 min) for
                the others, to the second, between 6:00 and 22:00
readmitted      yes with B(s(-2.3 + 0.03 (age - 55) + 0.9 smoker
                + 0.022 (systolic - 125) + 0.13 (visits - 3)))
patient_name    "patient" and a number of six digits; dropped by the specification
address         a number of "Example Street"; dropped by the specification
==============  ======================================================================

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

MONTHS = tuple(np.datetime_as_string(np.arange("2025-11", "2026-11", dtype="datetime64[M]")).tolist())
FILE_NAMES = tuple(f"visits-{month}.parquet" for month in MONTHS)

SEXES = np.array(["f", "m", "x"], dtype=object)
WARDS = np.array(["general", "cardiology", "dermatology", "orthopaedics", "paediatrics"], dtype=object)
INSURANCES = np.array(["public", "private", "none"], dtype=object)

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
    for t in range(len(MONTHS)):
        yield month_table(rng, t)


def month_table(rng: np.random.Generator, t: int) -> pa.Table:
    """The visits of month t, dirty cells included."""
    rows = 19_387 + 113 * t + int(rng.integers(90))
    columns = _patients(rng, rows, t)
    columns |= _care(rng, columns)
    columns["arrival"] = _arrivals(rng, rows, t)
    columns["readmitted"] = _readmissions(rng, columns)
    columns |= _identities(rng, rows)
    return _as_table(_patient_record(rng, columns))


def _patients(rng: np.random.Generator, rows: int, t: int) -> dict[str, Values]:
    """Who comes: sex, age, bmi, smoker, systolic, visits."""
    sex = rng.choice(SEXES, rows, p=[0.52, 0.46, 0.02])
    age = ((101 + 0.2 * t) * rng.beta(2.2, 1.8, rows)).clip(0, 110)
    bmi = (16 + 0.05 * age.clip(max=60) + rng.gamma(4, 2, rows)).clip(10, 60)
    smoker = _coin(rng, -1.1 + 0.4 * (sex == "m") - 0.015 * (age - 50) - 0.01 * t)
    season = 2 * np.cos(2 * np.pi * (t - 2) / 12)
    pressure = 94 + 0.48 * age + 0.9 * (bmi - 26) + 4 * smoker + season + rng.normal(0, 12, rows)
    visits = rng.poisson(np.exp(0.2 + 0.014 * age + 0.35 * smoker) * rng.gamma(1.4, 1 / 1.4, rows))
    return {
        "age": age,
        "bmi": bmi,
        "systolic": pressure.round().clip(70, 230),
        "visits": visits.clip(max=40),
        "smoker": smoker,
        "sex": sex,
    }


def _care(rng: np.random.Generator, patients: dict[str, Values]) -> dict[str, Values]:
    """What they get: ward, insurance, cost."""
    age, smoker = patients["age"], patients["smoker"]
    child = age < 18
    ward = _choice(
        rng,
        WARDS,
        [1.0, 0.05 * (patients["systolic"] - 125), 0.2, 0.1 * (patients["bmi"] - 26), np.where(child, 4.0, -9.0)],
    )
    insurance = _choice(rng, INSURANCES, [3.2, 1.2 + 0.015 * (age - 50), 0.4 - 0.3 * child])
    burden = 0.008 * (age - 50) + 0.45 * smoker + 0.03 * patients["visits"] + 0.3 * (ward == "cardiology")
    cost = np.exp(4.9 + burden + rng.normal(0, 0.65, age.size)).round(2).clip(0, 5000)
    return {"ward": ward, "insurance": insurance, "cost": cost}


def _arrivals(rng: np.random.Generator, rows: int, t: int) -> Values:
    """Times of arrival in month t, UTC: mostly on weekdays, in the morning or the afternoon."""
    month = np.datetime64(MONTHS[t], "M")
    days = np.arange(month, month + 1, dtype="datetime64[D]")
    weekday = (days.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday; Monday is 0
    weights = np.select([weekday < 5, weekday == 5], [1.0, 0.35], 0.15)
    day = rng.choice(days, rows, p=weights / weights.sum())
    morning = rng.random(rows) < 0.6
    minutes = rng.normal(np.where(morning, 570, 870), np.where(morning, 75, 90)).clip(360, 1320)
    arrivals: Values = day.astype("datetime64[us]") + (minutes * 60).astype("timedelta64[s]")
    return arrivals


def _readmissions(rng: np.random.Generator, columns: dict[str, Values]) -> Values:
    """The label: whether the patient came back soon."""
    risk = 0.03 * (columns["age"] - 55) + 0.9 * columns["smoker"]
    risk = risk + 0.022 * (columns["systolic"] - 125) + 0.13 * (columns["visits"] - 3)
    return np.where(_coin(rng, risk - 2.3), "yes", "no").astype(object)


def _identities(rng: np.random.Generator, rows: int) -> dict[str, Values]:
    """Plainly invented names and addresses, there only to be dropped."""
    names = [f"patient {number:06d}" for number in rng.integers(1_000_000, size=rows)]
    addresses = [f"{number} Example Street" for number in rng.integers(1, 1000, size=rows)]
    return {"patient_name": np.array(names, dtype=object), "address": np.array(addresses, dtype=object)}


def _patient_record(rng: np.random.Generator, columns: dict[str, Values]) -> dict[str, tuple[Values, Values]]:
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
