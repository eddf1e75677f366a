"""The effect of each task on its flight; retries and dead letters follow from its exceptions."""

import datetime as dt
import json
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from example_project.flightboard import gates, tasks
from example_project.flightboard.models import Claim, DayReport, DelayNotice, FinishedTask, Flight, Tracker, Weather
from rsmq_django.core import Message
from rsmq_django.core.topic import TopicMessage
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Retry

from .conftest import CANCELLED, DIVERTED

IAH = "George Bush Intercontinental"


def attempt(number: int) -> Any:
    return SimpleNamespace(attempt=number)


def weather_message(**changes: Any) -> Message:
    report = {
        "station": "EWR",
        "at": "2013-02-08T15:00:00+00:00",
        "temperatureF": 33.1,
        "windMph": 17,
        "visibilityMiles": 3,
    }
    return Message(id="a" * 32, body=json.dumps(report | changes).encode(), receive_count=1, first_received_ms=None)


def test_gate_is_assigned_once_the_service_answers(make_flight: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flight = make_flight()
    monkeypatch.setattr(gates, "failures_before_success", lambda flight: 1)

    with pytest.raises(gates.GateServiceDown):
        tasks.assign_gate.func(attempt(1), flight_id=flight.pk)
    gate = tasks.assign_gate.func(attempt(2), flight_id=flight.pk)

    assert Flight.objects.get().gate == gate != ""


def test_each_group_deals_with_a_gate_once(make_flight: Any) -> None:
    flight = make_flight(gate="C12")
    message = TopicMessage(1, json.dumps({"flight_id": flight.pk, "gate": "C12"}).encode())

    seen = []
    for _ in range(2):
        tasks.show_gates([message])
        tasks.tell_gates([message])
        seen.append(Flight.objects.values_list("gate_shown_at", "gate_told_at").get())

    assert seen[0] == seen[1]
    assert None not in seen[0]


def test_delay_of_a_punctual_flight_is_announced_without_a_notice(make_flight: Any) -> None:
    flight = make_flight()

    assert tasks.announce_delay.func(flight_id=flight.pk) == 2

    assert Flight.objects.get().departure_delay_min == 2
    assert not DelayNotice.objects.exists()


def test_passengers_of_a_late_flight_get_one_notice_and_a_later_reminder(
    make_flight: Any, flight_fields: dict[str, Any], django_capture_on_commit_callbacks: Any
) -> None:
    late = make_flight(departed_at=flight_fields["scheduled_departure"] + dt.timedelta(minutes=42))

    with django_capture_on_commit_callbacks(execute=True):
        tasks.announce_delay.func(flight_id=late.pk)
        tasks.announce_delay.func(flight_id=late.pk)  # delivered a second time

    assert [notice.delay_min for notice in DelayNotice.objects.all()] == [42]
    assert get_queue("notices").attributes().hidden_messages == 1


def test_reminder_is_noted_and_a_second_run_changes_nothing(make_flight: Any) -> None:
    notice = DelayNotice.objects.create(flight=make_flight(), delay_min=42)

    tasks.remind_later.func(notice_id=notice.pk)
    first = DelayNotice.objects.get().reminded_at
    tasks.remind_later.func(notice_id=notice.pk)

    assert first is not None
    assert DelayNotice.objects.get().reminded_at == first


def test_delay_of_a_cancelled_flight_cannot_be_announced(make_flight: Any) -> None:
    cancelled = make_flight(**CANCELLED)

    with pytest.raises(tasks.NeverDeparted, match="UA1545 EWR-IAH 2013-01-01 has no departure time"):
        tasks.announce_delay.func(flight_id=cancelled.pk)


@pytest.mark.parametrize(
    ("changes", "reason", "voucher_usd"), [(CANCELLED, "cancelled", 200), ({"arrival_delay_min": 180}, "late", 100)]
)
def test_claim_is_opened_once(make_flight: Any, changes: dict[str, Any], reason: str, voucher_usd: int) -> None:
    flight = make_flight(**changes)

    for _ in range(2):
        assert async_to_sync(tasks.open_claim.func)(flight_id=flight.pk) == voucher_usd

    assert [(claim.reason, claim.voucher_usd) for claim in Claim.objects.all()] == [(reason, voucher_usd)]


def test_claim_of_a_diverted_flight_is_left_to_a_person_without_another_try(make_flight: Any) -> None:
    diverted = make_flight(**DIVERTED)

    with pytest.raises(tasks.NeverArrived, match="a person has to decide"):
        async_to_sync(tasks.open_claim.func)(flight_id=diverted.pk)

    assert tasks.NeverArrived in tasks.open_claim.give_up_on


@pytest.mark.parametrize(
    ("changes", "is_needed"), [({}, False), ({"arrival_delay_min": 180}, True), (CANCELLED, True), (DIVERTED, True)]
)
def test_claims_are_for_cancelled_diverted_and_very_late_flights(
    make_flight: Any, changes: dict[str, Any], is_needed: bool
) -> None:
    assert tasks.needs_claim(make_flight(**changes)) is is_needed


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, f"UA1545 landed at {IAH} at 08:30 local time, 11 minutes late."),
        (
            {"arrival_delay_min": -3},
            f"UA1545 landed at {IAH} at 08:30 local time, 3 minutes early.",
        ),
        ({"arrival_delay_min": 0}, f"UA1545 landed at {IAH} at 08:30 local time, on time."),
        (CANCELLED, f"UA1545 to {IAH} was cancelled."),
        (DIVERTED, f"UA1545 to {IAH} landed somewhere else."),
    ],
)
def test_tracker_answers_in_one_sentence(make_flight: Any, changes: dict[str, Any], answer: str) -> None:
    flight = make_flight(**changes)
    tracker = Tracker.objects.create(day=flight.day, carrier="UA", number=1545)

    assert tasks.tell_when_landed.func(tracker_id=str(tracker.pk)) == answer


