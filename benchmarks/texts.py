"""Numbers and tables in Markdown, so that they can be pasted into a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose columns line up."""
    rows = [tuple(head), *map(tuple, lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    texts = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(texts)


def number(value: float | None) -> str:
    """Return a figure as people write it; a hyphen for none."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
