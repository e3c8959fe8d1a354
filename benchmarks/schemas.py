"""Public schemas of the data sets: bounds and categories from their documentation, never from their rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpcore.records.schema import Column, IntervalColumn, Kind, NominalColumn, Role

UNKNOWN = "unknown"


def _number(name: str, lower: float, upper: float, role: Role = Role.FEATURE) -> IntervalColumn:
    return IntervalColumn(name=name, kind=Kind.NUMERIC, lower=lower, upper=upper, role=role)


def _whole(name: str, lower: float, upper: float, role: Role = Role.FEATURE) -> IntervalColumn:
    return IntervalColumn(name=name, kind=Kind.INTEGER, lower=lower, upper=upper, role=role)


def _nominal(name: str, levels: Iterable[str], role: Role = Role.FEATURE) -> NominalColumn:
    return NominalColumn(name=name, kind=Kind.CATEGORICAL, levels=tuple(levels), role=role)


def _label(name: str, levels: Iterable[str]) -> NominalColumn:
    return _nominal(name, levels, Role.LABEL)


def _words(text: str) -> list[str]:
    return text.split()


def _codes(first: int, last: int) -> list[str]:
    return [str(code) for code in range(first, last + 1)]


def _pixels(side: int, upper: float) -> list[Column]:
    return [_number(f"px{row:02d}_{column:02d}", 0, upper) for row in range(side) for column in range(side)]


COUNTRIES = _words(
    "United-States Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany "
    "Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan Laos "
    "Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan "
    "Thailand Trinadad&Tobago Vietnam Yugoslavia"
)

ADULT: tuple[Column, ...] = (
    _whole("age", 17, 90),
    _whole("education_num", 1, 16),
    _whole("capital_gain", 0, 99_999),
    _whole("capital_loss", 0, 4_356),
    _whole("hours_per_week", 1, 99),
    _nominal(
        "workclass",
        _words(
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked unknown"
        ),
    ),
    _nominal(
        "marital_status",
        _words("Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"),
    ),
    _nominal(
        "occupation",
        _words(
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
            "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
            "Armed-Forces unknown"
        ),
    ),
    _nominal("relationship", _words("Wife Own-child Husband Not-in-family Other-relative Unmarried")),
    _nominal("race", _words("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black")),
    _nominal("sex", _words("Female Male")),
    _nominal("native_country", [*COUNTRIES, UNKNOWN]),
    _label("income", ["<=50K", ">50K"]),
)

BANK: tuple[Column, ...] = (
    _whole("age", 18, 95),
    _nominal(
        "job",
        _words(
            "admin. blue-collar entrepreneur housemaid management retired self-employed services student technician "
            "unemployed unknown"
        ),
    ),
    _nominal("marital", _words("divorced married single")),
    _nominal("education", _words("primary secondary tertiary unknown")),
    _nominal("default", _words("no yes")),
    _whole("balance", -10_000, 110_000),
    _nominal("housing", _words("no yes")),
    _nominal("loan", _words("no yes")),
    _nominal("contact", _words("cellular telephone unknown")),
    _whole("day", 1, 31),
    _nominal("month", _words("jan feb mar apr may jun jul aug sep oct nov dec")),
    _whole("duration", 0, 5_000),
    _whole("campaign", 1, 63),
    _whole("pdays", -1, 900),
    _whole("previous", 0, 300),
    _nominal("poutcome", _words("failure other success unknown")),
    _label("y", _words("no yes")),
)

MONTHS_BACK = (0, 2, 3, 4, 5, 6)
CREDIT: tuple[Column, ...] = (
    _whole("limit_bal", 0, 1_000_000),
    _nominal("sex", _codes(1, 2)),
    _nominal("education", _codes(0, 6)),
    _nominal("marriage", _codes(0, 3)),
    _whole("age", 18, 80),
    *(_whole(f"pay_{month}", -2, 9) for month in MONTHS_BACK),
    *(_whole(f"bill_amt{month}", -350_000, 1_700_000) for month in range(1, 7)),
    *(_whole(f"pay_amt{month}", 0, 1_700_000) for month in range(1, 7)),
    _label("default_payment_next_month", _codes(0, 1)),
)

ACS_FEATURES: tuple[Column, ...] = (
    _whole("agep", 0, 99),
    _nominal("sex", _codes(1, 2)),
    _nominal("msp", [*_codes(1, 6), UNKNOWN]),
    _nominal("hisp", _codes(0, 4)),
    _nominal("rac1p", _codes(1, 9)),
    _whole("noc", 0, 14),
    _whole("npf", 0, 20),
    _nominal("housing_type", _codes(1, 3)),
    _nominal("own_rent", _codes(0, 2)),
    _number("density", 0, 60_000),
    _nominal("indp_cat", [*_codes(0, 18), UNKNOWN]),
    _nominal("edu", [*_codes(1, 12), UNKNOWN]),
    _whole("povpip", 0, 501),
    _nominal("dvet", [*_codes(1, 6), UNKNOWN]),
    _nominal("drem", [*_codes(1, 2), UNKNOWN]),
    _nominal("dphy", [*_codes(1, 2), UNKNOWN]),
    _nominal("deye", _codes(1, 2)),
    _nominal("dear", _codes(1, 2)),
)
"""Columns of the NIST excerpts; `povpip` (income over the poverty line) is dropped if income is the target."""

ACS: tuple[Column, ...] = (*ACS_FEATURES, _label("income", ["lower", "upper"]))
SDNIST: tuple[Column, ...] = (
    _whole("agep", 0, 99),
    _nominal("sex", _codes(1, 2)),
    _nominal("msp", [*_codes(1, 6), "N"]),
    _nominal("rac1p", _codes(1, 9)),
    _nominal("housing_type", _codes(1, 3)),
    _nominal("own_rent", _codes(0, 2)),
    _nominal("edu", [*_codes(1, 12), "N"]),
    _nominal("pincp_decile", [*_codes(0, 9), "N"]),
    _nominal("dvet", [*_codes(1, 6), "N"]),
    _nominal("deye", _codes(1, 2)),
)
"""Ten columns of the national excerpt, with `N` where a question does not apply, as SDNist writes them."""

SDNIST_RULES: list[Any] = [
    {"not_applicable": {"when": "agep < 15", "columns": {"msp": "N", "pincp_decile": "N"}}},
    {"not_applicable": {"when": "agep < 3", "columns": {"edu": "N"}}},
    {"implies": ["agep < 5", "edu IN ('N', '1', '2', '3', '4')"]},
    {"implies": ["agep < 15", "edu <> '12'"]},
    {"implies": ["agep < 17", "dvet = 'N'"]},
    {"not_applicable": {"when": "housing_type <> '1'", "columns": {"own_rent": "0"}}},
]
"""What the survey's form says about these columns; it includes all of SDNist's rules about them.

