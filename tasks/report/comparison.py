"""The page that compares synthetic with raw rows: private, labelled as private, and never part of a bundle."""

from __future__ import annotations

from typing import Any

from tasks.report.report import correlation_of, marginals_of, pages

RAW = "raw"


def render_comparison(
    release_id: str,
    columns: list[dict[str, Any]],
    correlation: dict[str, Any],
    gaps: dict[str, float],
    *,
    has_rows: bool = True,
) -> str:
    """Render one self-contained page; `columns` and `correlation` have raw figures instead of measured ones."""
    return (
        pages()
        .get_template("comparison.html.j2")
        .render(
            release_id=release_id,
            gaps=gaps,
            has_rows=has_rows,
            marginals=marginals_of(columns, against=RAW),
            correlation=correlation_of(correlation, against=RAW),
        )
    )
