"""`./manage.py rsmq_stats`: depth of queues, and recent counts and times per queue and task."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...cli.output import TextTable, as_duration, can_redraw, printable
from ...conf.settings import get_settings
from ...core import RsmqError
from ...core.stats.counters import COUNTERS, RESOLUTIONS, Counts, Slot, merged
from ...core.stats.depth import Depth
from ...core.stats.histogram import Histogram
from ...live.overview import QueueActivity, look_at

EPILOG = """
examples:
  manage.py rsmq_stats                     every queue, the last hour
  manage.py rsmq_stats mail --since 24h    one queue, the last day
  manage.py rsmq_stats --trouble           only queues with a problem, and the problem
  manage.py rsmq_stats --top 5 --watch     the five busiest queues, refreshed every two seconds
  manage.py rsmq_stats --json              one JSON object per queue, for programs

SENT of a queue counts messages sent by any client; SENT of a task counts messages that workers have received so far,
without the backlog. WORKERS counts the live worker processes that consume the queue, or the live consumers of a topic
group. Problems: no worker (ready messages, but no live worker consumes the queue), late (backlog older than a minute),
paused, dead letters, broken. Reliable queues, and topic groups as topic:group, are listed after the other queues.
FAILED counts attempts that are retried, went to the dead-letter queue, or were lost with their process. The curve
at the end of a row shows how many attempts ended, from --since until now.
"""

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST_S = RESOLUTIONS[-1].keep_s
#: Maximum width of the curve.
CURVE_POINTS = 30
HEIGHTS = "▁▂▃▄▅▆▇█"
HOME, CLEAR = "\x1b[H", "\x1b[2J"
HEADERS = ["QUEUE / TASK", "READY", "DELAYED", "IN FLIGHT", "OLDEST", "WORKERS", "SENT", "OK", "FAILED", "DEAD"]
HEADERS += ["WAIT p50", "p95", "RUN p50", "p95", "ENDED"]


class Command(BaseCommand):
    """The management command."""

    help = "Shows depth of queues and recent counts, latency and run time, per queue and task."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the examples."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("queues", nargs="*", metavar="QUEUE", help="only these queues; default: all")
        parser.add_argument(
            "--connection", action="append", metavar="ALIAS", help="only this connection; can be repeated"
        )
        parser.add_argument("--since", type=duration_s, default=3600, metavar="TIME", help="15m, 1h (default), 24h, 7d")
        parser.add_argument("--top", type=count, metavar="N", help="only the N queues with the most attempts")
        parser.add_argument("--trouble", action="store_true", help="only queues with a problem, and the problem")
        parser.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
        parser.add_argument(
            "--interval", type=duration_s, default=2, metavar="TIME", help="time between refreshes (default: 2s)"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the statistics once, or refresh them until Ctrl-C."""
        redraws = options["watch"] and not options["as_json"] and can_redraw(sys.stdout)
        if redraws:
            self.stdout.write(CLEAR, ending="")
        try:
            while True:
                views = self.read(options["connection"], options["queues"], options["since"])
                views = chosen(views, most=options["top"], only_trouble=options["trouble"])
                text = "\n".join(map(as_json, views)) if options["as_json"] else self.table(views, options["trouble"])
                self.stdout.write(redrawn(text) if redraws else text)
                self.stdout.flush()
                if not options["watch"]:
                    return
                time.sleep(options["interval"])
        except KeyboardInterrupt:
            return

    def table(self, views: Sequence[QueueActivity], only_trouble: bool) -> str:
        """Return the table, without colours if the output is not a terminal."""
        text = trouble_table(views) if only_trouble else table(views)
        return text if self.stdout.isatty() else click.unstyle(text)

    def read(self, aliases: Sequence[str] | None, names: Sequence[str], since_s: float) -> list[QueueActivity]:
        """Return the statistics of the chosen queues."""
        views: list[QueueActivity] = []
        try:
            for alias in aliases or get_settings().connections:
                get_settings().connection(alias)
                views += look_at(alias, names, since_s)
        except (RsmqError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        unknown = set(names) - {view.name for view in views}
        if unknown:
            raise CommandError(
                f"queue not found: {', '.join(map(repr, sorted(unknown)))}; 'rsmqctl queue list' lists all queues"
            )
        return views


def chosen(views: Sequence[QueueActivity], *, most: int | None, only_trouble: bool) -> list[QueueActivity]:
    """Return the queues selected by the options: with a problem, or the busiest first."""
    left = [view for view in views if view.trouble or not only_trouble]
    return left if most is None else sorted(left, key=lambda view: view.activity, reverse=True)[:most]


def count(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def duration_s(text: str) -> float:
    """Parse 90s, 15m, 1h or 7d, and return seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    seconds = float(match[1]) * UNITS_S[match[2]] if match else 0
    if not 0 < seconds <= LONGEST_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration up to {as_duration(LONGEST_S)}, such as 30s, 15m, 1h or 7d"
        )
    return seconds


# -- Text output -------------------------------------------------------------------------------------------------------


def table(views: Sequence[QueueActivity]) -> str:
    """Return a table with a row for each queue, followed by rows for its tasks."""
    rows = [row for view in views for row in queue_rows(view)]
    lines = TextTable(HEADERS, right=HEADERS[1:-1]).lines(rows)
    return "\n".join(lines if rows else ["there are no queues yet"])


def trouble_table(views: Sequence[QueueActivity]) -> str:
    """Return a table of queues with their problems."""
    rows = [[*next(queue_rows(view))[:6], ", ".join(view.trouble)] for view in views]
    lines = TextTable([*HEADERS[:6], "PROBLEM"], right=HEADERS[1:6]).lines(rows)
    return "\n".join(lines if rows else ["no queue has a problem"])


def queue_rows(view: QueueActivity) -> Iterator[list[str]]:
    """Yield the row of a queue and those of its tasks, the busiest first."""
    if isinstance(view.now, RsmqError):
        yield [printable(view.name), "broken", *[""] * (len(HEADERS) - 2)]
        return
    total = merged(view.slots)
    sign = "~" if view.now.is_estimated else ""
    lengths = [str(view.now.ready), f"{sign}{view.now.delayed}", f"{sign}{view.now.in_flight}"]
    sent = sent_by_now(view.slots, view.now) if view.kind == "queue" else None
    oldest = "-" if view.now.oldest_ready_s is None else as_duration(view.now.oldest_ready_s)
    yield [
        printable(view.name),
        *lengths,
        oldest,
        "-" if view.workers is None else str(view.workers),
        "?" if sent is None else str(sent),
        *count_cells(total.counts),
        curve(view.slots),
    ]
    for task, counts in sorted(total.tasks.items(), key=lambda each: -each[1].ended):
        name = f"  {printable(task) or '(no task)'}"
        yield [name, *[""] * 5, str(counts.sent), *count_cells(counts), curve(view.slots, task)]


def sent_by_now(slots: Sequence[Slot], now: Depth) -> int | None:
    """Return how many messages any client sent in all slots; None if no earlier count was recorded.

    A queue created since then started at 0, with or without a recorded count.
    """
    if now.created_s is not None and now.created_s >= slots[0].begins_s:
        return now.total_sent
    seen = [slot.depth.total_sent for slot in slots if slot.depth is not None]
    sent = merged(slots).sent
    return None if sent is None else sent + max(0, now.total_sent - seen[-1])


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


def curve(slots: Sequence[Slot], task: str | None = None) -> str:
    """Return a curve of ended attempts over time, drawn with block characters."""
    each = max(1, -(-len(slots) // CURVE_POINTS))
    counts = [slot.counts if task is None else slot.tasks.get(task, Counts()) for slot in slots]
    sums = [sum(part.ended for part in counts[at : at + each]) for at in range(0, len(counts), each)]
    most = max(sums, default=0)
    return "".join(HEIGHTS[-(-number * (len(HEIGHTS) - 1) // most)] if most else HEIGHTS[0] for number in sums)


def redrawn(text: str) -> str:
    """Return text that replaces the current screen without flicker."""
    lines = "".join(f"{line}\x1b[K\n" for line in text.splitlines())
    return f"{HOME}{lines}\x1b[J"


# -- JSON output -----------------------------------------------------------------------------------------------------


def as_json(view: QueueActivity) -> str:
    """Return one queue as a JSON object on one line."""
    if isinstance(view.now, RsmqError):
        facts = {"connection": view.connection, "queue": view.name, "error": str(view.now), "trouble": view.trouble}
        return json.dumps(facts)
    total, now = merged(view.slots), view.now
    return json.dumps(
        {
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
            "sent": sent_by_now(view.slots, now) if view.kind == "queue" else None,
            "tasks": {task: counts_as_data(counts) for task, counts in sorted(total.tasks.items())},
        }
    )


def counts_as_data(counts: Counts) -> dict[str, Any]:
    """Return the JSON object of counts; times are microseconds."""
    times = {"wait": counts.wait, "run": counts.run}
    quantiles = {
        f"{name}_p{percent}_us": histogram.quantile_us(percent / 100)
        for name, histogram in times.items()
        for percent in (50, 95, 99)
    }
    return {name: getattr(counts, name) for name in (*COUNTERS, "failed")} | quantiles
