"""The tables that a run prints, in Markdown; the last ones are those of the pages about benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .candidates import OURS
from .goals import NOT_MEASURED, Goal, goals
from .results import Results, Row
from .texts import number, table
from .users_table import users_table


def report(results: Results) -> str:
    """Return everything that a run found."""
    machine = [f"- {name}: {value}" for name, value in results.machine.items()]
    yardstick = ", ".join(f"{name} {number(results.reference(name))}/s" for name in ("L_send", "L_cycle", "L_send1"))
    costs = ", ".join(
        f"{name} {number(results.reference(name))}"
        for name in ("send1_client_us", "send_server_us", "cycle_server_us", "send1_server_us", "cycle1_server_us")
    )
    parts = ["\n".join([*machine, f"- C client: {yardstick}; {costs}"]), _measurements(results)]
    has_peers = any(who != OURS.name for _, who, _ in results.rows())
    if has_peers:
        parts.append(_side_by_side(results))
    parts.append(_goals([goal for goal in goals(results) if goal.number[0] != "Q"], results))
    parts += ["For benchmarks/README.md:", _goals([goal for goal in goals(results) if goal.number[0] == "Q"], results)]
    if has_peers:
        parts += ["For docs/explanation/benchmarks.md:", users_table(results)]
    return "\n\n".join(parts) + "\n"


def _measurements(results: Results) -> str:
    lines = []
    for row in results.rows():
        values = "; ".join(_with_extremes(results, row, name) for name in results.values(row))
        yardstick = _yardstick(row)
        shares = results.ratios(row, "rate", yardstick) if yardstick else []
        lines.append(
            (
                row[0],
                f"{row[1]}: {row[2]}",
                values,
                _share(shares, yardstick),
            )
        )
    return table(("figure", "who and how", "medians (least to most)", "rate / C client (least to most)"), lines)


def _with_extremes(results: Results, row: Row, name: str) -> str:
    """Return a median, and of the rate and the 99th percentile also the least and the most."""
    text, extremes = f"{name} {number(results.median(row, name))}", results.extremes(row, name)
    if extremes is None or name not in ("rate", "p99_ms"):
        return text
    return f"{text} ({number(extremes[0])} to {number(extremes[1])})"


def _share(shares: Sequence[float], yardstick: str | None) -> str:
    if not shares:
        return ""
    extremes = f" ({min(shares):.3f} to {max(shares):.3f})" if len(shares) > 1 else ""
    return f"{statistics.median(shares):.3f} {yardstick}{extremes}"


def _yardstick(row: Row) -> str | None:
    figure, _, case = row
    if figure == "enqueue":
        return "L_send1" if case.startswith("one") and "transaction" not in case else "L_send"
    return "L_cycle" if figure in ("drain", "queues") else None


def _side_by_side(results: Results) -> str:
    """Return a line per candidate and way to run it."""
    lines = []
    for figure, who, case in results.rows():
        if figure != "drain":
            continue

        def shown(where: Row, *values: str) -> str:
            return " / ".join(number(results.median(where, value)) for value in values)

        sending = ", results kept" if "results kept" in case else ""
        lines.append(
            (
                f"{who}: {case}",
                shown((figure, who, case), "rate"),
                shown((figure, who, case), "worker_us", "server_us"),
                shown(("enqueue", who, f"one{sending}"), "rate"),
                shown(("enqueue", who, f"bulk{sending}"), "rate"),
                shown(("latency", who, "publishing sender"), "p50_ms", "p99_ms"),
            )
        )
    head = ("who", "drain, tasks/s", "worker / server us", "enqueue one/s", "bulk/s", "idle latency p50 / p99 ms")
    return table(head, lines)


def _goals(judged: Sequence[Goal], results: Results) -> str:
    lines, unmeasured = [], 0
    for goal in judged:
        value = goal.read(results)
        if value is None and goal.missing == NOT_MEASURED:
            unmeasured += 1
            continue
        lines.append((goal.number, goal.text, goal.bound, number(value), goal.verdict(value)))
    text = table(("goal", "what", "bound", "measured", "verdict"), lines)
    return f"{text}\n\nGoals {NOT_MEASURED} in this run: {unmeasured}." if unmeasured else text
