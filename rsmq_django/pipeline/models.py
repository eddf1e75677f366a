"""Tables of pipeline results. Only `publish` writes them, a day at a time.

Times are stored in UTC, `day` is the day in UTC, durations are microseconds unless their name says seconds.
Histograms map the number of a bucket to a count: `rsmq_django.core.stats.histogram` adds and reads them.
"""

from __future__ import annotations

import datetime as dt
from typing import ClassVar

from django.db import models
from django.utils.formats import number_format
from django.utils.timezone import localtime
from django.utils.translation import gettext_lazy as _

from .fields import HistogramField, LocalDays, UtcField

#: Longest queue name; task paths and kinds of errors are cut to a length that every database can index.
NAME_LENGTH, PATH_LENGTH = 160, 200
#: In place of a queue or a task: all of them. No name of a queue and no dotted path contains it.
ALL = "*"


def _day() -> models.DateField[str | dt.date, dt.date]:
    """Return the field with which publishing selects the rows of a day."""
    return models.DateField(db_index=True)


def _queue() -> models.CharField[str, str]:
    return models.CharField(max_length=NAME_LENGTH)


def _path() -> models.CharField[str, str]:
    """Return the field of a dotted path: a task, or a kind of error."""
    return models.CharField(max_length=PATH_LENGTH)


class PipelineRun(models.Model):
    """One run of one step."""

    run_id = models.CharField(max_length=32, unique=True)
    step = models.CharField(max_length=32)
    started_at = UtcField(db_index=True)
    seconds = models.FloatField()
    rows_in = models.BigIntegerField()
    rows_out = models.BigIntegerField()
    #: Events that were trimmed before they were archived.
    lost = models.BigIntegerField()
    offsets = models.JSONField(default=dict)
    error = models.TextField(blank=True)
    exit_code = models.PositiveSmallIntegerField()

    class Meta:
        verbose_name = _("pipeline run")
        verbose_name_plural = _("pipeline runs")
        ordering: ClassVar = ["-started_at"]

    def __str__(self) -> str:
        return f"{self.step} at {localtime(self.started_at):%Y-%m-%d %H:%M}"


class PublishedDay(models.Model):
    """The published state of a day of a lake table."""

    table = models.CharField(max_length=32)
    day = models.DateField()
    #: Changes with the files of the day.
    signature = models.CharField(max_length=64)
    rows = models.BigIntegerField()

    class Meta:
        verbose_name = _("published day")
        verbose_name_plural = _("published days")
        constraints: ClassVar = [models.UniqueConstraint(fields=["table", "day"], name="rsmq_published_day")]

    def __str__(self) -> str:
        return f"{self.table} {self.day}"


class LakeDay(models.Model):
    """The files of a day of a lake table, without files that wait for their removal."""

    table = _path()
    day = _day()
    rows = models.BigIntegerField()
    files = models.IntegerField()
    size_bytes = models.BigIntegerField()

    class Meta:
        verbose_name = _("day of the lake")
        verbose_name_plural = _("lake")
        ordering: ClassVar = ["-day", "table"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["table", "day"], name="rsmq_lake_day")]

    def __str__(self) -> str:
        return f"{self.table} {self.day}"


class LakeState(models.Model):
    """The place of the lake and its newest event, as of the last publishing: one row."""

    #: Path or address without credentials.
    place = models.TextField()
    newest_event_at = UtcField(null=True)  # type: ignore[misc]
    published_at = UtcField()

    class Meta:
        verbose_name = verbose_name_plural = _("state of the lake")
        default_permissions = ()

    def __str__(self) -> str:
        return self.place


class TaskStatistics(models.Model):
    """Counts of the attempts of a task in a queue, and their latencies and run times."""

    day = _day()
    queue = _queue()
    task = _path()
    attempts = models.BigIntegerField()
    first_attempts = models.BigIntegerField()
    succeeded = models.BigIntegerField()
    retried = models.BigIntegerField()
    dead = models.BigIntegerField()
    released = models.BigIntegerField()
    lost = models.BigIntegerField()
    cancelled = models.BigIntegerField()
    busy_us = models.BigIntegerField()
    #: Sum of the squares of run times in seconds, for their variance.
    run_s_squared = models.FloatField()
    body_bytes = models.BigIntegerField()
    workers = models.IntegerField()
    wait_hist = HistogramField()
    run_hist = HistogramField()

    class Meta:
        abstract = True


