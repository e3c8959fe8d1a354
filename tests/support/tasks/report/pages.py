"""Report pages: records that carry hostile text, and a page as a reader parses it."""

from __future__ import annotations

import math
import random
from datetime import date
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np

from dpcore.evaluation.goodness_of_fit import Gaps

HOSTILE = "<script>alert('x')</script> & \"q\" $\\frac{1}{0$ --> ]]>"


# -- a realistic record ------------------------------------------------------------


def bell(low: float, high: float, mean: float, sd: float, bins: int = 20) -> dict[str, Any]:
    edges = [low + (high - low) * i / bins for i in range(bins + 1)]
    centres = [(a + b) / 2 for a, b in pairwise(edges)]
    weights = [math.exp(-0.5 * ((x - mean) / sd) ** 2) for x in centres]
    return {
        "mean": mean,
        "sd": sd,
        "missing_share": 0.0,
        "edges": edges,
        "shares": [w / sum(weights) for w in weights],
    }


def interval(
    name: str, low: float, high: float, mean: float, sd: float, *, kind: str = "numeric", **more: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "role": "feature",
        "measured": {"mean": mean + sd / 25, "mean_margin": sd / 15, "sd": sd * 1.04},
        "synthetic": bell(low, high, mean, sd),
        "measured_missing_share": None,
        **more,
    }


def nominal(
    name: str, levels: list[Any], shares: list[float], *, kind: str = "categorical", **more: Any
) -> dict[str, Any]:
    noisy = [share + 0.01 * (-1) ** i for i, share in enumerate(shares)]
    return {
        "name": name,
        "kind": kind,
        "role": "feature",
        "levels": levels,
        "measured": {"shares": noisy, "margins": [0.015] * len(shares)},
        "synthetic": {"shares": shares},
        **more,
    }


def days(year: int, month: int, day: int) -> float:
    return float((date(year, month, day) - date(1970, 1, 1)).days)


def clinic_columns() -> list[dict[str, Any]]:
    micro = 86_400e6
    weight = interval("weight_kg", 30, 180, 74.2, 15.1, measured_missing_share=0.041)
    weight["synthetic"]["missing_share"] = 0.037
    return [
        interval("age", 0, 100, 45.0, 18.1, kind="integer"),
        nominal("sex", ["f", "m", "x"], [0.52, 0.46, 0.02]),
        weight,
        interval("systolic", 70, 220, 128.0, 17.0, kind="integer"),
        interval("cholesterol", 2, 12, 5.3, 1.1),
        interval("income", 0, 250_000, 48_000, 31_000),
        nominal("smoker", ["never", "former", "current", "(missing)"], [0.55, 0.24, 0.15, 0.06]),
        nominal("insured", ["false", "true"], [0.09, 0.91], kind="boolean"),
        interval("visit_date", days(2026, 10, 1), days(2026, 11, 1), days(2026, 10, 14), 8.0, kind="date"),
        interval(
            "last_seen",
            days(2016, 1, 1) * micro,
            days(2026, 11, 1) * micro,
            days(2023, 5, 4) * micro,
            700 * micro,
            kind="timestamp",
        ),
        nominal(
            "department",
            [
                "cardiology",
                "dermatology",
                "ear, nose and throat",
                "general",
                "neurology",
                "orthopaedics",
                "paediatrics",
            ],
            [0.14, 0.11, 0.07, 0.33, 0.09, 0.16, 0.10],
        ),
        nominal("readmitted", ["no", "yes"], [0.88, 0.12], role="label"),
    ]


def correlation(names: list[str], seed: int = 7) -> dict[str, Any]:
    draw = random.Random(seed)  # noqa: S311
    size = len(names)
    measured = [[0.0] * size for _ in range(size)]
    for i in range(size):
        measured[i][i] = 1.0
        for j in range(i):
            measured[i][j] = measured[j][i] = max(-1.0, min(1.0, draw.gauss(0, 0.35)))
    synthetic = [[v if i == j else 0.9 * v + 0.01 for j, v in enumerate(row)] for i, row in enumerate(measured)]
    return {"names": names, "measured": measured, "synthetic": synthetic}


CLINIC_NAMES = [
    "age", "sex = f", "sex = m", "sex = x", "weight_kg", "systolic", "cholesterol", "income", "smoker = never",
    "smoker = former", "smoker = current", "insured", "visit_date", "last_seen",
]  # fmt: skip


def spectrum(labels: list[str], size: int = 12) -> dict[str, Any]:
    values = [0.6 * 0.52**i - 0.0016 for i in range(size)]
    return {
        "blocks": [{"label": label, "eigenvalues": [v / (1 + k) for v in values]} for k, label in enumerate(labels)],
        "noise_level": 0.004,
    }


