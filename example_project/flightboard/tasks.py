"""The tasks for a flight. Each shows one feature of a queue.

| task             | shows                                                                             |
|------------------|-----------------------------------------------------------------------------------|
| assign_gate      | retry: the gate service is down for a moment; publishes the gate to a topic       |
| announce_delay   | dead letter: a cancelled flight has no delay to announce, so every attempt fails  |
| remind_later     | delay: enqueued now, runs later; unique; expires when it would come too late      |
| open_claim       | async; outbox; a limit; an exception that is not retried                          |
| forget_old_work  | schedule: every night, once with any number of workers                            |
| rate_carrier     | workflow: one for each airline, and when all are done write_day_report            |
| tell_when_landed | priority: a person waits; a result that a page shows; asks to be run again        |
| read_weather     | raw messages, as a program in any language writes them                            |
| show_gates       | a topic that two groups read, each at its own pace; the other one is tell_gates   |

A task may run twice (its worker may die after the work and before the acknowledgement), so each one writes in a way
that a second run does not change.
"""

import datetime as dt
import json

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from rsmq_django.core import Message
from rsmq_django.core.topic import TopicMessage
from rsmq_django.tasks import (
    Concurrency,
    Retry,
    TaskContext,
    Unique,
    call,
    consumer,
    cron,
    exponential,
    fixed,
    group,
    task,
    topic_task,
)
from rsmq_django.topics import publish

from . import gates
from .departures import airport_names
from .models import Claim, DayReport, DelayNotice, FinishedTask, Flight, Tracker, Weather

NOTICE_FROM_MIN = 15
CLAIM_FROM_MIN = 180
VOUCHERS_USD = {Claim.Reason.LATE: 100, Claim.Reason.CANCELLED: 200}


class NeverDeparted(ValueError):
    """A cancelled flight was asked when it left."""


class NeverArrived(ValueError):
    """A flight that landed somewhere else was asked how late it came."""


@task(
    queue_name="default",
    max_attempts=4,
    backoff=exponential(first_s=0.5, factor=2, max_s=2),
    retry_on=(gates.GateServiceDown,),
    takes_context=True,
)
def assign_gate(context: TaskContext, flight_id: int) -> str:
    """Ask the gate service for a gate and write it on the board."""
    flight = Flight.objects.get(pk=flight_id)
    gate = gates.ask_for_gate(f"{flight.code} {flight.day}", flight.origin, call=context.attempt)
    with transaction.atomic():
        Flight.objects.filter(pk=flight_id).update(gate=gate)
        publish(settings.FLIGHTBOARD_GATE_TOPIC, json.dumps({"flight_id": flight_id, "gate": gate}))
    return gate


@topic_task(settings.FLIGHTBOARD_GATE_TOPIC, group="screens", batch=100)
def show_gates(messages: list[TopicMessage]) -> None:
    """Put gates on the screens of the terminals."""
    flights_in(messages).filter(gate_shown_at=None).update(gate_shown_at=timezone.now())


@topic_task(settings.FLIGHTBOARD_GATE_TOPIC, group="telephones", batch=20)
def tell_gates(messages: list[TopicMessage]) -> None:
    """Send gates to the telephones of the passengers, fewer at a time."""
    flights_in(messages).filter(gate_told_at=None).update(gate_told_at=timezone.now())


def flights_in(messages: list[TopicMessage]) -> QuerySet[Flight]:
    """Return the flights that messages about gates name."""
    return Flight.objects.filter(pk__in=[json.loads(message.body)["flight_id"] for message in messages])


@task(queue_name="notices", max_attempts=3, backoff=fixed(0.5))
def announce_delay(flight_id: int) -> int:
    """Compute how late the flight left, and tell its passengers from a quarter of an hour on.

    This function does not handle cancelled flights, on purpose: it is the bug that every project has somewhere. Their
    messages end up in the dead-letter queue, where you can read them and redrive them once the bug is fixed.
    """
    flight = Flight.objects.get(pk=flight_id)
    delay_min = departure_delay_min(flight)
    Flight.objects.filter(pk=flight_id).update(departure_delay_min=delay_min)
    if delay_min >= NOTICE_FROM_MIN:
        notice, _ = DelayNotice.objects.get_or_create(flight=flight, defaults={"delay_min": delay_min})
        remind_after = dt.timedelta(seconds=settings.FLIGHTBOARD_REMINDER_DELAY_S)
        remind_later.using(run_after=remind_after).enqueue(notice_id=notice.pk)
    return delay_min


# announce_delay may run twice, and one reminder is enough; a reminder of the day before is useless.
@task(queue_name="notices", unique=Unique(by=["notice_id"]), expires_in_s=3600)
def remind_later(notice_id: int) -> None:
    """Tell the passengers again."""
    DelayNotice.objects.filter(pk=notice_id, reminded_at=None).update(reminded_at=timezone.now())


