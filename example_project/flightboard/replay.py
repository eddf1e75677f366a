"""Play a day of 2013 again: flights are saved in the order of the schedule, the weather arrives as raw messages.

It only saves flights: the signal enqueues their tasks, as in any site. At the end of the day it requests the report.
The weather comes from "another system", so it is sent as plain JSON through the queue and not as a task.
"""

import datetime as dt
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from zoneinfo import ZoneInfo

from rsmq_django.queues import ensure_queue

from .departures import YEAR, Departure, Observation, read_departures, read_weather
from .models import DayReport, FinishedTask, Flight, Tracker, Weather
from .tasks import report_day

AIRPORT_CLOCK = ZoneInfo("America/New_York")
WEATHER_QUEUE = "weather-raw"


@dataclass(frozen=True, slots=True)
class Step:
    """The last step of a replay: the flight it saved, and how many weather messages it sent before."""

    flight: Flight
    weather_messages: int


def parse_day(text: str) -> dt.date:
    """Return the day written as 2013-02-08. Raises ValueError, also for another year."""
    day = dt.date.fromisoformat(text)
    if day.year != YEAR:
        raise ValueError(f"{day} is not in {YEAR}, the year of the data; try {YEAR}-02-08, the day of the blizzard")
    return day


def read_day(day: dt.date, *, limit: int | None = None) -> list[Departure]:
    """Return the flights of the day in the order of the schedule, at most `limit` of them."""
    return list(islice(read_departures(day), limit))


def replay(day: dt.date, departures: list[Departure], *, flights_per_s: float = 0) -> Iterator[Step]:
    """Save the flights one by one, each with the weather that was known by then, and ask for the report of the day.

    0 flights per second: no pauses.
    """
    weather = list(read_weather(day))
    weather_queue = ensure_queue(WEATHER_QUEUE)
    started = time.monotonic()
    for count, departure in enumerate(departures):
        if flights_per_s:
            time.sleep(max(0.0, started + count / flights_per_s - time.monotonic()))
        known = [seen for seen in weather if seen.observed_at <= departure.scheduled_departure]
        weather = weather[len(known) :]
        if known:
            weather_queue.send_many(as_weather_message(seen) for seen in known)
        yield Step(save_flight(day, departure), len(known))
    if departures:
        report_day(day)


def save_flight(day: dt.date, departure: Departure) -> Flight:
    """Store one flight, which makes the signal enqueue its work."""
    return Flight.objects.create(
        day=day,
        carrier=departure.carrier,
        number=departure.number,
        tail_number=departure.tail_number,
        origin=departure.origin,
        destination=departure.destination,
        scheduled_departure=departure.scheduled_departure,
        departed_at=departure.departed_at,
        landed_local=departure.landed_local,
        arrival_delay_min=departure.arrival_delay_min,
    )


def as_weather_message(seen: Observation) -> str:
    """Write an observation as the weather service would: one line of JSON, in its own words and units."""
    return json.dumps(
        {
            "station": seen.station,
            "at": seen.observed_at.isoformat(),
            "temperatureF": seen.temperature_f,
            "windMph": seen.wind_mph,
            "visibilityMiles": seen.visibility_miles,
        }
    )


def clear_board() -> None:
    """Delete all flights and their results. Does not change the queues."""
    for model in (Flight, Tracker, Weather, DayReport, FinishedTask):
        model.objects.all().delete()
