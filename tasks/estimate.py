"""Stage 4: one streaming pass over the rows, one draw of noise. The last stage that sees raw rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpcore.exactgram import GramSum, integer_records, require_exact_product
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.moments import NoisyMoments
from dpcore.noise import Noise, SystemNoise
from dpcore.projection import Projection
from dpcore.schema import Cells
from tasks.boundary import private_task, tell
from tasks.stores.persons import PersonRows
from tasks.stores.run import MOMENTS, Grant, ReleaseRun
from tasks.stores.tables import cells_of


@private_task("estimate moments")
def estimate_moments(run: ReleaseRun, projection: Projection, grant: Grant) -> NoisyMoments:
    """The release's noisy moments: measured now, or read from the ledger where they were before.

    The draw and its spend are stored in one transaction, so a repeated run never draws again.
    """
    ledger = run.ledger()
    released = ledger.measurement(grant.release_id, MOMENTS)
    if released is None:
        fingerprint = run.arrival.landing.fingerprint(run.workspace.fingerprint_key())
        drawn = draw(run, projection, SystemNoise())
        released = ledger.spend(grant.release_id, MOMENTS, drawn, fingerprint=fingerprint)
        tell(f"measured the moments with {released.event.mechanism}; the spend is in the ledger")
    else:
        tell("the moments were measured before; the stored measurement is used again, nothing is drawn")
    return NoisyMoments.from_released(released)


def draw(run: ReleaseRun, projection: Projection, noise: Noise) -> Released:
    """Sum all rows exactly and measure the sum."""
    return measure_gram(exact_gram(run, projection), run.plan.event, noise)


def exact_gram(run: ReleaseRun, projection: Projection) -> PrivateGram:
    """The exact Gram blocks of the landing data, in bounded memory."""
    require_exact_product()
    layout = run.plan.event.layout
    total = GramSum(layout)
    for cells, shares in _weighted_cells(run):
        points = run.encoding.encode(cells)
        total.add(integer_records(points, projection.columns, layout, shares), run.encoding.classes(cells))
    return PrivateGram(total)


def _weighted_cells(run: ReleaseRun) -> Iterator[tuple[Cells, NDArray[np.float64] | None]]:
    """The rows, each with its share of its person; without persons, every row whole."""
    landing, schema, unit = run.arrival.landing, run.plan.schema, run.spec.unit
    names = [column.name for column in schema.columns]
    if unit.person is None:
        for batch in landing.batches(names):
            yield cells_of(batch, schema, decimal=landing.decimal), None
        return
    persons = PersonRows(landing, unit)
    for batch in landing.batches([*names, unit.person]):
        kept, shares = persons.select(batch)
        yield cells_of(kept, schema, decimal=landing.decimal), shares
    persons.require_unchanged()
