"""What the site stores: flights, what tasks made of them, and a line per finished task.

A flight row holds what the airport knew. Everything else (gate, delay, notices, claims) is written by tasks, so an
empty column on the board is work that is still waiting.
"""

import uuid

from django.db import models


class Flight(models.Model):
    """One scheduled departure. Without `departed_at` it was cancelled."""

    day = models.DateField(help_text="The day of the scheduled departure, New York time.")
    carrier = models.CharField(max_length=2)
    number = models.PositiveSmallIntegerField()
    tail_number = models.CharField(max_length=6, blank=True)
    origin = models.CharField(max_length=3)
    destination = models.CharField(max_length=3)
    scheduled_departure = models.DateTimeField()
    departed_at = models.DateTimeField(null=True, blank=True)
    landed_local = models.TimeField(null=True, blank=True, help_text="On the clock of the destination.")
    arrival_delay_min = models.SmallIntegerField(null=True, blank=True)

    gate = models.CharField(max_length=4, blank=True, help_text="Written by assign_gate.")
    departure_delay_min = models.SmallIntegerField(null=True, blank=True, help_text="Written by announce_delay.")
    gate_shown_at = models.DateTimeField(null=True, blank=True, help_text="Written by show_gates.")
    gate_told_at = models.DateTimeField(null=True, blank=True, help_text="Written by tell_gates.")

    class Meta:
        ordering = ("-scheduled_departure", "-id")
        constraints = (
            # Two airports may use one flight number on the same day; it happened 24 times in 2013.
            models.UniqueConstraint(fields=("day", "carrier", "number", "origin"), name="one_flight_a_day"),
        )
        indexes = (models.Index(fields=("day", "carrier", "number"), name="flight_by_code"),)

    def __str__(self) -> str:
        return f"{self.code} {self.origin}-{self.destination} {self.day}"

    @property
    def code(self) -> str:
        """Carrier and number, as on a ticket: UA1545."""
        return f"{self.carrier}{self.number}"

    @property
    def is_cancelled(self) -> bool:
        return self.departed_at is None

    @property
    def is_diverted(self) -> bool:
        """Left, but never arrived where it was bound for."""
        return self.departed_at is not None and self.arrival_delay_min is None


class DelayNotice(models.Model):
    """What passengers of a late flight were told, and when they were told again."""

    flight = models.OneToOneField(Flight, on_delete=models.CASCADE, related_name="delay_notice")
    delay_min = models.SmallIntegerField()
    sent_at = models.DateTimeField(auto_now_add=True)
    reminded_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.flight.code}: {self.delay_min} minutes late"


class Claim(models.Model):
    """What the airline owes the passengers of a flight."""

    class Reason(models.TextChoices):
        CANCELLED = "cancelled", "cancelled"
        LATE = "late", "three hours late or more"

    flight = models.OneToOneField(Flight, on_delete=models.CASCADE, related_name="claim")
    reason = models.CharField(max_length=12, choices=Reason.choices)
    voucher_usd = models.PositiveSmallIntegerField()
    opened_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.flight.code}: {self.voucher_usd} USD ({self.reason})"


class Tracker(models.Model):
    """Somebody's wish: tell me when this flight lands. The answer is the return value of a task."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    day = models.DateField()
    carrier = models.CharField(max_length=2)
    number = models.PositiveSmallIntegerField()
    task_id = models.CharField(max_length=64, blank=True)
    asked_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.code} {self.day}"

    @property
    def code(self) -> str:
        """Carrier and number, as on a ticket: UA1545."""
        return f"{self.carrier}{self.number}"


class Weather(models.Model):
    """One hour at one airport, from a message that another system wrote."""

    station = models.CharField(max_length=3)
    observed_at = models.DateTimeField()
    temperature_f = models.FloatField(null=True, blank=True)
    wind_mph = models.FloatField(null=True, blank=True)
    visibility_miles = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ("-observed_at", "station")
        constraints = (models.UniqueConstraint(fields=("station", "observed_at"), name="one_report_an_hour"),)
        verbose_name_plural = "weather"

    def __str__(self) -> str:
        return f"{self.station} {self.observed_at:%Y-%m-%d %H:%M}"


class DayReport(models.Model):
    """How punctual the airlines were on a day."""

    day = models.DateField(primary_key=True)
    counts = models.JSONField(help_text="Airline, flights, and those on time, for each; written by write_day_report.")

    class Meta:
        ordering = ("-day",)

    def __str__(self) -> str:
        return f"report of {self.day}"


class FinishedTask(models.Model):
    """One line of the work log, written when a task came to its end, well or for good."""

    task_id = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=60)
    queue_name = models.CharField(max_length=160)
    flight_id = models.BigIntegerField(null=True, blank=True)
    has_succeeded = models.BooleanField()
    attempts = models.PositiveSmallIntegerField()
    error = models.CharField(max_length=120, blank=True, help_text="The class of the last exception.")
    finished_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.name} {'done' if self.has_succeeded else self.error}"
