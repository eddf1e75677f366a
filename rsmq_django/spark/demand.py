"""Sums of five minutes -> the inputs of capacity advice and service objectives: a few numbers for each queue."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from ..core.stats.histogram import bucket_of
from .burn import PERIOD, PERIOD_S, WINDOWS_S, Objective
from .capacity import Demand, arrival_rate_per_s
from .delta import Table
from .sums import DEAD, HOUR_US, SLOT_US, by_key, elements, entries

#: Hours with fewer runs have no mean worth comparing.
_LEAST_RUNS_OF_AN_HOUR = 30


@dataclass(slots=True)
class _Queue:
    """The observed attempts of a queue."""

    attempts: int = 0
    runs: int = 0
    run_s: float = 0.0
    run_s_squared: float = 0.0
    hours: int = 0
    #: Mean run times of hours with enough runs.
    means_s: list[float] = field(default_factory=list)
    #: Five minutes -> messages that arrived in them.
    arrivals: Counter[int] = field(default_factory=Counter)
    workers: set[str] = field(default_factory=set)


def demands(table: Table, days: Collection[dt.date], *, slots_per_worker: int) -> list[Demand]:
    """Return the demand of each queue in some days."""
    queues: dict[str, _Queue] = {}
    for day in sorted(days):
        _see_day(table, day, queues)
    return [_demand(name, queue, slots_per_worker) for name, queue in sorted(queues.items())]


def _see_day(table: Table, day: dt.date, queues: dict[str, _Queue]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = ("at", "queue", "event", "n", "runs", "run_us", "run_s_squared", "arrivals", "workers")
    rows = table.read({day}, names=names)
    at = rows["at"].cast(pa.int64())
    is_attempt = pc.not_equal(rows["event"], "released")
    rows = (
        rows.append_column("slot", pc.divide(at, SLOT_US))
        .append_column("hour", pc.divide(at, HOUR_US))
        .append_column("attempts", pc.if_else(is_attempt, rows["n"], pa.scalar(0, pa.int64())))
    )
    for row in by_key(rows, ("queue", "hour"), ("attempts", "runs", "run_us", "run_s_squared")):
        queue, run_s = queues.setdefault(row["queue"], _Queue()), row["run_us"] / 1e6
        queue.hours += 1
        queue.attempts += row["attempts"]
        queue.runs += row["runs"]
        queue.run_s += run_s
        queue.run_s_squared += row["run_s_squared"]
        if row["runs"] >= _LEAST_RUNS_OF_AN_HOUR and run_s:
            queue.means_s.append(run_s / row["runs"])
    for row in by_key(entries(rows, "arrivals", ("queue", "slot")), ("queue", "slot", "key"), ("n",)):
        queues[row["queue"]].arrivals[row["slot"] - row["key"]] += row["n"]
    for row in by_key(elements(rows, "workers", ("queue",)), ("queue", "key"), ()):
        queues[row["queue"]].workers.add(row["key"])


def _demand(name: str, seen: _Queue, slots_per_worker: int) -> Demand:
    slots = seen.arrivals
    mean_s = seen.run_s / seen.runs if seen.runs else 0.0
    variance = max(0.0, seen.run_s_squared / seen.runs - mean_s**2) if seen.runs else 0.0
    return Demand(
        queue=name,
        attempts=seen.attempts,
        arrivals_per_s=arrival_rate_per_s(slots, slots=max(slots) - min(slots) + 1 if slots else 0),
        mean_run_s=mean_s,
        run_cv_squared=variance / mean_s**2 if mean_s else 0.0,
        attempts_per_hour=seen.attempts / seen.hours,
        run_time_spread=max(seen.means_s) / min(seen.means_s) if seen.means_s else 1.0,
        slots_seen=len(seen.workers) * slots_per_worker,
    )


# -- Objectives --------------------------------------------------------------------------------------------------------

#: Five minutes -> total and bad outcomes.
Outcomes = dict[int, tuple[int, int]]


def newest(table: Table) -> dt.datetime | None:
    """Return the newest five minutes with events; None without any."""
    import pyarrow.compute as pc

    found: dt.datetime | None = pc.max(table.read(table.days[-1:], names=["at"])["at"]).as_py() if table.days else None
    return found


def outcomes(table: Table, objectives: Sequence[Objective], at: dt.datetime) -> dict[tuple[Objective, str], list[int]]:
    """Return the total and the bad outcomes of objectives in the windows that end with five minutes, and the period."""
    end = int(at.timestamp()) + SLOT_US // 1_000_000
    windows = {window: end - seconds for window, seconds in (WINDOWS_S | {PERIOD: PERIOD_S}).items()}
    found = {(objective, window): [0, 0] for objective in objectives for window in windows}
    first = dt.datetime.fromtimestamp(min(windows.values()), dt.UTC).date()
    for day in table.days:
        if not first <= day <= at.date():
            continue
        for objective, begin, total, bad in _outcomes_of(table, day, objectives):
            for window, start in windows.items():
                if start <= begin < end:
                    found[objective, window][0] += total
                    found[objective, window][1] += bad
    return found


def _outcomes_of(
    table: Table, day: dt.date, objectives: Sequence[Objective]
) -> Iterator[tuple[Objective, int, int, int]]:
    """Yield an objective, the time of five minutes in epoch seconds, and total and bad outcomes in them."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    for queue in {objective.queue for objective in objectives}:
        mine = [objective for objective in objectives if objective.queue == queue]
        of_queue = ds.field("queue") == queue
        if any(objective.limit_us is None for objective in mine):
            rows = table.read({day}, names=["at", "event", "n"], where=of_queue)
            for row in by_key(rows, ("at", "event"), ("n",)):
                is_bad = row["event"] in (*DEAD, "lost")
                if is_bad or row["event"] == "succeeded":  # a retry is not a failure
                    for objective in (one for one in mine if one.limit_us is None):
                        yield objective, int(row["at"].timestamp()), row["n"], row["n"] * is_bad
        if any(objective.limit_us is not None for objective in mine):
            where = of_queue & ds.field("is_first")
            rows = entries(table.read({day}, names=["at", "wait_hist"], where=where), "wait_hist", ["at"])
            for objective in mine:
                if objective.limit_us is not None:
                    late = pc.greater(rows["key"], bucket_of(objective.limit_us))
                    judged = rows.append_column("bad", pc.if_else(late, rows["n"], 0))
                    for row in by_key(judged, ("at",), ("n", "bad")):
                        yield objective, int(row["at"].timestamp()), row["n"], row["bad"]
