"""Our own OpenLineage facets: what a measurement costs, what a release promises, and what a dataset was computed from.

A part is never called what the whole is called. A *spend* is one measurement's own cost and belongs to
the stage that measured it; the *guarantee* is the whole release's and belongs to the flow alone.
Version 1 put the release's epsilon on every stage, under the name of a guarantee; readers still know it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from openlineage.client.facet_v2 import DatasetFacet, RunFacet

SPEND, GUARANTEE, COST, LEDGER = "dp_spend", "dp_guarantee", "dp_cost", "dp_ledger"
"""The names of our facets; a spend's is followed by its measurement's, as in `dp_spend_moments`."""

SCHEMA_ID = "urn:dprelease:lineage-facets:2"
"""The `$id` of schemas/lineage-facets.schema.json, which `dprelease lineage --schema` prints."""


def facet_schema() -> dict[str, Any]:
    """The published JSON Schema of our facets."""
    schema: dict[str, Any] = json.loads((Path(__file__).parent / "schemas" / "lineage-facets.schema.json").read_text())
    return schema


@attrs.define
class DpSpendFacet(RunFacet):
    """What one measurement costs, its ledger entry, and the population's balance around that entry.

    `epsilon` is there for a pure mechanism, `rho` for Gaussian noise; `alone` states either as
    (epsilon, delta). `ofRelease` is what the whole release states, of which this is a part.
    """

    measurement: str
    mechanism: str
    proof: str
    population: str
    unit: str
    neighbours: str
    epsilon: float | None
    rho: float | None
    deltaNum: float  # noqa: N815  spelled as OpenLineage spells its fields
    alone: dict[str, float]
    ofRelease: dict[str, float]  # noqa: N815
    ledgerEntry: int  # noqa: N815
    ledgerHash: str  # noqa: N815
    before: dict[str, float]
    after: dict[str, float]

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_ID}#/$defs/DpSpendRunFacet"


@attrs.define
class DpGuaranteeFacet(RunFacet):
    """What a whole release promises, as it was reserved, and what was spent of that when the event was written."""

    population: str
    unit: str
    neighbours: str
    epsilon: float
    delta: float
    deltaNum: float  # noqa: N815
    measurements: list[str]
    spent: dict[str, float]
    ledgerEntry: int  # noqa: N815
    ledgerHash: str  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_ID}#/$defs/DpGuaranteeRunFacet"


@attrs.define
class DpCostFacet(DatasetFacet):
    """The measurements that a dataset was computed from, directly or through others, and what they cost together."""

    measurements: list[str]
    epsilon: float
    delta: float
    deltaNum: float  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_ID}#/$defs/DpCostDatasetFacet"


@attrs.define
class DpLedgerFacet(DatasetFacet):
    """The ledger entry that a dataset is, or that holds its digest."""

    ledgerEntry: int  # noqa: N815
    ledgerHash: str  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_ID}#/$defs/DpLedgerDatasetFacet"
