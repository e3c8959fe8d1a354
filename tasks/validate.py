"""Stage 1: structure decides, cells are only told to the operator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dpcore.encoding import Encoding
from expectations.landing import ENCODED_NORM, cell_suite
from expectations.verdicts import SuiteRunner, Verdict, combine
from tasks.boundary import private_task, tell, tell_operator
from tasks.stores.run import ReleaseRun
from tasks.stores.structure import require_shape, without_rows
from tasks.stores.tables import cells_of
from tasks.stores.wholeness import require_whole


@private_task("validate")
def validate_landing(run: ReleaseRun, release_id: str) -> None:
    """Refuse data of another structure; tell the operator which columns hold cells to clamp.

    Raises: LandingError.
    """
    require_structure(run)
    verdicts = cell_verdicts(run)
    kept = [{"column": v.column, "rule": v.rule, "ok": v.ok} for v in verdicts]
    run.workspace.keep_verdicts(release_id, kept)
    tell("validated: the structure holds")
    broken: dict[str, list[str]] = {}
    for verdict in verdicts:
        if not verdict.ok:
            broken.setdefault(verdict.column or "record", []).append(verdict.rule)
    if broken:
        listed = "; ".join(f"{column} ({', '.join(rules)})" for column, rules in broken.items())
        tell_operator(f"some cells break these rules and are clamped or mapped: {listed}")


def require_structure(run: ReleaseRun) -> None:
    """Check columns and types of every landing file, and that none of the month's is in quarantine.

    Raises: LandingError for the first rule that does not hold.
    """
    if not run.arrival.is_given:
        require_whole(run.workspace, run.spec, run.period)
    require_shape(run.arrival.landing)


def cell_verdicts(run: ReleaseRun) -> tuple[Verdict, ...]:
    """Verdicts on all cells, which also shows that the data can be read to their end.

    Raises: LandingError if there are no rows.
    """
    runner = SuiteRunner(cell_suite(run.spec.schema))
    verdicts = combine(runner.validate(frame) for frame in _cell_frames(run))
    if not verdicts:
        raise without_rows(run.arrival.landing)
    return verdicts


def _cell_frames(run: ReleaseRun) -> Iterator[pd.DataFrame]:
    schema, landing = run.spec.schema, run.arrival.landing
    encoding = Encoding(schema)
    for batch in landing.batches([column.name for column in schema.columns]):
        cells = cells_of(batch, schema, decimal=landing.decimal)
        norms = np.linalg.norm(encoding.encode(cells), axis=1)
        yield pd.DataFrame({**cells, ENCODED_NORM: norms})