class TaskHour(TaskStatistics):
    """Statistics of a task in a queue in an hour."""

    hour = UtcField()

    class Meta:
        verbose_name = _("task hour")
        verbose_name_plural = _("task history")
        ordering: ClassVar = ["hour", "queue", "task"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", "queue", "task"], name="rsmq_task_hour"),
        ]
        indexes: ClassVar = [models.Index(fields=["queue", "hour"], name="rsmq_task_hour_queue")]

    def __str__(self) -> str:
        return f"{self.task} in {self.queue} at {localtime(self.hour):%Y-%m-%d %H:%M}"


class TaskDay(TaskStatistics):
    """Statistics of a task in a queue in a day or in several days, see days.py. ALL means all queues or tasks."""

    days = models.PositiveSmallIntegerField()

    class Meta:
        verbose_name = _("task day")
        verbose_name_plural = _("task days")
        ordering: ClassVar = ["day", "queue", "task"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["day", "days", "queue", "task"], name="rsmq_task_day"),
        ]
        indexes: ClassVar = [models.Index(fields=["queue", "task", "days", "day"], name="rsmq_task_day_task")]

    def __str__(self) -> str:
        return f"{self.task} in {self.queue} from {self.day}, days: {self.days}"


class FailureGroup(models.Model):
    """Similar failures of a day: same task, same kind of error, same message except for numbers and ids."""

    day = _day()
    task = _path()
    fingerprint = models.CharField(max_length=32, db_index=True)
    error_type = _path()
    n = models.BigIntegerField()
    retried = models.BigIntegerField()
    dead = models.BigIntegerField()
    first_at = UtcField()
    last_at = UtcField()
    #: The text of the latest failure.
    sample = models.TextField(blank=True)
    sample_task_id = models.CharField(max_length=64, blank=True)
    queues = models.JSONField(default=list)
    workers = models.IntegerField()

    class Meta:
        verbose_name = _("failure group")
        verbose_name_plural = _("failures")
        ordering: ClassVar = ["-day", "-n"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["day", "fingerprint"], name="rsmq_failure_group")]
        permissions: ClassVar = [("mute_failuregroup", _("Can mute failures"))]

    def __str__(self) -> str:
        return f"{self.task}: {self.error_type} ({number_format(self.n, force_grouping=True)})"


class MutedFailure(models.Model):
    """A failure group that the page of failures does not show. Not written by publishing."""

    fingerprint = models.CharField(max_length=32, unique=True)
    muted_at = models.DateTimeField(auto_now_add=True)
    muted_by = models.CharField(max_length=150, blank=True)

    class Meta:
        verbose_name = _("muted failure")
        verbose_name_plural = _("muted failures")
        default_permissions = ()

    def __str__(self) -> str:
        return self.fingerprint


class SloBurn(models.Model):
    """The burn rate of an objective's error budget in a window before a time."""

    day = _day()
    at = UtcField()
    queue = _queue()
    objective = models.CharField(max_length=64)
    window = models.CharField(max_length=8)
    total = models.BigIntegerField()
    bad = models.BigIntegerField()
    target = models.FloatField()
    burn_rate = models.FloatField()
    #: Remaining share of the budget of 30 days; negative if overdrawn.
    budget_left = models.FloatField()

    class Meta:
        verbose_name = _("burn rate")
        verbose_name_plural = _("objectives and capacity")
        ordering: ClassVar = ["-at", "queue", "objective", "window"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["at", "queue", "objective", "window"], name="rsmq_slo_burn"),
        ]

    def __str__(self) -> str:
        return f"{self.queue} {self.objective} {self.window}: {self.burn_rate:.1f}"


#: Before the messages of an alarm that a run sends, with the time.
CLAIM = "sending:"


