"""All figures of the pipeline, computed from all events in plain Python, with none of the code of the sums."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from rsmq_django.core.stats.histogram import Histogram, bucket_of
from rsmq_django.spark.burn import PERIOD, PERIOD_S, WINDOWS_S, Objective

DEAD = ("dead", "discarded")
Events = Iterable[dict[str, Any]]


def _grouped(events: Events, key: Any) -> dict[Any, list[dict[str, Any]]]:
    found = defaultdict(list)
    for event in events:
        found[key(event)].append(event)
    return found


def _slot(at: dt.datetime) -> int:
    return int(at.timestamp() // 300)


def _hour(event: dict[str, Any]) -> dt.datetime:
    at: dt.datetime = event["event_at"]
    return at.replace(minute=0, second=0, microsecond=0)


def _times(events: Events, name: str) -> list[int]:
    return [event[name] for event in events if event[name] is not None]


def hours(events: Events) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the hourly rows by hour, queue and task."""
    found = {}
    for key, rows in _grouped(events, lambda one: (_hour(one), one["queue"], one["task"])).items():
        attempts = [row for row in rows if row["event"] != "released"]
        kinds = Counter("dead" if row["event"] in DEAD else row["event"] for row in rows)
        waits, runs = _times(rows, "wait_us"), _times(rows, "run_us")
        found[key] = {
            "attempts": len(attempts),
            "first_attempts": sum(row["attempt"] == 1 for row in attempts),
            **{name: kinds[name] for name in ("succeeded", "retried", "dead", "released", "lost", "cancelled")},
            "busy_us": sum(runs),
            "run_s_squared": round(sum((run / 1e6) ** 2 for run in runs), 9),
            "body_bytes": sum(_times(rows, "body_bytes")),
            "workers": len({row["worker"] for row in rows if row["worker"]}),
            "wait_hist": Histogram.of(waits).counts,
            "run_hist": Histogram.of(runs).counts,
            "wait_p95_us": Histogram.of(waits).quantile_us(0.95),
            "run_p95_us": Histogram.of(runs).quantile_us(0.95),
        }
    return found


def failures(events: Events) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the groups of failures by day, task, fingerprint and kind of error."""
    found = {}
    failed = [event for event in events if event["fingerprint"]]
    for key, rows in _grouped(
        failed, lambda one: (one["event_at"].date(), one["task"], one["fingerprint"], one["error_type"])
    ).items():
        last = max(rows, key=lambda row: row["event_at"])
        found[key] = {
            "n": len(rows),
            "retried": sum(row["event"] == "retried" for row in rows),
            "dead": sum(row["event"] in DEAD for row in rows),
            "first_at": min(row["event_at"] for row in rows),
            "last_at": last["event_at"],
            "sample": last["error"],
            "sample_task_id": last["task_id"],
            "queues": sorted({row["queue"] for row in rows}),
            "workers": len({row["worker"] for row in rows if row["worker"]}),
        }
    return found


def demands(events: Events, *, slots_per_worker: int) -> dict[str, dict[str, Any]]:
    """Return what capacity advice is computed from, by queue."""
    found = {}
    for queue, rows in _grouped(events, lambda one: one["queue"]).items():
        attempts = [row for row in rows if row["event"] != "released"]
        slots = Counter(_slot((row["attempt"] == 1 and row["enqueued_at"]) or row["event_at"]) for row in attempts)
        every = sorted(slots.get(slot, 0) for slot in range(min(slots), max(slots) + 1))
        runs_s = [run / 1e6 for run in _times(rows, "run_us")]
        mean_s = sum(runs_s) / len(runs_s)
        means = [
            sum(runs) / len(runs)
            for hour in _grouped(rows, _hour).values()
            if len(runs := _times(hour, "run_us")) >= 30 and sum(runs)
        ]
        found[queue] = {
            "attempts": len(attempts),
            "arrivals_per_s": every[-(-len(every) * 95 // 100) - 1] / 300,
            "mean_run_s": mean_s,
            "run_cv_squared": sum((run - mean_s) ** 2 for run in runs_s) / len(runs_s) / mean_s**2,
            "attempts_per_hour": len(attempts) / len({_hour(row) for row in rows}),
            "run_time_spread": max(means) / min(means) if means else 1.0,
            "slots_seen": slots_per_worker * _workers_at_once(rows),
            "wait_s": Histogram.of(
                row["wait_us"] for row in rows if row["attempt"] == 1 and row["wait_us"] is not None
            ).quantile_us(0.95)
            / 1e6,
        }
    return found


def _workers_at_once(events: Events) -> int:
    """Return the 95th percentile of the workers at each end of five minutes at which there were any."""
    spans = [
        ({_slot(row["event_at"]) for row in rows})
        for worker, rows in _grouped(events, lambda one: one["worker"]).items()
        if worker
    ]
    ends = [slot for span in spans for slot in range(min(span), max(span))]
    counts = sorted(Counter(ends).values())
    return counts[-(-len(counts) * 95 // 100) - 1] if counts else len(spans)


def outcomes(events: list[dict[str, Any]], objectives: Iterable[Objective]) -> dict[tuple[str, str, str], list[int]]:
    """Return total and bad outcomes by queue, objective and window: windows are whole spans of five minutes."""
    end = (max(_slot(event["event_at"]) for event in events) + 1) * 300
    found = {}
    for objective in objectives:
        for window, seconds in (WINDOWS_S | {PERIOD: PERIOD_S}).items():
            rows = [
                event
                for event in events
                if event["queue"] == objective.queue and end - seconds <= event["event_at"].timestamp() < end
            ]
            if objective.limit_us is None:
                judged = [row["event"] != "succeeded" for row in rows if row["event"] in ("succeeded", *DEAD, "lost")]
            else:
                limit = bucket_of(objective.limit_us)
                waits = [row["wait_us"] for row in rows if row["attempt"] == 1 and row["wait_us"] is not None]
                judged = [bucket_of(wait) > limit for wait in waits]
            found[objective.queue, objective.name, window] = [len(judged), sum(judged)]
    return found
