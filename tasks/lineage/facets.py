"""Our own OpenLineage facets: what a measurement costs, what a release promises, and what a dataset was computed from.

Parts and the whole have different names. A *spend* is the cost of one measurement and belongs to the stage
that measured it; the *guarantee* is that of the whole release and belongs to the flow only. Version 1 put
the release's epsilon on every stage and called it a guarantee; readers still accept it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from openlineage.client.facet_v2 import DatasetFacet, RunFacet

SPEND, GUARANTEE, COST, LEDGER = "dp_spend", "dp_guarantee", "dp_cost", "dp_ledger"
"""The names of our facets; the measurement's name is appended to that of a spend, as in `dp_spend_moments`."""

SCHEMA_ID = "urn:dprelease:lineage-facets:2"
"""The `$id` of schemas/lineage-facets.schema.json, which `dprelease lineage --schema` prints."""


def facet_schema() -> dict[str, Any]:
    """The published JSON Schema of our facets."""
    schema: dict[str, Any] = json.loads((Path(__file__).parent / "schemas" / "lineage-facets.schema.json").read_text())
    return schema


@attrs.define
class DpSpendFacet(RunFacet):
    """What one measurement costs, its ledger entry, and the population's balance around that entry.

    A pure mechanism has `epsilon`, Gaussian noise has `rho`; `alone` states either as
    (epsilon, delta). `ofRelease` is the statement of the whole release, of which this is a part.
    """

    measurement: str
    mechanism: str
    proof: str
    population: str
    unit: str
    neighbours: str
    epsilon: float | None
    rho: float | None
    deltaNum: float  # noqa: N815  OpenLineage's spelling of fields
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
    """The guarantee of a whole release, as reserved, and the part that was spent when the event was written."""

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
    """The ledger entry that is the dataset, that contains its digest, or that retracts it."""

    ledgerEntry: int  # noqa: N815
    ledgerHash: str  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_ID}#/$defs/DpLedgerDatasetFacet"
