"""What many seeds have shown, in a few lines."""

from __future__ import annotations

from collections import Counter

from tests.simulation.run import Outcome

COLUMNS = "{:>7}{:>14}{:>10}{:>10}{:>10}{:>7}{:>10}{:>9}{:>8}{:>13}{:>12}"
HEAD = (
    "seeds",
    "worker-hours",
    "calls",
    "unknown",
    "refused",
    "dead",
    "repeated",
    "faults",
    "struck",
    "exchanges",
    "violations",
)


class Table:
    """Sums of outcomes."""

    def __init__(self) -> None:
        self.worker_h, self.violations = 0.0, 0
        self._sums: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._struck: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of a seed."""
        report, struck = outcome.report, Counter(outcome.counts)
        self.worker_h += outcome.worker_s / 3600
        self.violations += bool(outcome.problems)
        self._sums["seeds"] += 1
        self._sums["calls"] += report.acknowledged
        self._sums["exchanges"] += struck.pop("exchanges", 0)
        for name in ("unknown", "refused", "dead", "repeated"):
            self._sums[name] += getattr(report, name)
        self._faults.update(step.kind for step in outcome.steps)
        self._struck += struck

    def text(self, took_s: float) -> str:
        """Return the table, and how fast it was."""
        sums = self._sums
        words = [sums["seeds"], f"{self.worker_h:,.1f}", *(f"{sums[name]:,}" for name in HEAD[2:7])]
        words += [f"{self._faults.total():,}", f"{self._struck.total():,}", f"{sums['exchanges']:,}", self.violations]
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self._faults.items()))
        speed = f"{took_s / 60:.1f} minutes, {self.worker_h / took_s * 60:.1f} worker-hours a minute"
        return "\n".join([COLUMNS.format(*HEAD), COLUMNS.format(*words), f"faults: {faults}", speed])