Who is under 15 is not asked about marriage and income, who is under 3 not about school, and who is under 17 not about
service in the forces; group quarters are neither owned nor rented. SDNist itself asks for less: nothing of people of 15
and more, and disability by service only of those under 15.
"""

INCOME_TOP = 200_000
"""Upper bound to which incomes are clamped in the regression, in training and test rows alike."""

ACS_INCOME: tuple[Column, ...] = (
    *(column for column in ACS_FEATURES if column.name != "povpip"),
    _whole("pincp", 0, INCOME_TOP, Role.TARGET),
)

COVERTYPE: tuple[Column, ...] = (
    _whole("elevation", 1_800, 4_000),
    _whole("aspect", 0, 360),
    _whole("slope", 0, 90),
    _whole("horizontal_distance_to_hydrology", 0, 1_400),
    _whole("vertical_distance_to_hydrology", -200, 700),
    _whole("horizontal_distance_to_roadways", 0, 7_200),
    _whole("hillshade_9am", 0, 255),
    _whole("hillshade_noon", 0, 255),
    _whole("hillshade_3pm", 0, 255),
    _whole("horizontal_distance_to_fire_points", 0, 7_200),
    _nominal("wilderness_area", _codes(1, 4)),
    _nominal("soil_type", _codes(1, 40)),
    _label("cover_type", _codes(1, 7)),
)

HOUSING: tuple[Column, ...] = (
    _number("med_inc", 0, 15),
    _number("house_age", 0, 52),
    _number("ave_rooms", 0, 15),
    _number("ave_bedrms", 0, 3),
    _number("population", 0, 6_000),
    _number("ave_occup", 0, 8),
    _number("latitude", 32, 42),
    _number("longitude", -125, -114),
    _number("med_house_val", 0, 5, Role.TARGET),
)

GFE_BOUNDS = {"x": (0.0, 640.0), "y": (0.0, 480.0), "z": (0.0, 2_000.0)}
"""Coordinates of a facial point: pixels in the picture, and the distance in millimetres."""

GFE: tuple[Column, ...] = (
    *(_number(f"p{point:02d}_{axis}", *GFE_BOUNDS[axis]) for point in range(100) for axis in "xyz"),
    _label("label", _codes(0, 1)),
)

WAVEFORM: tuple[Column, ...] = (
    *(_number(f"x{i}", -4, 10) if i <= 21 else _number(f"x{i}", -4, 4) for i in range(1, 41)),
    _label("label", _codes(0, 2)),
)
"""Bounds of a triangle of height 6 plus unit noise in the first 21 columns, and of unit noise in the others."""

MNIST: tuple[Column, ...] = (*_pixels(28, 255), _label("label", _codes(0, 9)))
SEMEION: tuple[Column, ...] = (*_pixels(16, 1), _label("label", _codes(0, 9)))
DIGITS: tuple[Column, ...] = (*_pixels(8, 16), _label("label", _codes(0, 9)))