def test_tracker_is_retried_while_its_flight_is_not_on_the_board(db: None) -> None:
    tracker = Tracker.objects.create(day=dt.date(2013, 1, 1), carrier="UA", number=1545)

    with pytest.raises(Retry) as raised:
        tasks.tell_when_landed.func(tracker_id=str(tracker.pk))

    assert raised.value.after_s == 1


def test_report_of_a_day_counts_each_airline_and_those_of_its_flights_that_were_on_time(make_flight: Any) -> None:
    make_flight(number=1, arrival_delay_min=14)
    late = make_flight(number=2, arrival_delay_min=15)
    make_flight(number=3, **CANCELLED)
    make_flight(number=1, carrier="AA")
    day = late.day.isoformat()

    for _ in range(2):
        tasks.write_day_report.func([tasks.rate_carrier.func(day, carrier) for carrier in ("AA", "UA")], day)

    assert [(report.day, report.counts) for report in DayReport.objects.all()] == [
        (late.day, [["AA", 1, 1], ["UA", 3, 1]])
    ]


def test_weather_message_of_another_system_is_stored_once_however_often_it_comes(db: None) -> None:
    for temperature_f in (33.1, None):
        tasks.read_weather(weather_message(temperatureF=temperature_f))

    assert [(str(report), report.temperature_f) for report in Weather.objects.all()] == [("EWR 2013-02-08 15:00", None)]


def test_weather_message_that_is_cut_off_raises(db: None) -> None:
    cut_off = Message(id="a" * 32, body=b'{"station": "EW', receive_count=1, first_received_ms=None)

    with pytest.raises(json.JSONDecodeError):
        tasks.read_weather(cut_off)


@pytest.mark.django_db
def test_work_log_is_kept_for_a_month():
    for days in (1, 29, 31, 400):
        line = FinishedTask.objects.create(
            task_id=str(days), name="x", queue_name="default", has_succeeded=True, attempts=1
        )
        FinishedTask.objects.filter(pk=line.pk).update(finished_at=timezone.now() - dt.timedelta(days=days))

    assert tasks.forget_old_work.call() == 2

    assert set(FinishedTask.objects.values_list("task_id", flat=True)) == {"1", "29"}
