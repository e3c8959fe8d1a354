"""Only `dpcore.measure` releases a private Gram matrix, and every release carries the event that produced it."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from dataclasses import replace
from fractions import Fraction

import cloudpickle
import numpy as np
import pytest
from support import ROOT
from support.dpcore.strategies import as_cells, pipeline, schema_with

from dpcore.accounting import Budget, Epsilon, Rho
from dpcore.measure import PrivateGram, Released, measure_gram
from dpcore.mechanisms.base import UNIT
from dpcore.mechanisms.registry import gram_mechanism
from dpcore.noise.sources import SeededNoise, SystemNoise
from dpcore.records.exact_sums import GramLayout, GramSum
from dpcore.records.schema import Neighbours

NAMES = ["wishart-difference", "wishart-difference-trace", "laplace", "gaussian"]
SECRET = 918273645
LAYOUT = GramLayout(3, 2, Fraction(1, 2))


def secret_gram() -> PrivateGram:
    total = GramSum(LAYOUT)
    total.blocks = total.blocks + SECRET
    return PrivateGram(total)


def event_for(name: str, layout: GramLayout = LAYOUT):
    budget: Budget = Rho(Fraction(1)) if name == "gaussian" else Epsilon(Fraction(1))
    return gram_mechanism(name).calibrate(layout, Neighbours.REPLACE_ONE, budget)


@pytest.mark.parametrize(
    "show", [repr, str, lambda g: f"{g}", lambda g: f"{g!r}", "{}".format, lambda g: f"{[g]} { ({1: g}) }"]
)
def test_a_private_gram_does_not_print_its_values(show: object) -> None:
    assert str(SECRET) not in show(secret_gram())  # type: ignore[operator]


@pytest.mark.parametrize(
    "serialise",
    [
        *(lambda g, p=p: pickle.dumps(g, protocol=p) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
        cloudpickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda g: pickle.dumps({"gram": [g]}),
    ],
)
def test_a_private_gram_is_not_serialised(serialise: object) -> None:
    with pytest.raises(TypeError, match="not serialised"):
        serialise(secret_gram())  # type: ignore[operator]


def test_a_private_gram_gives_no_dictionary_no_json_and_no_comparison() -> None:
    gram = secret_gram()
    with pytest.raises(TypeError):
        vars(gram)
    with pytest.raises(TypeError):
        json.dumps(gram)
    assert gram != secret_gram()
    assert [name for name in dir(gram) if not name.startswith("_")] == ["layout"]


def test_only_the_one_door_opens_a_private_gram() -> None:
    """No module but dpcore/measure.py names the private attributes of the Gram matrix."""
    rooms = ("dpcore", "expectations", "tasks", "flows", "deployments", "benchmarks")
    openers = {
        path.relative_to(ROOT).as_posix()
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "_triangles"
    }
    assert openers == {"dpcore/measure.py"}


@pytest.mark.parametrize("name", NAMES)
def test_a_measurement_survives_its_json_and_any_changed_cell_changes_its_digest(name: str) -> None:
    released = measure_gram(secret_gram(), event_for(name), SeededNoise(1))
    back = Released.from_json(json.loads(json.dumps(released.as_json())))
    assert back == released
    assert back.digest() == released.digest()
    digests = {released.digest()}
    for b, block in enumerate(released.values):
        for i in range(len(block)):
            cells = [list(t) for t in released.values]
            cells[b][i] += 1
            digests.add(replace(released, values=tuple(map(tuple, cells))).digest())
    digests.add(replace(released, seeded=False).digest())
    digests.add(replace(released, event=replace(released.event, noise=released.event.noise * 2)).digest())
    digests.add(replace(released, event=replace(released.event, step=released.event.step * 2)).digest())
    assert len(digests) == 1 + 12 + 3


@pytest.mark.parametrize(
    "layout",
    [
        GramLayout(4, 2, Fraction(1, 2)),
        GramLayout(3, 1, Fraction(1, 2)),
        GramLayout(3, 2, Fraction(1, 4)),
        GramLayout(3, 2, Fraction(1, 2), 2),
    ],
)
def test_an_event_planned_for_another_shape_is_refused_before_anything_is_drawn(layout: GramLayout) -> None:
    class Untouchable(SeededNoise):
        def bits(self, count: int) -> int:
            raise AssertionError("drawn")

    with pytest.raises(ValueError, match="another shape"):
        measure_gram(secret_gram(), event_for("wishart-difference", layout), Untouchable(1))


@pytest.mark.parametrize("triangles", [((1, 2, 3, 4, 5, 6),), ((1, 2, 3), (1, 2, 3)), ()])
def test_a_measurement_has_the_shape_of_its_event(triangles: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="shape of its event"):
        Released(event_for("laplace"), triangles, False)


def test_released_matrices_are_symmetric_and_in_records() -> None:
    event = event_for("wishart-difference")
    cells = tuple(tuple(range(10 * b + 1, 10 * b + 7)) for b in range(2))
    one, two = Released(event, cells, False).matrices()
    unit = event.step / UNIT
    assert one == pytest.approx(np.array([[1, 2, 3], [2, 4, 5], [3, 5, 6]]) * unit)
    assert two == pytest.approx(np.array([[11, 12, 13], [12, 14, 15], [13, 15, 16]]) * unit)


def test_a_measurement_says_whether_its_noise_was_seeded() -> None:
    assert measure_gram(secret_gram(), event_for("laplace"), SeededNoise(1)).seeded
    assert not measure_gram(secret_gram(), event_for("wishart-difference"), SystemNoise()).seeded


def test_two_real_measurements_of_one_gram_differ_in_every_cell() -> None:
    gram, event = secret_gram(), event_for("wishart-difference")
    one, two = (measure_gram(gram, event, SystemNoise()).values for _ in range(2))
    assert all(a != b for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("label", [False, True], ids=["one block", "class blocks"])
def test_with_the_same_noise_two_neighbours_differ_by_exactly_their_grams(name: str, label: bool) -> None:
    """Replay with the same noise: equal to within one output step, and within the declared sensitivity."""
    schema = schema_with(label=label)
    pipe = pipeline(schema, dimension=2, s=Fraction(1, 2))
    common = [{c.name: i % 2 for c in schema.columns} for i in range(20)]
    rows = [{c.name: v for c in schema.columns} for v in (0, 2)]
    event = event_for(name, pipe.layout)
    drawn, exact = [], []
    for row in rows:
        total = GramSum(pipe.layout)
        cells = as_cells(schema, [*common, row])
        total.add(pipe.records(cells), pipe.encoding.classes(cells))
        exact.append(total.blocks)
        drawn.append(measure_gram(PrivateGram(total), event, SeededNoise(33)))
    assert drawn[0].seeded
    i, j = np.triu_indices(pipe.layout.dimension)
    moved = False
    for block, (one, two) in enumerate(zip(*(d.values for d in drawn), strict=True)):
        truth = (exact[0][block] - exact[1][block])[i, j]
        for a, b, difference in zip(one, two, truth, strict=True):
            assert abs((a - b) * event.step - int(difference)) <= (0 if event.step == 1 else event.step)
            moved = moved or difference != 0
    assert moved
