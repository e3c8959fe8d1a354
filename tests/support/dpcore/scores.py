"""Fixtures shared by the unit and the statistical tests of scores."""

from __future__ import annotations

from fractions import Fraction

from dpcore.accounting import Epsilon, Rho
from dpcore.measurements.scores import ACCURACY, RMSE, SILHOUETTE
from dpcore.mechanisms.queries import ScoreQuery
from dpcore.records.schema import Neighbours

R1, AR = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
QUERIES = {
    ACCURACY: ScoreQuery(ACCURACY, of="class"),
    RMSE: ScoreQuery(RMSE, of="cost"),
    SILHOUETTE: ScoreQuery(SILHOUETTE, clusters=3),
}
MECHANISMS = {"score-laplace": Epsilon(Fraction(2)), "score-gaussian": Rho(Fraction(1, 2))}
