"""The data of the pages: the last departures, the queues, the most recent work.

Reads only. The queues are read in one round trip however many there are.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from rsmq_django.core.errors import RsmqError

from .departures import airline_names, airport_names
from .models import DayReport, FinishedTask, Flight, Weather
from .stock import QueueFigures, read_queues

ROWS = 18
WORK_LINES = 12


@dataclass(frozen=True)
class Remark:
    """The last column of the board. `kind` is a CSS class; the words say the same."""

    kind: str
    words: str


@dataclass(frozen=True)
class Row:
    """One line of the board."""

    flight: Flight
    airline: str
    destination: str
    remark: Remark


@dataclass(frozen=True)
class WorkLine:
    """One line of the work log."""

    done: FinishedTask
    flight_code: str


@dataclass(frozen=True)
class Punctuality:
    """How many of an airline's flights landed less than a quarter of an hour late."""

    carrier: str
    airline: str
    percent: int


def read_board() -> dict[str, Any]:
    """Return everything the live part of the page shows."""
    flights = list(Flight.objects.all()[:ROWS])
    queues, trouble = queues_or_trouble()
    return {
        "rows": [as_row(flight) for flight in flights],
        "shown_day": flights[0].day if flights else None,
        "clock": flights[0].scheduled_departure if flights else None,
        "flight_count": Flight.objects.count(),
        "queues": queues,
        "trouble": trouble,
        "work": last_work(),
        "weather": last_weather(),
        "punctuality": read_punctuality(flights[0].day) if flights else [],
    }


def queues_or_trouble() -> tuple[list[QueueFigures], str]:
    """Return the figures of the queues, or the reason why they are missing: the board works when Redis is down."""
    try:
        return read_queues(), ""
    except RsmqError as error:
        return [], str(error)


def shown_day() -> dt.date | None:
    """Return the day that is on the board."""
    newest = Flight.objects.first()
    return newest.day if newest else None


def as_row(flight: Flight) -> Row:
    """Dress one flight for the board."""
    return Row(
        flight=flight,
        airline=airline_names().get(flight.carrier, flight.carrier),
        destination=airport_names().get(flight.destination, flight.destination),
        remark=remark_about(flight),
    )


def remark_about(flight: Flight) -> Remark:
    """Return what passengers read. The delay is there only after its task has run."""
    if flight.is_cancelled:
        return Remark("cancelled", "Cancelled")
    if flight.departure_delay_min is None:
        return Remark("waiting", "…")
    if flight.is_diverted:
        return Remark("diverted", "Diverted")
    if flight.departure_delay_min >= 15:
        return Remark("late", f"Delayed {in_words(flight.departure_delay_min)}")
    return Remark("on-time", "On time")


def in_words(minutes: int) -> str:
    """Return 42 as "42 min" and 102 as "1 h 42"."""
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d}"


def last_work() -> list[WorkLine]:
    """Return the most recent work, newest first."""
    lines = list(FinishedTask.objects.all()[:WORK_LINES])
    flights = Flight.objects.in_bulk([line.flight_id for line in lines if line.flight_id])
    return [WorkLine(line, flights[line.flight_id].code if line.flight_id in flights else "") for line in lines]


def read_punctuality(day: dt.date) -> list[Punctuality]:
    """Return how punctual the airlines were, the best first; nothing before the report of the day is written.

    An airline without flights is left out: the board was cleared while its flights were counted.
    """
    report = DayReport.objects.filter(day=day).first()
    rates = [] if report is None else [_punctuality(*count) for count in report.counts if count[1]]
    return sorted(rates, key=lambda each: (-each.percent, each.airline))


def _punctuality(carrier: str, flights: int, on_time: int) -> Punctuality:
    return Punctuality(carrier, airline_names().get(carrier, carrier), round(100 * on_time / flights))


def last_weather() -> list[Weather]:
    """Return the newest report of each airport, in the order of their names."""
    newest: dict[str, Weather] = {}
    for report in Weather.objects.all()[:9]:
        newest.setdefault(report.station, report)
    return [newest[station] for station in sorted(newest)]
