"""Columns and rules that several tests share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpcore.records.rules.rule import Rule
from dpcore.records.schema import Column, IntervalColumn, Kind, NominalColumn
from tasks.spec.rules.forms import read_rules


def whole(name: str, low: float, high: float, *, missing: bool = False, kind: Kind = Kind.INTEGER) -> IntervalColumn:
    return IntervalColumn(name=name, kind=kind, lower=low, upper=high, missing_level=missing)


def number(name: str, low: float, high: float) -> IntervalColumn:
    return IntervalColumn(name=name, kind=Kind.NUMERIC, lower=low, upper=high)


def levels(name: str, *values: str | int | bool, missing: bool = False, **more: Any) -> NominalColumn:
    kind = Kind.BOOLEAN if values == (False, True) else Kind.CATEGORICAL
    return NominalColumn(name=name, kind=kind, levels=values, missing_level=missing, **more)


def rules_of(written: Sequence[Any], columns: Sequence[Column]) -> tuple[Rule, ...]:
    return read_rules(list(written), {column.name: column for column in columns})
