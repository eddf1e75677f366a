"""`rsmqctl queue stats`: statistics of queues, printed once or refreshed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..core import RsmqError, list_queues
from ..core.stats.depth import Depth
from ..core.stats.depths import read_depths
from .failures import name_of, text_of
from .options import RsmqctlCommand, complete_queue_name
from .output import CLEAR_LINE, TextTable, as_duration, as_size, can_redraw, printable, write_json
from .session import Session

#: Move to the first line; after the table, clear the rest of an earlier one.
HOME, CLEAR_BELOW = "\x1b[H", "\x1b[J"

Reading = dict[str, Depth | RsmqError]


@dataclass(frozen=True)
class StatisticsSample:
    """The depths of queues at one moment."""

    seen_at_s: float
    queues: Reading

    def rate(self, name: str, counter: str, before: StatisticsSample) -> float | None:
        """Return how much a counter of a queue has grown per second since an earlier snapshot."""
        now, then = self.queues[name], before.queues.get(name)
        if not isinstance(now, Depth) or not isinstance(then, Depth):
            return None
        grown: int = getattr(now, counter) - getattr(then, counter)
        return max(0, grown) / (self.seen_at_s - before.seen_at_s)


@click.command(cls=RsmqctlCommand)
@click.option("-n", "--name", metavar="QUEUE", shell_complete=complete_queue_name, help="Only this queue.")
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C, with rates.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    metavar="S",
    help="Time between refreshes (default: 2).",
)
@click.pass_obj
def stats(session: Session, /, name: str | None, watch: bool, interval: float) -> None:
    """Show the number of ready, delayed and in-flight messages.

    With the age of the oldest ready message, totals and memory, for one queue or all.

    IN FLIGHT counts received messages that are hidden: being processed, or waiting for the next attempt. OLDEST is the
    age of the oldest ready message. A number after ~ is an estimate from a sample.
    """
    screen = Screen() if watch and can_redraw(sys.stdout) and not session.json else None
    before = None
    try:
        while True:
            snapshot = take_snapshot(session, name)
            if screen:
                screen.show(table(snapshot, before))
            else:
                show(session, snapshot, before, is_single=name is not None)
            if not watch:
                return
            before = snapshot
            time.sleep(interval)
    except KeyboardInterrupt:
        if not watch:
            raise


class Screen:
    """A terminal on which each table replaces the one before."""

    def __init__(self) -> None:
        click.clear()

    def show(self, lines: Sequence[str]) -> None:
        """Draw from the first line; clearing line by line avoids flicker."""
        text = "".join(f"{line}{CLEAR_LINE}\n" for line in lines)
        if click.get_current_context().color is False:
            text = click.unstyle(text).replace("\n", f"{CLEAR_LINE}\n")
        sys.stdout.write(f"{HOME}{text}{CLEAR_BELOW}")
        sys.stdout.flush()


def take_snapshot(session: Session, name: str | None) -> StatisticsSample:
    """Return the statistics of one queue or of all. For one queue, raises its error."""
    client = session.client(name)
    queues = {each.name: each.depth for each in read_depths(client, [name] if name else list_queues(client))}
    if name and isinstance(error := queues[name], RsmqError):
        raise error
    return StatisticsSample(time.monotonic(), queues)


def show(session: Session, snapshot: StatisticsSample, before: StatisticsSample | None, *, is_single: bool) -> None:
    """Print the statistics, with rates if there is an earlier snapshot."""
    if session.json:
        found = [as_json(name, read) for name, read in snapshot.queues.items()]
        write_json(found[0] if is_single else found)
    else:
        click.echo("\n".join(table(snapshot, before)))


def table(snapshot: StatisticsSample, before: StatisticsSample | None) -> list[str]:
    """Return the lines of a table."""
    headers = ["QUEUE", "READY", "DELAYED", "IN FLIGHT", "OLDEST", "SENT", "RECEIVED", "MEMORY"]
    rows = [row(name, read) for name, read in snapshot.queues.items()]
    if before:
        headers += ["SENT/S", "RECEIVED/S"]
        for cells, name in zip(rows, snapshot.queues, strict=True):
            rates = snapshot.rate(name, "total_sent", before), snapshot.rate(name, "total_received", before)
            cells += ["" if rate is None else f"{rate:.1f}" for rate in rates]
    return TextTable(headers, right=headers[1:]).lines(rows)


def row(name: str, read: Depth | RsmqError) -> list[str]:
    """Return the cells of a queue."""
    if isinstance(read, RsmqError):
        return [printable(name), click.style("broken", fg="red"), *[""] * 6]
    sign = "~" if read.is_estimated else ""
    return [
        printable(name),
        _coloured(str(read.ready), "green", read.ready),
        _coloured(f"{sign}{read.delayed}", "cyan", read.delayed),
        _coloured(f"{sign}{read.in_flight}", "yellow", read.in_flight),
        "-" if read.oldest_ready_s is None else as_duration(read.oldest_ready_s),
        str(read.total_sent),
        str(read.total_received),
        "?" if read.size_bytes is None else as_size(read.size_bytes),
    ]


def as_json(name: str, read: Depth | RsmqError) -> dict[str, Any]:
    """Return the JSON object with the statistics of a queue."""
    if isinstance(read, RsmqError):
        return {"queue": name, "error": name_of(read), "message": text_of(read)}
    return {
        "queue": name,
        "messages": read.messages,
        "ready": read.ready,
        "delayed": read.delayed,
        "in_flight": read.in_flight,
        "estimated": read.is_estimated,
        "oldest_ready_s": read.oldest_ready_s,
        "total_sent": read.total_sent,
        "total_received": read.total_received,
        "size_bytes": read.size_bytes,
    }


def _coloured(text: str, colour: str, number: int | None) -> str:
    return click.style(text, fg=colour) if number else text
