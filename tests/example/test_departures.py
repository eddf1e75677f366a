"""The real data: its size and its errors."""

import datetime as dt
import importlib.util
import subprocess
import sys
from collections import Counter

import pytest

from example_project.flightboard import departures
from example_project.flightboard.departures import (
    DataMissing,
    airline_names,
    airport_names,
    read_departures,
    read_weather,
)

NEW_YEARS_DAY = dt.date(2013, 1, 1)
BLIZZARD = dt.date(2013, 2, 8)


@pytest.mark.slow
def test_the_year_has_all_departures_and_all_cancellations() -> None:
    count = Counter(departure.departed_at is None for departure in read_departures())

    assert count.total() == 336_776
    assert count[True] == 8_255


@pytest.mark.parametrize(("day", "flights", "cancelled"), [(NEW_YEARS_DAY, 842, 4), (BLIZZARD, 930, 472)])
def test_a_day_has_its_flights_in_the_order_of_the_schedule(day: dt.date, flights: int, cancelled: int) -> None:
    found = list(read_departures(day))

    assert len(found) == flights
    assert sum(departure.departed_at is None for departure in found) == cancelled
    assert found == sorted(found, key=lambda departure: departure.scheduled_departure)


def test_first_flight_of_the_year_reads_as_in_the_file() -> None:
    first = next(read_departures(NEW_YEARS_DAY))

    assert (first.carrier, first.number, first.origin, first.destination) == ("UA", 1545, "EWR", "IAH")
    assert first.scheduled_departure == dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC)
    assert first.departed_at == dt.datetime(2013, 1, 1, 10, 17, tzinfo=dt.UTC)
    assert (first.landed_local, first.arrival_delay_min) == (dt.time(8, 30), 11)


def test_cancelled_flight_has_neither_departure_nor_landing() -> None:
    cancelled = [departure for departure in read_departures(BLIZZARD) if departure.departed_at is None]

    assert {(departure.landed_local, departure.arrival_delay_min) for departure in cancelled} == {(None, None)}


def test_diverted_flight_departed_but_has_no_arrival_delay() -> None:
    diverted = [
        departure
        for departure in read_departures(BLIZZARD)
        if departure.departed_at is not None and departure.arrival_delay_min is None
    ]

    assert len(diverted) == 3


def test_midnight_is_written_2400_and_read_as_midnight() -> None:
    assert departures._clock("2400") == dt.time(0, 0)
    assert departures._clock("517") == dt.time(5, 17)
    assert departures._clock("NA") is None


def test_weather_of_a_day_comes_from_three_stations_in_the_order_of_time() -> None:
    seen = list(read_weather(BLIZZARD))

    assert {observation.station for observation in seen} == {"EWR", "JFK", "LGA"}
    assert [observation.observed_at for observation in seen] == sorted(observation.observed_at for observation in seen)


def test_every_destination_and_airline_has_a_name() -> None:
    found = list(read_departures(NEW_YEARS_DAY))

    assert {departure.destination for departure in found} <= set(airport_names())
    assert {departure.carrier for departure in found} <= set(airline_names())
    assert airport_names()["SJU"] == "San Juan"


def test_reading_the_data_does_not_import_pandas() -> None:
    code = (
        "import sys; from example_project.flightboard.departures import read_departures; import datetime as dt; "
        "next(read_departures(dt.date(2013, 1, 1))); print('pandas' in sys.modules, 'django' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_missing_data_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    departures.data_directory.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(DataMissing, match=r"pip install 'rsmq-django\[demo\]'"):
        next(read_departures(NEW_YEARS_DAY))
