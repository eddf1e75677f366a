"""The steps other than archive and rollup: analyse, snapshot, dead letters. None needs Spark.

Each may be run at any time, twice, or not at all. Two that run at once do not undo each other's changes: the second
commit is refused, and made again from what the first one has left.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from ..core.errors import BrokenQueue, PermissionDenied
from ..core.keys import events_key
from ..core.transport.streams import name_log
from .anomalies import WEEKS, HourMetrics, find_anomalies
from .burn import PERIOD, WINDOWS_S, budget_left, burn, read_objectives
from .capacity import Advice, advise
from .columns import Rows, arrow_schema
from .config import JobConfig, on_each
from .dead_letters import KEY, DeadLetters
from .delta import EXPIRED, Table
from .demand import demands, newest, outcomes
from .errors import PipelineError, failure_of
from .files import split_batches, write_files
from .lake import Lake, patiently
from .options import Options
from .rollup import StepResult
from .schemas import ANOMALIES, CAPACITY, DEAD_LETTERS, DEPTH, FIVE_MINUTES, HOURLY, SLO
from .snapshot import QueueSnapshot

#: Number of days whose attempts are used for capacity advice.
DEMAND_DAYS = 7


# -- Analysis ----------------------------------------------------------------------------------------------------------


def analyse(config: JobConfig, *, since: dt.date | None = None) -> StepResult:
    """Compute capacity advice, burn rates and anomalies up to the newest event, from its sums. Needs no Spark."""
    lake = config.find_lake()
    sums = lake.open(FIVE_MINUTES)
    at = newest(sums)
    if at is None:
        return StepResult()
    days = [day for day in sums.days if 0 <= (at.date() - day).days < DEMAND_DAYS]
    advice = [
        advise(demand, wait_target_s=config.wait_target_s(demand.queue), quantile=config.wait_quantile)
        for demand in demands(sums, days, slots_per_worker=config.slots_per_worker, wait_quantile=config.wait_quantile)
    ]
    rows_out = lake.write_day(CAPACITY, at.date(), map(_capacity_row, advice))
    rows_out += _write_burns(lake, config, sums, at)
    rows_out += write_anomalies(lake, until=at.date(), since=since)
    return StepResult(sum(item.demand.attempts for item in advice), rows_out, 1)


def _capacity_row(advice: Advice) -> dict[str, Any]:
    row = asdict(advice)
    demand = row.pop("demand")
    return {column.name: (row | demand)[column.name] for column in CAPACITY.columns}


def _write_burns(lake: Lake, config: JobConfig, sums: Table, at: dt.datetime) -> int:
    objectives = read_objectives(config.objectives)
    if not objectives:
        return 0
    found = outcomes(sums, objectives, at)
    burns = []
    for objective in objectives:
        total, bad = found[objective, PERIOD]
        left = budget_left(objective, total=total, bad=bad)
        for window in WINDOWS_S:
            total, bad = found[objective, window]
            burns.append(_burn_row(at, objective, burn(objective, window, total=total, bad=bad), left))
    hour = at.replace(minute=0, second=0, microsecond=0)

    def replace_this_hour(known: Table) -> dict[dt.date, list[dict[str, Any]]]:
        earlier = [row for row in known.read({at.date()}).to_pylist() if row["at"] < hour]
        return {at.date(): [*earlier, *burns]}

    return lake.change_days(SLO, replace_this_hour)


def _burn_row(at: dt.datetime, objective: Any, found: Any, left: float) -> dict[str, Any]:
    return {
        "at": at,
        "queue": objective.queue,
        "objective": objective.name,
        "window": found.window,
        "total": found.total,
        "bad": found.bad,
        "target": objective.target,
        "burn_rate": found.burn_rate,
        "budget_left": left,
    }


def write_anomalies(lake: Lake, *, until: dt.date, since: dt.date | None = None) -> int:
    """Detect anomalies on the last two days until a day, or on all from `since` on. Needs no Spark."""
    hourly = lake.open(HOURLY)
    days = [day for day in hourly.days if day <= until]
    wanted = [day for day in days if (day >= since if since else day > days[-1] - dt.timedelta(days=2))]
    if not wanted:
        return 0
    first = wanted[0] - dt.timedelta(weeks=WEEKS)
    rows = (HourMetrics.of(row) for day in days if first <= day for row in _hours(hourly, day))
    found = find_anomalies(rows, wanted)
    fresh = {day: [asdict(item) for item in found if item.hour.date() == day] for day in wanted}
    return lake.change_days(ANOMALIES, lambda _: fresh)


def _hours(hourly: Table, day: dt.date) -> list[dict[str, Any]]:
    """Return the hourly rows of a day, with histograms only if it was written before percentiles were columns."""
    histograms = ("wait_hist", "run_hist")
    names = [column.name for column in hourly.definition.columns if column.name not in histograms]
    rows = hourly.read({day}, names=names)
    has_percentiles = any(rows[name].null_count < len(rows) for name in ("wait_p95_us", "run_p95_us"))
    found: list[dict[str, Any]] = (rows if has_percentiles else hourly.read({day})).to_pylist()
    return found


# -- Snapshot ----------------------------------------------------------------------------------------------------------


def snapshot(config: JobConfig, *, queues: Sequence[str] = ()) -> StepResult:
    """Add the current depth and age of the queues to the table of depths. Needs no Spark.

    Queues of the same name on several connections are one row; with shards, that is the queue as a whole.
    """
    depths: dict[str, dict[str, Any]] = {}
    taken: list[dt.datetime] = []
    broken: dict[str, Exception] = {}
    sources, logs = config.sources(), set[str]()

    def count(given: Options) -> None:
        reader = QueueSnapshot(given)
        log = _log_of(reader) if len(sources) > 1 else ""
        if log and log in logs:
            reader.server.close()
            return  # the same namespace by another address
        logs.add(log)
        now_us = reader.server.now_us()
        at = taken[0] if taken else dt.datetime.fromtimestamp(now_us / 1e6, dt.UTC)
        found: dict[str, dict[str, Any]] = {}
        for queue in queues or reader.all_queues():  # one by one: the plan has the ids of all messages
            depth = _no_messages(at, queue)
            try:
                for part in reader.plan_queue(queue):
                    for messages in reader.read(part):
                        _add_messages(depth, messages, now_us)
                found[queue] = depth
            except (BrokenQueue, PipelineError) as error:
                broken[queue] = error
        reader.server.close()
        taken.append(at)
        _add_depths(depths, found)

    failure = on_each(sources, count, queue=",".join(queues))
    if taken:
        config.find_lake().append(DEPTH, taken[0].date(), [depths[queue] for queue in sorted(depths)])
    if failure or broken:
        raise failure or failure_of(broken)
    rows_in = sum(row["waiting"] + row["delayed"] + row["in_flight"] for row in depths.values())
    return StepResult(rows_in, len(depths), 1)


def _log_of(reader: QueueSnapshot) -> str:
    """Return the identity of a namespace's log of events; "" without a log, and for one that cannot be read."""
    with suppress(BrokenQueue, PermissionDenied):
        return reader.server.run(name_log(events_key(reader.options.namespace)))
    return ""


