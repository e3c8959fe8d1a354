"""What a codebook says of relations: those of a copula are compared with the noise of their own tables."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from support.dpcore.samplers import generator

from dpcore.evaluation.copula_fit import measured_summary
from dpcore.evaluation.table_summary import TableSummary
from dpcore.evaluation.utility import utility_report
from dpcore.measure import exact_gram, measure_gram, measure_vector
from dpcore.measurements.groups import cells_of_columns
from dpcore.measurements.histograms import exact_histograms
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import no_projection
from dpcore.noise.sources import SeededNoise
from dpcore.planning.planner import make_plan
from dpcore.planning.request import COPULA, PlanRequest
from dpcore.records.encoding import Encoding
from dpcore.records.schema import Kind, Neighbours, NominalColumn, PrivacyUnit, RecordSchema
from dpcore.synthesis.copula.generator import grouped_encoding
from tasks.bundle.codebook import noise_limits

ROWS, COLUMNS = 20_000, 12
SCHEMA = RecordSchema(
    tuple(NominalColumn(name=f"c{i:02}", kind=Kind.BOOLEAN, levels=(False, True)) for i in range(COLUMNS))
)


def limits(epsilon: Fraction) -> list[str]:
    """The limits of a copula's release in which the columns c00 and c01 are related, and no others."""
    rng = generator(5)
    cells: dict[str, Any] = {column.name: rng.integers(0, 2, ROWS) for column in SCHEMA.columns}
    cells["c01"] = np.where(rng.random(ROWS) < 0.4, cells["c00"], cells["c01"])
    request = PlanRequest(
        schema=SCHEMA,
        neighbours=Neighbours.REPLACE_ONE,
        unit=PrivacyUnit(),
        epsilon=epsilon,
        delta=Fraction(1, 10**6),
        expected_rows=ROWS,
        projection="none",
        generator=COPULA,
    )
    plan, noise, whole = make_plan(request), SeededNoise(7), Encoding(SCHEMA)
    assert plan.marginals_event is not None
    query: Any = plan.marginals_event.query
    counts = exact_histograms([(cells, None)], cells_of_columns(SCHEMA.encoded_columns), query)
    marginals = measure_vector(counts, plan.marginals_event, noise)
    groups = grouped_encoding(SCHEMA, marginals, plan.event)
    gram = exact_gram([(cells, None)], groups, plan.event.layout, no_projection(whole))
    moments = replace(NoisyMoments.from_released(measure_gram(gram, plan.event, noise)), marginals=marginals)
    summary = TableSummary(whole)
    summary.add(cells)
    measured = measured_summary(whole, moments, no_projection(whole))
    return noise_limits(whole, moments, no_projection(whole), utility_report(measured, summary))


def test_a_relation_of_a_copula_is_hidden_only_by_the_noise_of_its_own_table() -> None:
    (clear,) = (line for line in limits(Fraction(1, 10)) if "correlations" in line)
    assert clear.startswith(f"{COLUMNS * (COLUMNS - 1) // 2 - 1} of {COLUMNS * (COLUMNS - 1) // 2} correlations")
    assert "c00 = True with c01 = True" not in clear


def test_noise_that_is_larger_than_a_relation_hides_it() -> None:
    (hidden,) = (line for line in limits(Fraction(1, 40)) if "correlations" in line)
    assert hidden.startswith("None of the correlations can be distinguished from noise")
