"""The datasets of a release's lineage: what each stage reads and writes, and what each dataset is.

Every dataset exists. The noisy values of a measurement are in the ledger's database and in model.json,
which also holds the frame and the projection. The law is in the run's scratch folder until rows are
drawn from it. Table, model, record and report are files of the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from openlineage.client.facet_v2 import (
    DatasetFacet,
    column_lineage_dataset,
    dataset_type_dataset,
    documentation_dataset,
    schema_dataset,
)

from dpcore.mechanisms.base import GramEvent
from dpcore.mechanisms.names import CENTRE, MARGINALS, MEAN, MOMENTS, PROJECTION, RADIUS, SPREAD
from dpcore.planning.plan import Plan
from dpcore.records.projected_columns import projected_schema
from tasks.landing.cells import arrow_schema

LANDING, PUBLIC, RESERVATION = "landing", "public-table", "reservation"
FRAME, LAW, FIGURES = "frame", "law", "figures"
TABLE, POINTS = "synthetic-table", "projected-table"
BUNDLE, SEALED = "bundle", "sealed-bundle"
FILES = {
    TABLE: "data.parquet",
    POINTS: "projected.parquet",
    "model": "model.json",
    "record": "record.json",
    "report": "report.html",
}
"""The datasets that are files of the bundle."""

PROJECT, ESTIMATE, SCORE = "project", "estimate", "score"

ABOUT = {
    RESERVATION: "the ledger entry that reserves the release's budget",
    FRAME: "centre and radius of the ball to which records are clipped, as stored in model.json",
    PROJECTION: "the directions along which records are measured, as stored in model.json",
    LAW: "the probability law of the synthetic points; it follows from model.json and the public seed and is not "
    "published separately",
    TABLE: "the synthetic rows in the original columns: the bundle's file data.parquet",
    POINTS: "the same synthetic rows as points along the projection: the bundle's file projected.parquet",
    FIGURES: "utility figures and free checks of the synthetic table, as stored in record.json",
    "model": "the measurements and everything else that is needed to redraw the rows: the bundle's file model.json",
    "record": "guarantee, measurements, figures and specification: the bundle's file record.json",
    "report": "the record as a page: the bundle's file report.html",
    BUNDLE: "the published release; its version is the bundle digest in the ledger",
    SEALED: "the sealed release that awaits approval; its version is the bundle digest in the ledger",
}
KINDS = {LAW: "MODEL", "model": "MODEL", TABLE: "FILE", POINTS: "FILE", "record": "FILE", "report": "FILE"}

Places = Callable[[str], tuple[str, str]]
"""Namespace and full name of a dataset."""


def noisy(measurement: str) -> str:
    """The dataset of a measurement's released values."""
    return f"noisy-{measurement}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDatasets:
    """What the stages of one release read and write."""

    schema: pa.Schema
    """The original columns."""
    measured: Mapping[str, tuple[str, ...]]
    """The measurements that each stage makes, in their order."""
    shapes: Mapping[str, str] = field(default_factory=dict)
    """Whether a measurement's values are a matrix or a vector."""
    frame: bool = False
    projected_in: str | None = None
    """The stage that decides the projection; None if every coordinate is kept."""
    public: bool = False
    """Whether the projection comes from a table that the specification declares public."""
    tables: tuple[str, ...] = (TABLE,)
    """The tables that are published."""
    projected: tuple[tuple[str, str], ...] = ()
    """Names and types of the columns of the projected table, if there is one."""
    sealed: bool = False
    """Whether an earlier run sealed the bundle, so that this run only publishes it after approval."""

    @staticmethod
    def of(plan: Plan, *, output: str | None = None) -> ReleaseDatasets:
        """The datasets of a planned release; `output` says which tables it has, as the specification does."""
        events = plan.events
        return ReleaseDatasets(
            schema=arrow_schema(plan.schema),
            measured=_by_stage(events),
            shapes={name: "matrix" if isinstance(event, GramEvent) else "vector" for name, event in events.items()},
            frame=bool(plan.frame_events) or plan.radius != 1,
            projected_in=None if plan.projection == "none" else ESTIMATE if plan.reuses_gram else PROJECT,
            public=plan.projection == "public-pca",
            tables={"projected": (POINTS,), "both": (TABLE, POINTS)}.get(output or "", (TABLE,)),
            projected=_projected_fields(plan) if output in ("projected", "both") else (),
        )

    @staticmethod
    def of_sealed(
        schema: pa.Schema, measurements: Sequence[str], *, projected: pa.Schema | None = None, original: bool = True
    ) -> ReleaseDatasets:
        """The datasets of a bundle that awaits approval; publishing it writes only the bundle."""
        return ReleaseDatasets(
            schema=schema,
            measured=_by_stage(measurements),
            tables=(*((TABLE,) if original else ()), *((POINTS,) if projected is not None else ())),
            projected=tuple((str(one.name), str(one.type)) for one in projected or ()),
            sealed=True,
        )

    @staticmethod
    def of_retracted() -> ReleaseDatasets:
        """The datasets of a retraction, which withdraws the bundle: its columns are not described again."""
        return ReleaseDatasets(schema=pa.schema([]), measured={}, tables=())

    def made_in(self, stage: str) -> tuple[str, ...]:
        """The measurements that a stage makes."""
        return self.measured.get(stage, ())

    def reads(self, stage: str) -> tuple[str, ...]:
        """The inputs of a stage."""
        return {
            "validate": (LANDING,),
            PROJECT: (*((LANDING,) if self.made_in(PROJECT) else ()), *((PUBLIC,) if self.public else ())),
            ESTIMATE: (LANDING, *self._placed(PROJECT)),
            "sample": self._fitted,
            "decode": (LAW, *self._fitted),
            "check": (*self.tables, *self._fitted),
            SCORE: (LANDING, TABLE, noisy(MOMENTS)),
            "publish": (SEALED,) if self.sealed else self._bundled,
            "seal": self._bundled,
        }.get(stage, ())

    def writes(self, stage: str) -> tuple[str, ...]:
        """The outputs of a stage."""
        files = tuple(name for name in FILES if name not in (TABLE, POINTS))
        others = {
            "allocate": (RESERVATION,),
            PROJECT: self._placed(PROJECT),
            ESTIMATE: (PROJECTION,) if self.projected_in == ESTIMATE else (),
            "sample": (LAW,),
            "decode": self.tables,
            "check": (FIGURES,),
            "publish": (BUNDLE,) if self.sealed else (*files, BUNDLE),
            "seal": (*files, SEALED),
            "retract": (BUNDLE,),
        }
        return (*map(noisy, self.made_in(stage)), *others.get(stage, ()))

    def computed_from(self, dataset: str) -> tuple[str, ...]:
        """The measurements that a dataset was computed from, directly or through others."""
        first, drawn = self.made_in(PROJECT), (*self.made_in(PROJECT), *self.made_in(ESTIMATE))
        if dataset == FRAME:
            return tuple(name for name in first if name != PROJECTION)
        if dataset == PROJECTION:
            return self._projected_from(first)
        if dataset in (LAW, TABLE, POINTS, FIGURES):
            return drawn
        if dataset.startswith("noisy-"):
            return self._measured_after(dataset.removeprefix("noisy-"), drawn)
        return (*drawn, *self.made_in(SCORE))

    def _projected_from(self, first: tuple[str, ...]) -> tuple[str, ...]:
        if self.projected_in == ESTIMATE:
            return (*first, MOMENTS)
        return first if PROJECTION in first else ()

    def _measured_after(self, name: str, drawn: tuple[str, ...]) -> tuple[str, ...]:
        """The measurements that decided how a measurement was made, followed by the measurement itself."""
        first = self.made_in(PROJECT)
        if name in first:  # each is made in the frame that the earlier ones determine
            return first[: first.index(name) + 1]
        if name in self.made_in(SCORE):  # scores rate models that are trained on the table
            return (*drawn, name)
        before = {MARGINALS: (), MEAN: first}.get(name, tuple(one for one in drawn if one not in (MEAN, MOMENTS)))
        return (*before, name)

    @property
    def _fitted(self) -> tuple[str, ...]:
        return (*map(noisy, self.made_in(ESTIMATE)), *self._placed(ESTIMATE))

    @property
    def _bundled(self) -> tuple[str, ...]:
        return (
            *self.tables,
            FIGURES,
            *[noisy(name) for stage in (PROJECT, ESTIMATE, SCORE) for name in self.made_in(stage)],
            *self._placed(ESTIMATE),
        )

    def _placed(self, stage: str) -> tuple[str, ...]:
        """Frame and projection, if they are known after a stage."""
        known = self.projected_in is not None and self.projected_in in (PROJECT, stage)
        return (*((FRAME,) if self.frame else ()), *((PROJECTION,) if known else ()))

    # -- facets that hold of a dataset before it is written --------------------------

    def facets(self, dataset: str, places: Places) -> dict[str, DatasetFacet]:
        """Description, columns and column lineage of a dataset; the landing data have no facets."""
        if dataset in (LANDING, PUBLIC):
            return {}
        name = dataset.removeprefix("noisy-")
        words = ABOUT.get(
            dataset, f"the released values of the measurement {name!r}; its version is the digest in the ledger"
        )
        found: dict[str, DatasetFacet] = {"documentation": documentation_dataset.DocumentationDatasetFacet(words)}
        if dataset in KINDS:
            found["datasetType"] = dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=KINDS[dataset])
        if dataset != name:
            return found | _described(
                [(dataset, self.shapes.get(name, "matrix"))],
                {dataset: _field_from_measurements(places, *map(str, self.schema.names))},
            )
        if dataset in (*self.tables, BUNDLE, SEALED) and self.tables:
            fields = self._fields((dataset,) if dataset in self.tables else self.tables)
            every = "every column is drawn from the noisy measurements of all columns"
            drawn = [_field(places, noisy(n), noisy(n), "INDIRECT", every) for n in self.computed_from(TABLE)]
            sources = {name: _field_from_measurements(places, *self._columns_behind(name)) for name in fields}
            return found | _described(list(fields.items()), sources, drawn)
        return found

    def _fields(self, tables: Iterable[str]) -> dict[str, str]:
        """Names and types of the columns of some tables."""
        of = {TABLE: [(str(one.name), str(one.type)) for one in self.schema], POINTS: self.projected}
        return {name: kind for table in tables for name, kind in of[table]}

    def _columns_behind(self, field: str) -> tuple[str, ...]:
        """The landing columns of a released one: its own, or for a projected coordinate all that were projected."""
        names = tuple(map(str, self.schema.names))
        beside = {name for name, _ in self.projected}
        return (field,) if field in names else tuple(name for name in names if name not in beside)