def _no_messages(at: dt.datetime, queue: str) -> dict[str, Any]:
    counts = ("waiting", "delayed", "in_flight", "body_bytes", "max_receive_count")
    return {"taken_at": at, "queue": queue, "oldest_age_us": None} | dict.fromkeys(counts, 0)


def _add_messages(depth: dict[str, Any], messages: Rows, now_us: int) -> None:
    """Count messages. Without a known time, as of a client that stores seconds, a message is waiting."""
    names = ("visible_at", "receive_count", "body")
    for visible_us, count, body in zip(*(messages[name] for name in names), strict=True):
        if visible_us is None or visible_us <= now_us:
            depth["waiting"] += 1
            if visible_us is not None:
                depth["oldest_age_us"] = max(depth["oldest_age_us"] or 0, now_us - visible_us)
        else:
            depth["in_flight" if count else "delayed"] += 1
        depth["body_bytes"] += len(body)
        depth["max_receive_count"] = max(depth["max_receive_count"], count)


def _add_depths(depths: dict[str, dict[str, Any]], found: Mapping[str, dict[str, Any]]) -> None:
    """Add the depths on a connection to those of the others."""
    for queue, row in found.items():
        depth = depths.setdefault(queue, _no_messages(row["taken_at"], queue))
        for name in ("waiting", "delayed", "in_flight", "body_bytes"):
            depth[name] += row[name]
        depth["max_receive_count"] = max(depth["max_receive_count"], row["max_receive_count"])
        ages = [age for age in (depth["oldest_age_us"], row["oldest_age_us"]) if age is not None]
        depth["oldest_age_us"] = max(ages, default=None)


# -- Dead letters ------------------------------------------------------------------------------------------------------


def archive_dead_letters(config: JobConfig, *, queues: Sequence[str] = ()) -> StepResult:
    """Add the current dead letters to the archive, part by part; rows out are the new ones. Needs no Spark."""
    import pyarrow as pa

    lake, schema = config.find_lake(), arrow_schema(DEAD_LETTERS.columns)
    rows: Counter[str] = Counter()
    broken: dict[str, Exception] = {}

    def add(given: Options) -> None:
        letters = DeadLetters(given)
        for queue in letters.queues():
            try:
                for part in letters.snapshot.plan_queue(queue):
                    batches = [pa.RecordBatch.from_pydict(rows, schema=schema) for rows in letters.read(part)]
                    found = pa.Table.from_batches(batches, schema)
                    rows["in"] += len(found)
                    rows["out"] += patiently(partial(_add_letters, lake, found))
            except BrokenQueue as error:
                broken[queue] = error
        letters.snapshot.server.close()

    failure = on_each(config.sources(), add, kind="dead", queue=",".join(queues))
    if failure or broken:
        raise failure or failure_of(broken)
    return StepResult(rows["in"], rows["out"])


def _add_letters(lake: Lake, letters: Any) -> int:
    """Add the letters that are not in the table and whose day has not expired; return their number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = lake.open(DEAD_LETTERS, create=True)
    letters = letters.append_column("dt", letters["died_at"].cast(pa.date32()))
    expired = dt.date.fromordinal(table.mark(EXPIRED) or 1)
    letters = letters.filter(pc.greater(letters["dt"], pa.scalar(expired, pa.date32())))
    known = table.read(set(pc.unique(letters["dt"]).to_pylist()), names=KEY)
    fresh = letters.join(known, [*KEY], join_type="left anti")
    files = write_files(table.uri, split_batches(fresh.to_batches(), DEAD_LETTERS.columns), DEAD_LETTERS.columns)
    if files:
        table.commit(files, replaces=True)
    return sum(file.rows for file in files)
