"""The table that a run prints, in Markdown, so that it can be pasted into a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .goals import goals
from .results import Results

#: How values are shown; those that are missing here are shown with three digits.
REFERENCES = {"drain": "L_cycle", "backlog": "L_cycle", "queues": "L_cycle", "enqueue": "L_send"}


def report(results: Results) -> str:
    """Return everything that a run found."""
    machine = [f"- {name}: {value}" for name, value in results.machine.items()]
    yardstick = ", ".join(f"{name} {_number(results.reference(name))}/s" for name in ("L_send", "L_cycle", "L_send1"))
    parts = ["\n".join(machine), f"C client: {yardstick}.", _measurements(results), _goals(results)]
    return "\n\n".join(parts) + "\n"


def _measurements(results: Results) -> str:
    lines = []
    for row in results.rows():
        figure, who, case = row
        values = "; ".join(f"{name} {_number(results.median(row, name))}" for name in results.values(row))
        share = results.ratio(row, "rate", REFERENCES.get(figure, ""))
        spread = results.spread(row, "rate")
        lines.append(
            (
                figure,
                f"{who}: {case}",
                values,
                "" if share is None else f"{share:.3f} {REFERENCES[figure]}",
                "" if spread is None else f"{spread:.0%}",
            )
        )
    return table(("figure", "who and how", "medians", "rate / C client", "spread of the rate"), lines)


def _goals(results: Results) -> str:
    lines = []
    for goal in goals(results):
        value = goal.read(results)
        lines.append((goal.number, goal.text, goal.bound, _number(value), goal.verdict(value)))
    return table(("goal", "what", "bound", "measured", "verdict"), lines)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose columns line up."""
    rows = [tuple(head), *map(tuple, lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    texts = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(texts)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
