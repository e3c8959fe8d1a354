"""Which specifications' costs add up over one population, and that no hint leads past the budget."""

from __future__ import annotations

import ast
import re
from fractions import Fraction

import pytest
from support import ROOT
from support.tasks.builders import POPULATION, cap, released, request

from dpcore.accounting import population_balance
from dpcore.errors import LedgerError
from dpcore.records.schema import Neighbours, PrivacyUnit, RowRule
from tasks.ledger.state import LedgerState
from tasks.ledger.store import Ledger
from tasks.spec import parse_spec
from tasks.spec.plan import basis_of
from tasks.spec.privacy import OF_ANSWER, specified_basis


def basis(
    person: str | None = None, most: int = 0, *, neighbours: str = "replace-one", ending: str = ""
) -> dict[str, str]:
    rule = {"row_rule": RowRule.AT_MOST, "most_rows": most} if most else {}
    return {"neighbours": Neighbours(neighbours).value, "unit": f"{PrivacyUnit(person=person, **rule)}{ending}"}


SCENARIOS = {
    "the same": (basis("patient"), basis("patient"), None),
    "rows the same": (basis(), basis(), None),
    "weight to at-most": (basis("patient"), basis("patient", 3), None),
    "at-most to another": (basis("patient", 3), basis("patient", 5), None),
    "another identifier": (basis("patient"), basis("insured"), None),
    "another identifier and rule": (basis("patient", 2), basis("insured"), None),
    "persons of an answer": (basis("patient", ending=OF_ANSWER), basis("insured", 2, ending=OF_ANSWER), None),
    "an identifier that looks like a rule": (basis("row (rows: weight)"), basis("x (rows: at-most 3)", 2), None),
    "row to person": (basis(), basis("patient"), "unit"),
    "person to row": (basis("patient"), basis(), "unit"),
    "row to a row of an answer": (basis(), basis(ending=OF_ANSWER), "unit"),
    "person to a person of an answer": (basis("patient"), basis("patient", ending=OF_ANSWER), "unit"),
    "a column named like an answer": (basis(f"x{OF_ANSWER}"), basis("x", ending=OF_ANSWER), "unit"),
    "other neighbours": (basis(), basis(neighbours="add-remove"), None),
    "persons with other neighbours": (basis("patient"), basis("patient", neighbours="add-remove"), None),
    "both": (basis("patient"), basis(neighbours="add-remove"), "unit"),
}


@pytest.mark.parametrize("case", SCENARIOS)
def test_costs_add_for_whom_every_release_protects_as_a_whole(ledger: Ledger, case: str):
    first, second, refused = SCENARIOS[case]
    ledger.ensure_cap(POPULATION, cap(), first)
    spent(ledger, "2026-01", "0.3")
    if refused:
        for again in (ledger.ensure_cap, lambda *given: ledger.raise_cap(*given, "more")):
            with pytest.raises(LedgerError) as caught:
                again(POPULATION, cap(), second)
            assert (caught.value.rule, caught.value.where) == ("budget-basis-differs", f"privacy.{refused}")
            assert "put the old value back" in caught.value.hint
            assert "would not be counted" in caught.value.hint
        return
    ledger.ensure_cap(POPULATION, cap(), second)
    spent(ledger, "2026-02", "0.4")
    ledger.raise_cap(POPULATION, cap("2"), second, "more")
    ledger.ensure_cap(POPULATION, cap("2"), first)
    state = LedgerState.replay(ledger.entries())
    assert population_balance(state.spent(POPULATION), delta=Fraction(0)).epsilon == Fraction("0.7")
    assert state.populations[POPULATION].basis == first, "later caps keep the first one's, as older programs want it"


def spent(ledger: Ledger, period: str, epsilon: str) -> None:
    release_id = ledger.reserve(request(period, epsilon)).release_id
    ledger.spend(release_id, "moments", released(epsilon))


SPEC = """
name: small
source: {{path: landing/*.csv, period: 'small-(?P<period>[0-9]{{4}}-[0-9]{{2}})'}}
privacy: {{population: people, unit: {unit}, epsilon: 0.5, lifetime: {{epsilon: 1.2}}}}
expected_rows: 5000
columns: [{{name: age, kind: numeric, bounds: [0, 100]}}, {{name: ill, kind: boolean}}]
rows: 50
"""


@pytest.mark.parametrize("unit", ["row", "{person: who}", "{person: who, rows: at-most 3}"])
@pytest.mark.parametrize("rows", ["", "table", "answer"])
def test_a_record_tells_its_basis(unit: str, rows: str):
    text = SPEC.format(unit=unit)
    if rows:
        query = f"source: {{query: {{url: 'env:DB', rows: {rows}, sql: SELECT * FROM t}}}}"
        text = re.sub(r"source: .*", query, text)
    spec = parse_spec(text)
    assert specified_basis(spec.as_public_json()) == basis_of(spec)


# ---------------------------------------------------------------- hints


def texts(node: ast.AST) -> str:
    """The text of a string, whether parts of it are computed or not."""
    return "".join(
        part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def hints() -> list[tuple[str, str]]:
    """Every string that the program can give as a hint, with its file."""
    found = []
    for path in (path for room in ("tasks", "flows", "deployments") for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                found.append((path.name, texts(node)))
    return found


def test_no_hint_leads_to_counting_the_same_people_anew():
    told = hints()
    assert len(told) > 1000
    led = [text for text in told if re.search(r"(name|use|choose|give) (another|a new) population", text[1])]
    assert led == []
    of_ledgers = [text for text in told if re.search(r"restore (the ledger|a backup)|back with `dprelease", text[1])]
    assert len(of_ledgers) >= 3
    silent = [text for text in of_ledgers if "reconcile" not in text[1]]
    assert silent == []
