"""What the clinic demo's releases keep of its visits, under different models.

    python -m benchmarks.clinic [--runs 12]

Each run releases one month of the demo under each model, with the specification's budget and unit, and compares the
synthetic rows with the real ones of the month; these count 1/k where their patient has k, as in the release. The
visits are invented, so that the comparison costs nothing. Printed are means and 95 % intervals over the months:

- mean gap: between the means of numbers, in per cent of the range; the average over columns
- share gap: between the shares of levels, in points; the average over levels
- correlations: root mean square of the differences over all pairs of columns and levels
- columns: total variation between the histograms of a number in twenty cells; the average over columns
- LR, HGB: AUC on the real rows of logistic regression and boosting that learnt `readmitted` from synthetic ones; the
  last line learns from the real rows of the month before
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.common import arguments, show, write_results
from benchmarks.repeated import Runs, Scores
from flows.demos import clinic, write_demo
from flows.recipe import release_directly
from tasks.release.context import RunRequest
from tasks.workspace.folders import Workspace

MODELS: dict[str, dict[str, Any]] = {
    "auto": {"projection": {"kind": "auto"}},
    "none, mixture": {"projection": {"kind": "none"}, "generator": "mixture"},
    "ron, auto": {"projection": {"kind": "ron"}},
    "ron, 12 of 19": {"projection": {"kind": "ron", "dimension": 12}},
    "private-pca, auto": {"projection": {"kind": "private-pca"}},
    "private-pca, 12 of 19": {"projection": {"kind": "private-pca", "dimension": 12}},
}
PURE = "auto, delta 0"
REAL = "real rows"
SCORES = ("mean gap", "share gap", "correlations", "columns", "LR", "HGB")
NUMBERS = ("age", "bmi", "systolic", "visits", "cost")
LABEL = "readmitted=yes"


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, runs=len(clinic.MONTHS) - 1)
    runs = Runs("clinic", fresh=True)
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder) / "demo"
        demo.mkdir()
        write_demo("clinic", demo)
        for name in (*MODELS, PURE, REAL):
            once = partial(learn_from_real, demo) if name == REAL else partial(release, demo, name)
            runs.add(name, min(options.runs, len(clinic.MONTHS) - 1), lambda run, once=once: once(run + 1))
    found = {name: runs.summaries(name, SCORES) for name in runs.scores}
    show("the clinic demo", ("model", *SCORES), [(name, *(f.get(s, "") for s in SCORES)) for name, f in found.items()])
    write_results("clinic", found)


def release(demo: Path, name: str, t: int) -> Scores:
    """Release month t under a model, and compare."""
    spec = yaml.safe_load(clinic.specification())
    spec["model"], spec["checks"] = MODELS.get(name, MODELS["auto"]), {}
    if name == PURE:
        spec["privacy"] |= {"delta": 0}
        spec["privacy"]["lifetime"] |= {"delta": 0}
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder) / "workspace")
        workspace.create()
        workspace.spec_path.write_text(yaml.safe_dump(spec, sort_keys=False))
        shutil.copy(landed(demo, t), workspace.landing)
        bundle = release_directly(workspace, RunRequest(period=clinic.MONTHS[t])).bundle
        rows = pq.read_table(bundle / "data.parquet").to_pandas()
    return compare(coded(rows), *real_rows(demo, t))


def learn_from_real(demo: Path, t: int) -> Scores:
    """Learn from the month before month t."""
    return learn(real_rows(demo, t - 1)[0], *real_rows(demo, t))


def landed(demo: Path, t: int) -> Path:
    """The file of month t."""
    return demo / "landing" / clinic.FILE_NAMES[t]


def real_rows(demo: Path, t: int) -> tuple[pd.DataFrame, np.ndarray]:
    """The rows of month t as numbers, and how much each counts."""
    rows = pq.read_table(landed(demo, t)).to_pandas()
    rows = rows[rows["arrival"].dt.strftime("%Y-%m") == clinic.MONTHS[t]]
    return coded(rows), 1 / rows.groupby("patient_id")["patient_id"].transform("size").to_numpy()


def coded(rows: pd.DataFrame) -> pd.DataFrame:
    """A column for each number and each level, cells clamped and mapped as the specification says."""
    result = {}
    for column in yaml.safe_load(clinic.specification())["columns"]:
        name, cells = column["name"], rows[column["name"]]
        if name in NUMBERS:
            missing = column.get("missing", {"impute": np.mean(column["bounds"])})
            if missing == "category":
                result[f"{name}=missing"] = cells.isna().astype(float)
                missing = {"impute": cells.median()}
            result[name] = cells.clip(*column["bounds"]).fillna(missing["impute"])
        elif column["kind"] in ("categorical", "boolean"):
            levels = column.get("categories", [False, True])
            cells = cells.where(cells.isin(levels), column.get("other", levels[0]))
            result |= {f"{name}={level}": (cells == level).astype(float) for level in levels}
    return pd.DataFrame(result)


def compare(synthetic: pd.DataFrame, real: pd.DataFrame, weights: np.ndarray) -> Scores:
    """Return all scores of synthetic rows."""
    bounds = {c["name"]: c["bounds"] for c in yaml.safe_load(clinic.specification())["columns"] if "bounds" in c}
    gaps = {name: abs(np.average(real[name], weights=weights) - synthetic[name].mean()) for name in real}
    pairs = np.triu_indices(len(real.columns), 1)
    apart = correlations(real, weights) - correlations(synthetic, np.ones(len(synthetic)))
    return {
        "mean gap": 100 * float(np.mean([gaps[name] / np.ptp(bounds[name]) for name in NUMBERS])),
        "share gap": 100 * float(np.mean([gap for name, gap in gaps.items() if name not in NUMBERS])),
        "correlations": float(np.sqrt(np.mean(apart[pairs] ** 2))),
        "columns": float(np.mean([variation(synthetic[n], real[n], weights, bounds[n]) for n in NUMBERS])),
        **learn(synthetic, real, weights),
    }


def correlations(rows: pd.DataFrame, weights: np.ndarray) -> np.ndarray:
    """Return the weighted correlations of all columns; those of a constant column are 0."""
    covariance = np.cov(rows.to_numpy().T, aweights=weights)
    spread = np.sqrt(np.diag(covariance))
    return covariance / np.maximum(np.outer(spread, spread), 1e-12)


def variation(synthetic: pd.Series, real: pd.Series, weights: np.ndarray, bounds: tuple[float, float]) -> float:
    """Return the total variation between two columns in twenty cells."""
    one, other = np.histogram(synthetic, 20, bounds)[0], np.histogram(real, 20, bounds, weights=weights)[0]
    return 0.5 * float(np.abs(one / one.sum() - other / other.sum()).sum())


def learn(rows: pd.DataFrame, real: pd.DataFrame, weights: np.ndarray) -> Scores:
    """Return the AUC of classifiers of these rows on the real ones."""
    models = {
        "LR": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        "HGB": HistGradientBoostingClassifier(max_iter=100, random_state=0),
    }
    features = [name for name in real if not name.startswith(LABEL.partition("=")[0])]
    scores = {}
    for name, model in models.items():
        model.fit(rows[features], rows[LABEL])
        scores[name] = roc_auc_score(real[LABEL], model.predict_proba(real[features])[:, 1], sample_weight=weights)
    return scores


if __name__ == "__main__":
    main()