class SloAlarm(models.Model):
    """An alarm of an objective, and the messages about it. Written by `notify`, not by publishing."""

    queue = _queue()
    objective = models.CharField(max_length=64)
    #: "page" or "ticket".
    severity = models.CharField(max_length=8)
    began_at = UtcField()
    #: None: it goes on.
    ended_at = UtcField(null=True)  # type: ignore[misc]
    #: As of its begin.
    window = models.CharField(max_length=8)
    burn_rate = models.FloatField()
    budget_left = models.FloatField()
    #: Messages to be sent: "begin:email begin:webhook"; after "sending:1780000000" while a run sends them since then.
    unsent = models.CharField(max_length=100, blank=True)
    #: Why they were not sent; "" if that was not tried.
    error = models.TextField(blank=True)

    class Meta:
        verbose_name = _("burn alarm")
        verbose_name_plural = _("burn alarms")
        default_permissions = ()
        ordering: ClassVar = ["-began_at", "queue", "objective", "severity"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["queue", "objective", "severity", "began_at"], name="rsmq_slo_alarm"),
        ]

    def __str__(self) -> str:
        return f"{self.severity}: {self.queue} {self.objective} from {localtime(self.began_at):%Y-%m-%d %H:%M}"

    @property
    def messages(self) -> list[str]:
        """Return the messages to be sent."""
        return [word for word in self.unsent.split() if not word.startswith(CLAIM)]


class CapacityAdvice(models.Model):
    """The number of slots that a queue needs, with the inputs of the computation."""

    day = models.DateField()
    queue = _queue()
    attempts = models.BigIntegerField()
    arrivals_per_s = models.FloatField()
    mean_run_s = models.FloatField()
    run_cv_squared = models.FloatField()
    load = models.FloatField()
    slots_seen = models.IntegerField()
    #: None when there is no advice; `silent_because` says why.
    slots_needed = models.IntegerField(null=True)
    wait_target_s = models.FloatField()
    quantile = models.FloatField()
    silent_because = models.CharField(_("reason"), max_length=200, blank=True)

    class Meta:
        verbose_name = _("capacity advice")
        verbose_name_plural = _("capacity advice")
        ordering: ClassVar = ["-day", "queue"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["day", "queue"], name="rsmq_capacity_advice")]

    def __str__(self) -> str:
        return f"{self.queue} on {self.day}: {self.slots_needed or self.silent_because}"


class Anomaly(models.Model):
    """An hour that differs from the same hour of other days."""

    day = _day()
    hour = UtcField()
    queue = _queue()
    task = _path()
    metric = models.CharField(max_length=32)
    value = models.FloatField()
    median = models.FloatField()
    mad = models.FloatField()
    #: None if the metric was constant before, so that there is no scale.
    z = models.FloatField(null=True)
    n = models.BigIntegerField()

    class Meta:
        verbose_name = _("anomaly")
        verbose_name_plural = _("anomalies")
        ordering: ClassVar = ["-hour", "queue", "task"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", "queue", "task", "metric"], name="rsmq_anomaly"),
        ]

    def __str__(self) -> str:
        return f"{self.metric} of {self.task} in {self.queue} at {localtime(self.hour):%Y-%m-%d %H:%M}"


class QueueDepth(models.Model):
    """The depth of a queue at one moment."""

    day = _day()
    taken_at = UtcField()
    queue = _queue()
    waiting = models.BigIntegerField(_("ready"))
    delayed = models.BigIntegerField()
    in_flight = models.BigIntegerField()
    #: None without messages.
    oldest_age_us = models.BigIntegerField(null=True)
    body_bytes = models.BigIntegerField()
    max_receive_count = models.IntegerField()

    objects = LocalDays.as_manager()

    class Meta:
        verbose_name = _("queue depth")
        verbose_name_plural = _("queue depths")
        ordering: ClassVar = ["-taken_at", "queue"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["taken_at", "queue"], name="rsmq_queue_depth")]

    def __str__(self) -> str:
        return f"{self.queue} at {localtime(self.taken_at):%Y-%m-%d %H:%M}"