def _projected_fields(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The columns of the projected table; how many coordinates a released spectrum will give is not known before."""
    shared = plan.variance_share is not None
    fields = [
        (str(f.name), str(f.type)) for f in arrow_schema(projected_schema(plan.schema, 1 if shared else plan.dimension))
    ]
    return (("c1 to the last kept", fields[0][1]), *fields[1:]) if shared else tuple(fields)


def _by_stage(measurements: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The measurements of each stage; one that belongs to neither frame, projection nor moments is a check's score."""
    places = dict.fromkeys((RADIUS, CENTRE, SPREAD, PROJECTION), PROJECT)
    places |= dict.fromkeys((MARGINALS, MEAN, MOMENTS), ESTIMATE)
    names = list(measurements)
    return {stage: tuple(n for n in names if places.get(n, SCORE) == stage) for stage in (PROJECT, ESTIMATE, SCORE)}


def _field_from_measurements(places: Places, *columns: str) -> column_lineage_dataset.Fields:
    """A field that depends on landing columns only through their noisy measurements."""
    words = "through differentially private measurements only"
    return column_lineage_dataset.Fields(
        inputFields=[_field(places, LANDING, name, "DIRECT", words, subtype="AGGREGATION") for name in columns],
        transformationType="MASKED",
        transformationDescription=words,
    )


def _field(
    places: Places, dataset: str, name: str, kind: str, words: str, *, subtype: str | None = None
) -> column_lineage_dataset.InputField:
    namespace, place = places(dataset)
    return column_lineage_dataset.InputField(
        namespace=namespace,
        name=place,
        field=name,
        transformations=[
            column_lineage_dataset.Transformation(type=kind, subtype=subtype, description=words, masking=True)
        ],
    )


def _described(
    fields: list[tuple[str, str]],
    sources: dict[str, column_lineage_dataset.Fields],
    everywhere: list[column_lineage_dataset.InputField] | None = None,
) -> dict[str, DatasetFacet]:
    return {
        "schema": schema_dataset.SchemaDatasetFacet(
            fields=[schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in fields]
        ),
        "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields=sources, dataset=everywhere or []),
    }
