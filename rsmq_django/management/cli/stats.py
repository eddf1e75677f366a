"""`manage.py rsmqctl stats`, also `rsmq_stats`: depth of queues, recent counts and times per queue and task."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ...cli.failures import Failed, failed_on
from ...cli.options import RsmqctlCommand
from ...cli.output import TextTable, as_duration, can_redraw, printable, write_json
from ...cli.session import Session
from ...cli.statistics import Screen
from ...conf.settings import get_settings
from ...core import RsmqError
from ...core.errors import RedisFailure
from ...core.stats.depth import Depth
from ...core.stats.histogram import Histogram
from ...core.stats.history import COUNTERS, RESOLUTIONS, Counts, Slot, Window
from ...live.overview import QueueActivity, look_at, with_shards_together

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST_S = RESOLUTIONS[-1].keep_s
#: Maximum width of the curve.
CURVE_POINTS = 30
HEIGHTS = "▁▂▃▄▅▆▇█"
HEADERS = ["QUEUE / TASK", "READY", "DELAYED", "IN FLIGHT", "OLDEST", "WORKERS", "SENT", "OK", "FAILED", "DEAD"]
HEADERS += ["WAIT p50", "p95", "RUN p50", "p95", "ENDED"]


class PositiveDuration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """90s, 15m, 1h or 7d, up to the time for which counts are kept."""

    name = "duration"
    #: What a number means that a program gives to call_command().
    unit_of_numbers = "s"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", value.strip())
        seconds = float(match[1]) * UNITS_S[match[2]] if match else 0
        if not 0 < seconds <= LONGEST_S:
            self.fail(f"{value!r} is not a duration up to {as_duration(LONGEST_S)}, such as 30s, 15m, 1h or 7d", param)
        return seconds


@click.command(cls=RsmqctlCommand)
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@click.option(
    "--since", type=PositiveDuration(), default="1h", show_default=True, metavar="TIME", help="15m, 1h, 24h, 7d."
)
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the N queues with the most attempts.")
@click.option("--trouble", is_flag=True, help="Only queues with a problem, and the problem.")
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--interval",
    type=PositiveDuration(),
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Time between refreshes.",
)
@click.pass_obj
def stats(
    session: Session,
    /,
    *,
    queues: tuple[str, ...],
    since: float,
    top: int | None,
    trouble: bool,
    watch: bool,
    interval: float,
) -> None:
    """Show depth of queues and recent counts, latency and run time, per queue and task.

    SENT of a queue counts messages sent by any client; SENT of a task counts messages that workers have received so
    far, without the backlog. WORKERS counts the live worker processes that consume the queue, or the live consumers of
    a topic group. Problems: no worker (ready messages, but no live worker consumes the queue), late (backlog older than
    a minute), paused, dead letters, broken. Reliable queues, and topic groups as topic:group, are listed after the
    other queues. A queue with SHARDS is one row; --connection default.1 shows one shard. FAILED counts attempts that
    are retried, went to the dead-letter queue, or were lost with their process. The curve at the end of a row shows
    how many attempts ended, from --since until now. With --json, one object per queue and line. `queue stats` shows
    queues as any client sees them.

    \b
    rsmqctl stats mail --since 24h      one queue, the last day
    rsmqctl stats --trouble             only queues with a problem, and the problem
    rsmqctl stats --top 5 --watch       the five busiest queues, refreshed every two seconds
    """
    screen = Screen() if watch and not session.json and can_redraw(sys.stdout) else None
    try:
        while True:
            found, silent = read(session, queues, since)
            views = chosen(found, most=top, only_trouble=trouble)
            if session.json:
                for view in views:
                    write_json(as_data(view))
            elif screen:
                screen.show(trouble_table(views) if trouble else table(views))
            else:
                click.echo("\n".join(trouble_table(views) if trouble else table(views)))
            if silent:
                raise failed_on(silent)
            if not watch:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        if not watch:
            raise


def read(session: Session, names: Sequence[str], since_s: float) -> tuple[list[QueueActivity], list[RedisFailure]]:
    """Return the statistics of the chosen queues, and the errors of servers while others answer."""
    views, silent = list[QueueActivity](), list[RedisFailure]()
    window = Window.of(time.time() - since_s)
    for alias in session.aliases or get_settings().connections:
        get_settings().connection(alias)
        try:
            views += look_at(alias, names, window)
        except RedisFailure as failure:
            silent.append(failure)
    unknown = set(names) - {view.name for view in views}
    if silent and not views:
        raise silent[0]
    if unknown and not silent:
        raise Failed(
            "queueNotFound",
            f"queue not found: {', '.join(map(repr, sorted(unknown)))}; 'rsmqctl queue list' lists all queues",
        )
    return views if session.aliases else with_shards_together(views), silent


def chosen(views: Sequence[QueueActivity], *, most: int | None, only_trouble: bool) -> list[QueueActivity]:
    """Return the queues selected by the options: with a problem, or the busiest first."""
    left = [view for view in views if view.trouble or not only_trouble]
    return left if most is None else sorted(left, key=lambda view: view.activity, reverse=True)[:most]


# -- Text output -------------------------------------------------------------------------------------------------------


def table(views: Sequence[QueueActivity]) -> list[str]:
    """Return the lines of a table with a row for each queue, followed by rows for its tasks."""
    rows = [row for view in views for row in queue_rows(view)]
    lines = TextTable(HEADERS, right=HEADERS[1:-1]).lines(rows)
    return lines if rows else ["there are no queues yet"]


def trouble_table(views: Sequence[QueueActivity]) -> list[str]:
    """Return the lines of a table of queues with their problems."""
    rows = [[*next(queue_rows(view))[:6], ", ".join(view.trouble)] for view in views]
    lines = TextTable([*HEADERS[:6], "PROBLEM"], right=HEADERS[1:6]).lines(rows)
    return lines if rows else ["no queue has a problem"]


def queue_rows(view: QueueActivity) -> Iterator[list[str]]:
    """Yield the row of a queue and those of its tasks, the busiest first."""
    if isinstance(view.now, RsmqError):
        yield [printable(view.name), "broken", *[""] * (len(HEADERS) - 2)]
        return
    total = view.sums.total
    sign = "~" if view.now.is_estimated else ""
    lengths = [str(view.now.ready), f"{sign}{view.now.delayed}", f"{sign}{view.now.in_flight}"]
    sent = sent_of(view)
    oldest = "-" if view.now.oldest_ready_s is None else as_duration(view.now.oldest_ready_s)
    yield [
        printable(view.name),
        *lengths,
        oldest,
        "-" if view.workers is None else str(view.workers),
        "?" if sent is None else str(sent),
        *count_cells(total.counts),
        curve(view.sums.ended),
    ]
    for task, counts in sorted(total.tasks.items(), key=lambda each: -each[1].ended):
        name = f"  {printable(task) or '(no task)'}"
        yield [name, *[""] * 5, str(counts.sent), *count_cells(counts), curve(view.sums.ended_by_task[task])]


def sent_of(view: QueueActivity) -> int | None:
    """Return how many messages any client sent to a queue, or to all its shards; None if that is not known."""
    if not view.shards:
        known = view.kind == "queue" and isinstance(view.now, Depth)
        return sent_by_now(view.sums.total, view.now) if known else None  # type: ignore[arg-type]
    sent = [sent_of(shard) for shard in view.shards]
    return None if None in sent else sum(number or 0 for number in sent)


def sent_by_now(recent: Slot, now: Depth) -> int | None:
    """Return how many messages any client sent in this time; None if no earlier count was recorded.

    A queue created since then started at 0, with or without a recorded count.
    """
    if now.created_s is not None and now.created_s >= recent.begins_s:
        return now.total_sent
    if recent.sent is None or recent.depth is None:
        return None
    return recent.sent + max(0, now.total_sent - recent.depth.total_sent)


def count_cells(counts: Counts) -> list[str]:
    """Return the cells of attempts by outcome, and quantiles of their times."""
    numbers = [str(number) for number in (counts.succeeded, counts.failed, counts.dead)]
    return [*numbers, *quantile_cells(counts.wait), *quantile_cells(counts.run)]


def quantile_cells(histogram: Histogram) -> list[str]:
    """Return median and 95th percentile."""
    found = [histogram.quantile_us(share) for share in (0.5, 0.95)]
    return ["-" if us is None else as_short_time(us) for us in found]


def as_short_time(us: float) -> str:
    """Return 250 as 250us, 1500 as 1.5ms, and longer times as as_duration() has them."""
    if us < 1000:
        return f"{us:.0f}us"
    return f"{us / 1000:.1f}ms" if us < 10_000 else as_duration(us / 1e6)


def curve(numbers: Sequence[int]) -> str:
    """Return a curve of numbers over time, drawn with block characters."""
    each = max(1, -(-len(numbers) // CURVE_POINTS))
    sums = [sum(numbers[at : at + each]) for at in range(0, len(numbers), each)]
    most = max(sums, default=0)
    return "".join(HEIGHTS[-(-number * (len(HEIGHTS) - 1) // most)] if most else HEIGHTS[0] for number in sums)


# -- JSON output -----------------------------------------------------------------------------------------------------


def as_data(view: QueueActivity) -> dict[str, Any]:
    """Return the JSON object of a queue."""
    if isinstance(view.now, RsmqError):
        return {"connection": view.connection, "queue": view.name, "error": str(view.now), "trouble": view.trouble}
    total, now = view.sums.total, view.now
    return {
        "connection": view.connection,
        "queue": view.name,
        "kind": view.kind,
        "ready": now.ready,
        "delayed": now.delayed,
        "in_flight": now.in_flight,
        "oldest_ready_s": now.oldest_ready_s,
        "workers": view.workers,
        "trouble": view.trouble,
        "since_s": total.begins_s,
        **counts_as_data(total.counts),
        "sent": sent_of(view),
        "tasks": {task: counts_as_data(counts) for task, counts in sorted(total.tasks.items())},
    }


def counts_as_data(counts: Counts) -> dict[str, Any]:
    """Return the JSON object of counts; times are microseconds."""
    times = {"wait": counts.wait, "run": counts.run}
    quantiles = {
        f"{name}_p{percent}_us": histogram.quantile_us(percent / 100)
        for name, histogram in times.items()
        for percent in (50, 95, 99)
    }
    return {name: getattr(counts, name) for name in (*COUNTERS, "failed")} | quantiles
