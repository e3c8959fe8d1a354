"""Who must approve a release before it is published."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import PlainSerializer, PlainValidator, model_validator

from tasks.spec.refusals import refuse, shown, suggestion
from tasks.spec.values import FilledText, PositiveWhole, Section

PLAIN = ("none", "required")


class ApproversSpec(Section):
    """Names or fingerprints of enrolled keys, and how many of them must approve."""

    by: tuple[FilledText, ...]
    at_least: PositiveWhole = 1

    @model_validator(mode="after")
    def _enough_are_named(self) -> Self:
        if len(set(self.by)) < len(self.by):
            refuse("approver-twice", "an approver is named twice", "name each once", "by")
        if self.at_least > len(self.by):
            message = f"{self.at_least} approvals are asked for, and {len(self.by)} approvers are named"
            refuse("approvers-too-few", message, "name more approvers, or ask for fewer approvals", "at_least")
        return self


def _approval_rule(value: Any) -> str | ApproversSpec:
    if isinstance(value, dict | ApproversSpec):
        return ApproversSpec.model_validate(value)
    if value not in PLAIN:
        refuse("unknown-value", f"{shown(value)} is not one of {', '.join(PLAIN)}", suggestion(value, PLAIN))
    return str(value)


def _as_json(rule: str | ApproversSpec) -> str | dict[str, Any]:
    return rule if isinstance(rule, str) else {"by": list(rule.by), "at_least": rule.at_least}


ApprovalRule = Annotated[str | ApproversSpec, PlainValidator(_approval_rule), PlainSerializer(_as_json)]
"""`none`, `required` (anybody who holds a key with the role approve), or who."""
