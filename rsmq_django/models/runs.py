"""Runs: attempts at tasks, read from the event log."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..core.stats.events import Event
from ..live.runs import RunSource
from .live import LiveManager, LiveModel


class Run(LiveModel):
    """One attempt that came to its end."""

    OUTCOMES: ClassVar = [
        ("succeeded", _("Succeeded")),
        ("retried", _("Retried")),
        ("dead", _("Dead letter")),
        ("discarded", _("Discarded")),
        ("lost", _("Lost")),
        ("released", _("Given back")),
        ("cancelled", _("Cancelled")),
    ]

    key = models.CharField(primary_key=True, max_length=1500, editable=False)
    connection = models.CharField(_("connection"), max_length=100)
    ended_at = models.DateTimeField(_("time"), null=True)
    task = models.CharField(_("task"), max_length=500)
    queue = models.CharField(_("queue"), max_length=500)
    outcome = models.CharField(_("outcome"), max_length=10, choices=OUTCOMES)
    latency_s = models.FloatField(_("latency (s)"), null=True)
    run_time_s = models.FloatField(_("run time (s)"), null=True)
    attempt = models.PositiveIntegerField(_("attempt"), null=True)
    worker = models.CharField(_("worker"), max_length=500)
    error = models.CharField(_("error"), max_length=1000)
    tags = models.TextField(_("tags"))

    objects = LiveManager(RunSource)

    #: What the row was made of; only on rows that were read.
    event: Event

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ("-ended_at",)

    def __str__(self) -> str:
        return self.task or self.key
