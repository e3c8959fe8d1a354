"""Measuring the landing data: one streaming pass over the rows, one draw of noise, stored with its spend."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dpcore.errors import LandingError
from dpcore.measure import (
    Measurement,
    PrivateGram,
    RecordEncoder,
    Released,
    ReleasedVector,
    gram_sum,
    measure_gram,
    measure_vector,
)
from dpcore.measurements.frame_measurements import measurement_inputs
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import count_cells
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.names import MARGINALS
from dpcore.mechanisms.queries import HistogramsQuery
from dpcore.mechanisms.vectors import PrivateVector
from dpcore.noise.sources import Noise, SystemNoise
from dpcore.records.exact_sums import GramSum
from tasks.boundary import log_public
from tasks.release.context import ReleaseRun
from tasks.release.stage_values import Grant


def measure_or_load(
    run: ReleaseRun, grant: Grant, name: str, projection: Projection, encoding: RecordEncoder | None = None
) -> Released:
    """Return the named Gram measurement, drawing noise at most once per release.

    If the ledger already holds the measurement (an earlier run was interrupted), that value is returned and
    nothing is drawn. Otherwise the noise is drawn, and the value and its cost are committed in one ledger
    transaction before the function returns.

    Neighbours: as declared in the plan. Guarantee: GUARANTEE.md, M.
    Raises: LandingError if the data changed since an earlier measurement of this release.
    """
    seen, projection = measurement_inputs(name, run.planned.encoding, projection)
    released = draw_once(run, grant, name, lambda: measure_rows(run, name, projection, SystemNoise(), encoding or seen))
    assert isinstance(released, Released)  # noqa: S101  as it was reserved
    return released


def measure_or_load_marginals(run: ReleaseRun, grant: Grant) -> ReleasedVector:
    """Return the histograms of the plan, drawing noise at most once per release."""
    event = run.planned.plan.marginals_event
    assert event is not None  # noqa: S101  only a plan with marginals comes here
    query = event.query
    assert isinstance(query, HistogramsQuery)  # noqa: S101  as it was planned

    def histograms() -> ReleasedVector:
        cells = cells_of_columns(run.planned.plan.schema.encoded_columns, query.grouping)
        summed = partial(count_cells, columns=cells, query=query)
        counts = run.readings.total(MARGINALS, run.planned.plan.schema, summed, add_counts)
        return measure_vector(PrivateVector(query, counts), event, SystemNoise())

    released = draw_once(run, grant, MARGINALS, histograms)
    assert isinstance(released, ReleasedVector)  # noqa: S101  as it was reserved
    return released


def draw_once(run: ReleaseRun, grant: Grant, name: str, draw: Callable[[], Measurement]) -> Measurement:
    """Return a stored measurement, or draw it and store it with its spend.

    The draw and its spend are stored in one transaction, so a stored measurement is never drawn again.
    """
    ledger, event = run.ledger, run.planned.plan.events[name]
    stored = ledger.measurement(grant.release_id, name)
    if stored is not None:
        log_public(f"reused the stored measurement of {name}; no noise was drawn and nothing was spent")
        return stored
    fingerprint = run.readings.fingerprint()
    _require_same_data(ledger.fingerprint(grant.release_id), fingerprint, grant.release_id)
    drawn = draw()
    released = ledger.spend(
        grant.release_id,
        name,
        drawn,
        build=grant.builds[name],
        flow_run_id=run.flow_run_id,
        fingerprint=fingerprint,
    )
    log_public(f"measured the {name} with {event.mechanism} and recorded the cost in the ledger")
    return released


def _require_same_data(kept: str | None, found: str, release_id: str) -> None:
    """Require that all measurements of one release use the same data, also if another run resumes it."""
    if kept is not None and kept != found:
        raise LandingError(
            f"the landing data changed since the first measurement of {release_id}",
            rule="landing-changed",
            where="source",
            hint="restore the original files and run again; without them this month cannot be finished, and the budget "
            "spent on its measurements stays spent",
        )


def measure_rows(run: ReleaseRun, name: str, projection: Projection, noise: Noise, encoding: RecordEncoder) -> Released:
    """Sum all rows exactly, in one pass, and measure the sum."""
    event = run.planned.plan.events[name]
    assert isinstance(event, GramEvent)  # noqa: S101  only the marginals are a vector
    summed = partial(gram_sum, encoding=encoding, layout=event.layout, projection=projection)
    total = run.readings.total(name, run.planned.plan.schema, summed, GramSum.with_sum)
    return measure_gram(PrivateGram(total), event, noise)


def add_counts(one: list[int], other: list[int]) -> list[int]:
    """Add two lists of counts, cell by cell."""
    return [a + b for a, b in zip(one, other, strict=True)]
