"""Intervals out of a published bundle: its record and its model are enough."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dpcore.errors import RefusedError
from dpcore.inference.release_estimates import ReleaseInference
from dpcore.measure import measurement_from_json
from dpcore.measurements.measurement_frame import Directions, Frame
from dpcore.measurements.projection import Projection
from dpcore.records.encoding import Encoding
from dpcore.records.schema import RecordSchema, Role
from tasks.spec.columns import ColumnSpec
from tasks.workspace.folders import mark_beside
from tasks.workspace.reading import parse_json, read_text


def read_inference(bundle: Path | str, *, accept_retracted: bool = False) -> ReleaseInference:
    """What an analyst can ask of the bundle in a folder.

    Raises: RefusedError for a bundle beside which there is the mark of a retraction, unless that is accepted.
    """
    require_in_use(bundle, accept_retracted=accept_retracted)
    record, model = (parse_json(read_text(Path(bundle) / name)) for name in ("record.json", "model.json"))
    return inference_of(record, model)


def require_in_use(bundle: Path | str, *, accept_retracted: bool) -> None:
    """Refuse a bundle that is marked as retracted; whether the ledger agrees is the audit's question.

    Raises: RefusedError.
    """
    mark = mark_beside(Path(bundle).resolve())
    if mark.exists() and not accept_retracted:
        raise RefusedError(
            f"the release was retracted, as {mark.name} beside its bundle says",
            rule="release-retracted",
            where="bundle",
            hint="use the release that took its place; to study this one all the same, pass accept_retracted=True",
        )


def inference_of(record: dict[str, Any], model: dict[str, Any]) -> ReleaseInference:
    """What an analyst can ask of a release, by its record and model."""
    encoding = Encoding(schema_as_measured(record))
    return ReleaseInference.from_measurements(
        encoding,
        {name: measurement_from_json(body) for name, body in model["measurements"].items()},
        projection_of_bundle(record, model, encoding),
    )


def schema_as_measured(record: dict[str, Any]) -> RecordSchema:
    """The columns as they were measured: a label without classes was one more feature."""
    columns = [
        ColumnSpec.model_validate(column).column
        for column in json.loads(json.dumps(record["specification"]["columns"]), parse_float=Decimal)
    ]
    if record["model"]["classes"] is None:
        columns = [replace(column, role=Role.FEATURE) if column.role is Role.LABEL else column for column in columns]
    return RecordSchema(tuple(columns))


def projection_of_bundle(record: dict[str, Any], model: dict[str, Any], encoding: Encoding) -> Projection:
    """The projection of a bundle in its frame, as its model holds them."""
    kind, stored = record["model"]["projection"]["kind"], model["projection"]
    stated = model.get("frame")
    frame = _frame_of(stated) if stated else None
    if stored is None:
        return Projection(kind, encoding.width, encoding.width, None, frame=frame)
    columns = np.array(stored["columns"], dtype=np.float64)
    width, dimension = columns.shape
    return Projection(kind, width, dimension, columns, frame=frame)


def _frame_of(stated: dict[str, Any]) -> Frame:
    """The frame as a model file states it."""
    lengths = stated.get("normalised")
    directions = Directions(**lengths) if lengths else None
    return Frame(np.array(stated["centre"]), float(stated["radius"]), directions=directions)
