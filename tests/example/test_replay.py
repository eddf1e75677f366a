"""Saving flights enqueues tasks: none before the commit, none after a rollback."""

import datetime as dt
import json
from typing import Any

import pytest

from example_project.flightboard.models import Flight
from example_project.flightboard.replay import parse_day, read_day, replay
from rsmq_django.outbox.relay import Relay
from rsmq_django.queues import get_queue

from .conftest import CANCELLED, DIVERTED

DAY = dt.date(2013, 2, 8)


QUEUES = ("default", "notices", "claims", "weather-raw")


def in_redis() -> dict[str, int]:
    return {name: get_queue(name).attributes().total_sent for name in QUEUES}


def sent() -> dict[str, int]:
    Relay().relay_waiting()  # claims travel through the outbox
    return in_redis()


@pytest.mark.parametrize(
    ("changes", "claims"), [({}, 0), (CANCELLED, 1), (DIVERTED, 1), ({"arrival_delay_min": 200}, 1)]
)
def test_new_flight_enqueues_its_work_when_the_transaction_commits(
    make_flight: Any, changes: dict[str, Any], claims: int, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        make_flight(**changes)
        before = in_redis()

    assert before == {"default": 0, "notices": 0, "claims": 0, "weather-raw": 0}
    assert sent() == {"default": 1, "notices": 1, "claims": claims, "weather-raw": 0}


def test_saving_a_flight_again_enqueues_nothing(make_flight: Any, django_capture_on_commit_callbacks: Any) -> None:
    flight = make_flight()

    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        flight.save()

    assert callbacks == []


@pytest.mark.django_db(transaction=True)
def test_replay_saves_flights_in_order_and_sends_the_weather_known_by_then() -> None:
    departures = read_day(DAY, limit=60)

    steps = list(replay(DAY, departures))

    saved = list(Flight.objects.order_by("id").values_list("carrier", "number", "origin"))
    assert saved == [(departure.carrier, departure.number, departure.origin) for departure in departures]
    carriers = {departure.carrier for departure in departures}
    assert sent()["notices"] == 60
    assert sent()["default"] == 60 + len(carriers), "and the report of the day"
    assert sent()["weather-raw"] == sum(step.weather_messages for step in steps) > 0


@pytest.mark.django_db(transaction=True)
def test_weather_is_sent_as_plain_json_that_any_language_reads() -> None:
    list(replay(DAY, read_day(DAY, limit=1)))

    message = get_queue("weather-raw").receive()

    assert message is not None
    assert json.loads(message.body).keys() == {"station", "at", "temperatureF", "windMph", "visibilityMiles"}


@pytest.mark.django_db(transaction=True)
def test_replay_can_be_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("example_project.flightboard.replay.time.sleep", pauses.append)

    list(replay(DAY, read_day(DAY, limit=4), flights_per_s=0.1))

    assert [round(pause, -1) for pause in pauses] == [0, 10, 20, 30]


@pytest.mark.parametrize(("text", "reason"), [("2014-01-01", "not in 2013"), ("8 February", "Invalid isoformat")])
def test_day_outside_the_data_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_day(text)


def test_whole_blizzard_day_is_read() -> None:
    assert len(read_day(parse_day("2013-02-08"))) == 930
