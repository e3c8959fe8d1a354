"""The section about a release in words: what only its steward knows, and whoever uses it should."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tasks.spec.refusals import refuse
from tasks.spec.values import Section, filled

MOST_CHARACTERS = 2000
"""A paragraph; more belongs on a page that `links` names."""


def public_text(text: str) -> str:
    """Text that is published as it stands: not blank, printable, at most a paragraph."""
    filled(text)
    if len(text) > MOST_CHARACTERS:
        refuse(
            "text-too-long", f"this has more than {MOST_CHARACTERS} characters", "shorten it; link to a page instead"
        )
    if not all(c.isprintable() or c in "\n\t" for c in text):
        refuse("text-unprintable", "this holds characters that cannot be printed", "write plain text")
    return text


PublicText = Annotated[str, AfterValidator(public_text)]
Sector = Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]


class AboutSpec(Section):
    """Who publishes the release, for whom and why. All of it is public, none of it shapes a measurement."""

    curator: PublicText | None = Field(default=None, description="Who publishes the release.")
    description: PublicText | None = Field(default=None, description="What the data are about.")
    use: PublicText | None = Field(default=None, description="What the release is meant to be used for.")
    region: PublicText | None = Field(default=None, description="Where the people in the data live.")
    sector: Sector | None = Field(default=None, description="The sector, as the DP Deployments Registry names it.")
    access: PublicText | None = Field(default=None, description="Who may see the raw data, and how they are kept.")
    why: PublicText | None = Field(default=None, description="How epsilon, bounds and model were chosen.")
    links: tuple[PublicText, ...] = Field(default=(), description="Pages that say more about the release.")
    authors: tuple[PublicText, ...] = Field(default=(), description="Who filled in this section.")
