"""Play a day of 2013 again, so that its flights enqueue tasks."""

import argparse
import datetime as dt
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from example_project.flightboard.departures import DataMissing, Departure
from example_project.flightboard.replay import clear_board, parse_day, read_day, replay
from rsmq_django.core.errors import RsmqError


class Command(BaseCommand):
    """See the module."""

    help = "Save the flights of one day of 2013 in order; signals enqueue their tasks."

    def add_arguments(self, parser: CommandParser) -> None:
        add_replay_arguments(parser, default_flights_per_s=0)

    def handle(self, *, day: dt.date, speed: float, limit: int | None, **_: Any) -> None:
        try:
            departures = read_day(day, limit=limit)
            clear_board()
            replay_with_progress(day, departures, flights_per_s=speed)
        except (DataMissing, RsmqError) as error:
            raise CommandError(str(error)) from error


def add_replay_arguments(parser: CommandParser, *, default_flights_per_s: float) -> None:
    """Add the options that say what to replay."""
    parser.add_argument("--day", type=day_argument, default="2013-01-01", help="a day of 2013 (default: %(default)s)")
    parser.add_argument(
        "--speed",
        type=float,
        default=default_flights_per_s,
        metavar="N",
        help="flights per second; 0 is as fast as possible (default: %(default)g)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="stop after N flights")


def day_argument(text: str) -> dt.date:
    """Read a day from the command line."""
    try:
        return parse_day(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def replay_with_progress(day: dt.date, departures: list[Departure], *, flights_per_s: float) -> None:
    """Replay the flights and draw a bar."""
    for _ in with_progress(replay(day, departures, flights_per_s=flights_per_s), f"Replaying {day}", len(departures)):
        pass


def with_progress(steps: Iterator[Any], title: str, total: int) -> Iterator[Any]:
    """Draw a bar that moves with the steps."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        yield from progress.track(steps, total=total, description=title)