def clinic_record() -> dict[str, Any]:
    """The record of a first release of twelve columns with a label."""
    return {
        "record_version": 1,
        "release_id": "clinic-visits-2026-11-1",
        "name": "clinic-visits",
        "period": "2026-11",
        "sequence": 1,
        "supersedes": None,
        "reason": None,
        "created_at": "2026-11-16T06:00:00Z",
        "flow_run_id": "5f0c9a0e-3f0f-4c6b-9d62-1f7bb3b1b9aa",
        "privacy": {
            "population": "clinic-patients",
            "unit": "row",
            "neighbours": "replace-one",
            "epsilon": 1.0,
            "delta": 0.0,
            "delta_num": 1e-12,
            "guarantee": [
                "Whatever anyone learns from this release, they would have learned almost the same had any one row "
                "been another: the chance of any conclusion changes by a factor of at most 2.72.",
                "This holds against every attacker, whatever else they know, now and later.",
                "It protects one row; a person with several rows is protected less.",
            ],
            "measurements": [
                {
                    "name": "moments",
                    "mechanism": "wishart-difference-trace",
                    "status": "proved",
                    "epsilon": 0.9,
                    "rho": None,
                    "delta_num": 1e-12,
                    "parameters": {"degrees": 14},
                    "ledger_entry": {"seq": 3, "hash": "3b" * 32},
                    "build": {
                        "code_digest": "5e" * 32,
                        "attack": {"claimed": 2.0, "measured": 0.7159, "draws": 2000, "error": 1e-6},
                        "noise": {"share": 1.0123},
                        "replay": {"largest_share": 0.9948},
                        "holds": True,
                    },
                },
                {
                    "name": "count",
                    "mechanism": "discrete-laplace",
                    "status": "proved",
                    "epsilon": 0.1,
                    "rho": None,
                    "delta_num": 0.0,
                    "parameters": {},
                    "ledger_entry": {"seq": 4, "hash": "4c" * 32},
                },
            ],
        },
        "budget": {
            "lifetime": {"epsilon": 12.0, "delta": 0.0, "delta_num": 1e-9},
            "before": {"epsilon": 2.0, "delta": 0.0, "delta_num": 2e-12},
            "after": {"epsilon": 3.0, "delta": 0.0, "delta_num": 3e-12},
            "releases_left": 9,
        },
        "model": {
            "projection": {"kind": "ron", "dimension": 12, "encoded_width": 19, "seed": "5e" * 32},
            "generator": "mixture",
            "mechanism": "wishart-difference-trace",
            "count_weight": 0.44,
            "classes": ["no", "yes"],
            "sampling_seed": "7a" * 32,
            "reasons": [
                "A random orthonormal projection costs no budget; a private PCA would take half of it at this epsilon.",
                "The mixture generator keeps the class blocks apart, because a label is declared.",
            ],
        },
        "rows": 39876,
        "noisy_count": 39876.4,
        "expected_rows": 40000,
        "numerics": {"grid_bits": 16, "method": "certified-balls", "output_step": "2^-20"},
        "utility": {
            "columns": clinic_columns(),
            "correlation": correlation(CLINIC_NAMES),
            "spectrum": spectrum(["no", "yes"]),
            "metrics": {"mean_gap": 0.01, "correlation_gap": 0.05, "category_gap": 0.004, "signal_to_noise": 12.0},
        },
        "checks": [
            {"name": "mean_gap", "value": 0.01, "threshold": 0.05, "ok": True},
            {"name": "correlation_gap", "value": 0.05, "threshold": 0.1, "ok": True},
            {"name": "category_gap", "value": 0.004, "threshold": 0.02, "ok": True},
            {"name": "signal_to_noise", "value": 12.0, "threshold": None, "ok": True},
        ],
        "limits": [
            "Only means, variances and pairwise correlations were measured; all else is the model's.",
            "Rare levels, with a share below about 1.5 %, are within the noise.",
            "Standard errors computed from the synthetic rows ignore the noise and are too small.",
        ],
        "software": {"dprelease": "0.1.0", "numpy": "2.4.6", "scipy": "1.17.0", "opendp": "0.16.0", "python": "3.11.7"},
        "ledger": {"head": "9f" * 32, "entries": 5},
    }


def hostile(value: Any) -> Any:
    """The record with every text replaced or extended by markup and mathematics."""
    if isinstance(value, dict):
        return {
            key: hostile(item) if key not in {"kind", "role", "created_at"} else item for key, item in value.items()
        }
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE + value if isinstance(value, str) else value


# -- reading the page --------------------------------------------------------------

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Reads a page as a browser would, and fails on tags that do not close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def named(self, *names: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag in names]

    def text(self, *skipped: str) -> str:
        return " ".join(" ".join(text for tag, text in self.texts if tag not in {"style", *skipped}).split())

    def headings(self, tag: str) -> list[str]:
        return [text.strip() for inside, text in self.texts if inside == tag and text.strip()]


def gaps(sizes: list[float]) -> dict[str, Any]:
    """Gaps of so many standard deviations, by the names of their sizes."""
    names = [f"age × {size:g}" for size in sizes]
    return Gaps(names, np.zeros(len(sizes)), np.array(sizes), np.ones(len(sizes))).as_json()


def checked_record() -> dict[str, Any]:
    """A release whose fit is known, and which bought two scores."""
    record = clinic_record()
    accuracy = {"name": "accuracy", "of": "readmitted", "value": 0.8213, "low": 0.8111, "high": 0.8315}
    error = {"name": "rmse", "of": "cost", "value": 412.0, "low": 401.0, "high": 423.0}
    record["utility"] |= {
        "fit": {"columns": gaps([0.2, -1.1, 0.4]), "pairs": gaps([0.1, 1.2, -1.7, 7.5])},
        "coverage": {"found": 11, "of": 12, "share": 11 / 12, "missing": ["ward = dermatology"]},
        "scores": [
            accuracy | {"on_synthetic": 0.8377, "direction": "at-least"},
            error | {"on_synthetic": 398.0, "direction": "at-most"},
        ],
    }
    record["privacy"]["measurements"].append(
        record["privacy"]["measurements"][-1] | {"name": "accuracy", "ledger_entry": {"seq": 77, "hash": "4c" * 32}}
    )
    record["checks"] += [
        {"name": "accuracy", "value": 0.8213, "threshold": 0.75, "direction": "at-least", "ok": True},
        {"name": "rmse", "value": 412.0, "threshold": None, "direction": "at-most", "ok": True},
    ]
    return record
