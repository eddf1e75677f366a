"""Models of registered tasks, schedules, task results and workflows."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..core.tasks.workflow_records import WorkflowStatus
from ..live.results import ResultSource
from ..live.schedules import ScheduleSource
from ..live.tasks import TaskSource
from ..live.workflows import WorkflowSource
from .live import LiveManager, LiveModel


class RegisteredTask(LiveModel):
    """A task of the project."""

    path = models.CharField(_("task"), primary_key=True, max_length=500, editable=False)
    queue = models.CharField(_("queue"), max_length=500)
    is_registered = models.BooleanField(_("registered"), default=True)
    sent = models.BigIntegerField(_("sent"), default=0)
    succeeded = models.BigIntegerField(_("succeeded"), default=0)
    failed = models.BigIntegerField(_("failed attempts"), default=0)
    dead = models.BigIntegerField(_("dead letters"), default=0)
    run_median_s = models.FloatField(_("median run time (s)"), null=True)
    run_p95_s = models.FloatField(_("p95 run time (s)"), null=True)

    objects = LiveManager(TaskSource)

    #: The declared task, or None when only its counters exist; and the queues of its counters. Set when read.
    task: Any
    queue_names: list[str]

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        ordering = ("path",)

    def __str__(self) -> str:
        return self.path


class Schedule(LiveModel):
    """A schedule that runs a task repeatedly."""

    name = models.CharField(_("name"), primary_key=True, max_length=200, editable=False)
    connection = models.CharField(_("connection"), max_length=100)
    task = models.CharField(_("task"), max_length=500)
    queue = models.CharField(_("queue"), max_length=160)
    when = models.CharField(_("when"), max_length=200)
    is_declared = models.BooleanField(_("declared in code"), default=False)
    is_paused = models.BooleanField(_("paused"), default=False)
    next_at = models.DateTimeField(_("next"), null=True)
    last_planned_at = models.DateTimeField(_("planned"), null=True)
    last_fired_at = models.DateTimeField(_("last"), null=True)
    last_task_id = models.CharField(_("last task id"), max_length=64)
    fired = models.BigIntegerField(_("fired"), default=0)
    skipped = models.BigIntegerField(_("skipped"), default=0)
    problem = models.TextField(_("problem"))

    objects = LiveManager(ScheduleSource)

    #: What the row was made of (schedules.Entry); only on rows that were read.
    entry: Any

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ("name",)
        default_permissions = ("view", "add", "change", "delete")
        permissions = (
            ("run_schedule", _("Can run a schedule now")),
            ("pause_schedule", _("Can pause and resume schedules")),
        )

    def __str__(self) -> str:
        return self.name


class Result(LiveModel):
    """The result of a task."""

    task_id = models.CharField(_("task id"), primary_key=True, max_length=64, editable=False)
    connection = models.CharField(_("connection"), max_length=100)
    status = models.CharField(_("status"), max_length=20)
    queue = models.CharField(_("queue"), max_length=160)
    message_id = models.CharField(_("message id"), max_length=200)
    attempts = models.PositiveIntegerField(_("attempts"))
    enqueued_at = models.DateTimeField(_("enqueued"), null=True)
    started_at = models.DateTimeField(_("started"), null=True)
    finished_at = models.DateTimeField(_("finished"), null=True)

    objects = LiveManager(ResultSource)

    #: The record as it is stored; only on rows that were read.
    record: dict[str, str]

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("task result")
        verbose_name_plural = _("task results")
        ordering = ("task_id",)

    def __str__(self) -> str:
        return self.task_id


class Workflow(LiveModel):
    """Tasks that follow each other, or belong together."""

    KINDS: ClassVar = [("chain", _("Chain")), ("group", _("Group")), ("map", _("Map"))]
    STATES: ClassVar = [
        ("running", _("Running")),
        ("succeeded", _("Succeeded")),
        ("failed", _("Failed")),
        ("cancelled", _("Cancelled")),
    ]

    key = models.CharField(primary_key=True, max_length=700, editable=False)
    workflow_id = models.CharField(_("workflow"), max_length=200)
    connection = models.CharField(_("connection"), max_length=100)
    name = models.CharField(_("name"), max_length=500)
    kind = models.CharField(_("kind"), max_length=5, choices=KINDS)
    state = models.CharField(_("state"), max_length=9, choices=STATES)
    total = models.BigIntegerField(_("calls"), default=0)
    done = models.BigIntegerField(_("done"), default=0)
    failed = models.BigIntegerField(_("failed members"), default=0)
    members = models.BigIntegerField(_("members"), default=0)
    waiting = models.BigIntegerField(_("pending"), default=0)
    created_at = models.DateTimeField(_("created"), null=True)
    finished_at = models.DateTimeField(_("finished"), null=True)

    objects = LiveManager(WorkflowSource)

    #: What the row was made of; only on rows that were read.
    status: WorkflowStatus

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("workflow")
        verbose_name_plural = _("workflows")
        ordering = ("-created_at",)
        permissions = (("cancel_workflow", _("Can cancel workflows")),)

    def __str__(self) -> str:
        return self.name or self.workflow_id
