"""`rsmqctl queue stats`: queues at a glance, once or again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..core import Client, RsmqError, list_queues
from ..core.browse import Statistics, statistics
from .failures import name_of, text_of
from .options import Command, complete_queue_name
from .output import CLEAR_LINE, Table, as_duration, as_size, can_redraw, printable, write_json
from .session import Session

#: So many queues are read in one round trip.
QUEUES_A_TIME = 50
#: Back to the first line; when all is written, what is left of an earlier table is cleared.
HOME, CLEAR_BELOW = "\x1b[H", "\x1b[J"

Reading = dict[str, Statistics | RsmqError]


@dataclass(frozen=True)
class Sight:
    """What was seen of the queues at one moment."""

    seen_at_s: float
    queues: Reading

    def rate(self, name: str, counter: str, before: Sight) -> float | None:
        """Return by how much a counter of a queue has grown per second since an earlier sight."""
        now, then = self.queues[name], before.queues.get(name)
        if not isinstance(now, Statistics) or not isinstance(then, Statistics):
            return None
        grown: int = getattr(now, counter) - getattr(then, counter)
        return max(0, grown) / (self.seen_at_s - before.seen_at_s)


@click.command(cls=Command)
@click.option("-n", "--name", metavar="QUEUE", shell_complete=complete_queue_name, help="Only this queue.")
@click.option("--watch", is_flag=True, help="Again and again, with rates, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=2.0, metavar="S", help="Seconds between two looks.")
@click.pass_obj
def stats(session: Session, /, name: str | None, watch: bool, interval: float) -> None:
    """Show what is ready, delayed and in flight.

    With the age of the oldest message, totals and memory, for one queue or all.

    IN FLIGHT counts messages that were received and are hidden: being worked on, or waiting for the next attempt.
    OLDEST is how long the first ready message has been ready. A number after ~ was estimated from a sample.
    """
    screen = Screen() if watch and can_redraw(sys.stdout) and not session.json else None
    before = None
    try:
        while True:
            sight = look(session, name)
            if screen:
                screen.show(table(sight, before))
            else:
                show(session, sight, before, is_single=name is not None)
            if not watch:
                return
            before = sight
            time.sleep(interval)
    except KeyboardInterrupt:
        if not watch:
            raise


class Screen:
    """A terminal on which each table takes the place of the one before."""

    def __init__(self) -> None:
        click.clear()

    def show(self, lines: Sequence[str]) -> None:
        """Draw from the first line on; clearing line by line does not flicker."""
        text = "".join(f"{line}{CLEAR_LINE}\n" for line in lines)
        if click.get_current_context().color is False:
            text = click.unstyle(text).replace("\n", f"{CLEAR_LINE}\n")
        sys.stdout.write(f"{HOME}{text}{CLEAR_BELOW}")
        sys.stdout.flush()


def look(session: Session, name: str | None) -> Sight:
    """Read the statistics of one queue or of all. Raises for one queue what is wrong with it."""
    client = session.client(name)
    queues = read_all(client, [name] if name else list_queues(client))
    if name and isinstance(error := queues[name], RsmqError):
        raise error
    return Sight(time.monotonic(), queues)


def read_all(client: Client, names: Sequence[str]) -> Reading:
    """Read the statistics of queues; a broken one has its error in place of them."""
    found: Reading = {}
    for at in range(0, len(names), QUEUES_A_TIME):
        part = names[at : at + QUEUES_A_TIME]
        found |= zip(part, client.run_many([statistics(client.namespace, name) for name in part]), strict=True)
    return found


def show(session: Session, sight: Sight, before: Sight | None, *, is_single: bool) -> None:
    """Print what was seen, with rates when something was seen before."""
    if session.json:
        found = [as_json(name, read) for name, read in sight.queues.items()]
        write_json(found[0] if is_single else found)
    else:
        click.echo("\n".join(table(sight, before)))


def table(sight: Sight, before: Sight | None) -> list[str]:
    """Return the lines of a table."""
    headers = ["QUEUE", "READY", "DELAYED", "IN FLIGHT", "OLDEST", "SENT", "RECEIVED", "MEMORY"]
    rows = [row(name, read) for name, read in sight.queues.items()]
    if before:
        headers += ["SENT/S", "RECEIVED/S"]
        for cells, name in zip(rows, sight.queues, strict=True):
            rates = sight.rate(name, "total_sent", before), sight.rate(name, "total_received", before)
            cells += ["" if rate is None else f"{rate:.1f}" for rate in rates]
    return Table(headers, right=headers[1:]).lines(rows)


def row(name: str, read: Statistics | RsmqError) -> list[str]:
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


def as_json(name: str, read: Statistics | RsmqError) -> dict[str, Any]:
    """Return the statistics of a queue for programs."""
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


def _coloured(text: str, colour: str, number: int) -> str:
    return click.style(text, fg=colour) if number else text
