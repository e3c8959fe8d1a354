"""An approver's signed decision about a sealed bundle, which may be made on another machine than the workspace's.

The approver's key signs release, bundle digest, decision, name, reason and time. The ledger keeps the
signed text, so that every replay verifies it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tasks.keys.signing import PublicKey, Signer

CONTEXT = b"dprelease decision\n"
"""The prefix of the signed text; with it, the signature is valid neither for a ledger entry nor for a statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An approver's decision: `approve` or `refuse`."""

    decision: str
    release_id: str
    bundle_digest: str
    who: str
    reason: str
    at: str

    @staticmethod
    def from_text(text: str) -> Decision:
        """The decision that a signed text states.

        Raises: ValueError, TypeError if it states none.
        """
        return Decision(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedDecision:
    """A decision's text with the approver's signature."""

    approver: str
    statement: str
    signature: str

    @staticmethod
    def by(signer: Signer, decision: Decision) -> SignedDecision:
        """Sign a decision."""
        text = json.dumps(asdict(decision), sort_keys=True)
        return SignedDecision(
            approver=signer.public.key_id, statement=text, signature=signer.sign(CONTEXT + text.encode())
        )

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SignedDecision:
        """A signed decision from a file or from a ledger entry.

        Raises: KeyError, TypeError for anything else.
        """
        return SignedDecision(**{name: str(body[name]) for name in ("approver", "statement", "signature")})

    def as_json(self) -> dict[str, str]:
        """The inverse of `from_json`."""
        return asdict(self)

    @property
    def content(self) -> Decision:
        """The decision in the text, whether or not its signature is valid.

        Raises: ValueError, TypeError if the text is not a decision.
        """
        return Decision.from_text(self.statement)

    def is_signed_by(self, public: PublicKey) -> bool:
        """Whether that key signed this text."""
        return public.key_id == self.approver and public.verifies(self.signature, CONTEXT + self.statement.encode())
