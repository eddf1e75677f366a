"""Burn rates of the error budgets of service level objectives. Plain Python.

An objective of 99.9 % allows one bad outcome in a thousand; a burn rate of 1 uses the budget up exactly in its period,
14.4 in a fiftieth of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import PipelineError

#: Windows and their usual alarms for a period of 30 days: page at 14.4 and 6, a ticket at 1.
WINDOWS_S = {"1h": 3600, "6h": 6 * 3600, "3d": 3 * 86_400}
ALARMS = {"1h": 14.4, "6h": 6.0, "3d": 1.0}
SEVERITIES = {"1h": "page", "6h": "page", "3d": "ticket"}
#: Period of the remaining budget.
PERIOD = "30d"
PERIOD_S = 30 * 86_400

_WAIT = re.compile(r"wait_p(\d{1,2}(?:\.\d+)?)_ms")


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective of one queue."""

    queue: str
    #: Key in the settings: "success" or "wait_p95_ms".
    name: str
    #: Share of good outcomes.
    target: float
    #: For latency: longer ones are bad.
    limit_us: int | None = None


@dataclass(frozen=True, slots=True)
class Burn:
    """The burn rate of an objective in a window."""

    objective: Objective
    window: str
    total: int
    bad: int
    burn_rate: float


def read_objectives(given: Mapping[str, Mapping[str, Any]]) -> list[Objective]:
    """Return objectives from {"mail": {"wait_p95_ms": 2000, "success": 0.999}}. Raises PipelineError for errors."""
    found = []
    for queue, wanted in given.items():
        for name, value in wanted.items():
            wait = _WAIT.fullmatch(name)
            if wait and value > 0:
                found.append(Objective(queue, name, float(wait[1]) / 100, int(value * 1000)))
            elif name == "success" and 0 < value < 1:
                found.append(Objective(queue, name, float(value)))
            else:
                raise PipelineError(
                    f"objective {name!r} = {value!r} of queue {queue!r} is invalid; use 'success': 0.999 or "
                    "'wait_p95_ms': 2000"
                )
    return found


def burn(objective: Objective, window: str, *, total: int, bad: int) -> Burn:
    """Return the burn rate; 0 without attempts."""
    rate = bad / total / (1 - objective.target) if total and objective.target < 1 else 0.0
    return Burn(objective, window, total, bad, rate)


def budget_left(objective: Objective, *, total: int, bad: int) -> float:
    """Return the remaining share of the period's budget; negative if overdrawn."""
    return 1 - burn(objective, PERIOD, total=total, bad=bad).burn_rate