@task(
    queue_name="claims",
    max_attempts=3,
    backoff=fixed(0.5),
    give_up_on=(NeverArrived,),
    limits=[Concurrency(4, name="voucher-printer")],
)
async def open_claim(flight_id: int) -> int:
    """Open a claim for the passengers of a cancelled or very late flight, and return the voucher in dollars."""
    flight = await Flight.objects.aget(pk=flight_id)
    reason = claim_reason(flight)
    voucher_usd = VOUCHERS_USD[reason]
    await Claim.objects.aget_or_create(flight=flight, defaults={"reason": reason, "voucher_usd": voucher_usd})
    return voucher_usd


@task(queue_name="default", max_attempts=300, priority=50)
def tell_when_landed(tracker_id: str) -> str:
    """Return where and when the flight landed; ask to be run again while it is not on the board yet."""
    tracker = Tracker.objects.get(pk=tracker_id)
    flight = Flight.objects.filter(day=tracker.day, carrier=tracker.carrier, number=tracker.number).first()
    if flight is None:
        raise Retry(f"{tracker} is not on the board yet", after_s=1)
    return describe_landing(flight)


def report_day(day: dt.date) -> None:
    """Enqueue the report of a day: a separate task counts each airline, and the last one starts the summary."""
    carriers = Flight.objects.filter(day=day).order_by("carrier").values_list("carrier", flat=True).distinct()
    counts = [call(rate_carrier, day.isoformat(), carrier) for carrier in carriers]
    group(counts, then=call(write_day_report, day.isoformat()), name=f"report of {day}").enqueue()


@task(queue_name="default")
def rate_carrier(day: str, carrier: str) -> list[str | int]:
    """Return an airline, how many flights it had, and how many landed less than a quarter of an hour late."""
    flights = Flight.objects.filter(day=day, carrier=carrier)
    return [carrier, flights.count(), flights.filter(arrival_delay_min__lt=NOTICE_FROM_MIN).count()]


@task(queue_name="default")
def write_day_report(counts: list[list[str | int]], day: str) -> None:
    """Store the report of a day; the counts are what rate_carrier returned for each airline."""
    DayReport.objects.update_or_create(day=day, defaults={"counts": counts})


@cron("0 4 * * *", missed="skip")
@task(queue_name="default")
def forget_old_work() -> int:
    """Delete lines older than a month from the work log, and return their number."""
    count, _ = FinishedTask.objects.filter(finished_at__lt=timezone.now() - dt.timedelta(days=30)).delete()
    return count


@consumer("weather-raw", max_attempts=3)
def read_weather(message: Message) -> None:
    """Store one line of JSON from the weather service, which knows neither Python nor Django."""
    report = json.loads(message.body)
    Weather.objects.update_or_create(
        station=report["station"],
        observed_at=dt.datetime.fromisoformat(report["at"]),
        defaults={
            "temperature_f": report["temperatureF"],
            "wind_mph": report["windMph"],
            "visibility_miles": report["visibilityMiles"],
        },
    )


def needs_claim(flight: Flight) -> bool:
    """Return whether a person has to decide about compensation: cancelled, diverted, or three hours late."""
    return flight.arrival_delay_min is None or flight.arrival_delay_min >= CLAIM_FROM_MIN


def claim_reason(flight: Flight) -> Claim.Reason:
    """Return why passengers are owed something. Raises NeverArrived when a person has to decide."""
    if flight.is_diverted:
        raise NeverArrived(f"{flight} landed somewhere else; a person has to decide about this claim")
    return Claim.Reason.CANCELLED if flight.is_cancelled else Claim.Reason.LATE


def departure_delay_min(flight: Flight) -> int:
    """Return by how many minutes the flight left late (negative: early). Raises NeverDeparted."""
    if flight.departed_at is None:
        raise NeverDeparted(f"{flight} has no departure time, it was cancelled; it cannot have a delay")
    return round((flight.departed_at - flight.scheduled_departure).total_seconds() / 60)


def describe_landing(flight: Flight) -> str:
    """Return one sentence for the waiting person."""
    where = airport_names().get(flight.destination, flight.destination)
    if flight.is_cancelled:
        return f"{flight.code} to {where} was cancelled."
    if flight.landed_local is None or flight.arrival_delay_min is None:
        return f"{flight.code} to {where} landed somewhere else."
    late_min = flight.arrival_delay_min
    when = "on time" if late_min == 0 else f"{abs(late_min)} minutes {'late' if late_min > 0 else 'early'}"
    return f"{flight.code} landed at {where} at {flight.landed_local:%H:%M} local time, {when}."
