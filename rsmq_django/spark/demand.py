"""Sums of five minutes -> the inputs of capacity advice and service objectives: a few numbers for each queue."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..core.queue.bands import bands_of
from ..core.stats.histogram import Histogram, bucket_of
from .burn import PERIOD, PERIOD_S, WINDOWS_S, Objective
from .capacity import ARRIVAL_QUANTILE, DEFAULT_QUANTILE, Demand, arrival_rate_per_s
from .delta import Table
from .schemas import MOST_AHEAD_S
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
    #: Latencies of first attempts.
    waits: Histogram = field(default_factory=Histogram)
    #: Worker -> the first and the last five minutes with attempts of it.
    workers: dict[str, tuple[int, int]] = field(default_factory=dict)


def demands(
    table: Table, days: Collection[dt.date], *, slots_per_worker: int, wait_quantile: float = DEFAULT_QUANTILE
) -> list[Demand]:
    """Return the demand of each queue in some days."""
    queues: dict[str, _Queue] = {}
    for day in sorted(days):
        _see_day(table, day, queues)
    return [_demand(name, queue, slots_per_worker, wait_quantile) for name, queue in sorted(queues.items())]


def _see_day(table: Table, day: dt.date, queues: dict[str, _Queue]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = "at queue event is_first n runs run_us run_s_squared wait_hist arrivals workers"
    rows = table.read({day}, names=names.split())
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
    waits = entries(rows.filter(rows["is_first"]), "wait_hist", ("queue",))
    for row in by_key(waits, ("queue", "key"), ("n",)):
        queues[row["queue"]].waits.add_counts({row["key"]: row["n"]})
    seen = elements(rows, "workers", ("queue", "slot")).group_by(["queue", "key"])
    for row in seen.aggregate([("slot", "min"), ("slot", "max")]).to_pylist():
        workers, first, last = queues[row["queue"]].workers, row["slot_min"], row["slot_max"]
        workers[row["key"]] = min(workers.get(row["key"], (first, last))[0], first), last


def workers_at_once(spans: Collection[tuple[int, int]]) -> int:
    """Return how many workers ran at the same time: the 95th percentile, of the time in which any did.

    Those are counted that ran before and after the moment between two times of five minutes: a worker that is started
    again has another name, and both names may be in the same five minutes. Of spans within five minutes, all count.
    """
    changes: Counter[int] = Counter()
    for first, last in spans:
        changes[first] += 1
        changes[last] -= 1
    lengths: Counter[int] = Counter()
    times, running = sorted(changes), 0
    for time, following in pairwise(times):
        running += changes[time]
        lengths[running] += (following - time) * (running > 0)
    left = ARRIVAL_QUANTILE * lengths.total()
    for count in sorted(+lengths):
        left -= lengths[count]
        if left <= 0:
            return count
    return len(spans)


def _demand(name: str, seen: _Queue, slots_per_worker: int, wait_quantile: float) -> Demand:
    slots, wait_us = seen.arrivals, seen.waits.quantile_us(wait_quantile)
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
        slots_seen=workers_at_once(seen.workers.values()) * slots_per_worker,
        wait_s=None if wait_us is None else wait_us / 1e6,
    )


# -- Objectives --------------------------------------------------------------------------------------------------------

#: Five minutes -> total and bad outcomes.
Outcomes = dict[int, tuple[int, int]]


def newest(table: Table) -> dt.datetime | None:
    """Return the newest time of a row that is not in the future; None without any."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    latest, time = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=MOST_AHEAD_S), table.definition.time
    for day in reversed(table.days):
        if day <= latest.date():
            found: dt.datetime | None = pc.max(
                table.read({day}, names=[time], where=ds.field(time) <= latest)[time]
            ).as_py()
            if found is not None:
                return found
    return None


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
    """Yield an objective, the time of five minutes in epoch seconds, and total and bad outcomes in them.

    Outcomes of a queue include those of its priority bands and lanes, which have names of their own.
    """
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    names = pc.unique(table.read({day}, names=["queue"])["queue"]).to_pylist()
    for queue in {objective.queue for objective in objectives}:
        mine = [objective for objective in objectives if objective.queue == queue]
        of_queue = ds.field("queue").isin(bands_of(queue, names))
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
