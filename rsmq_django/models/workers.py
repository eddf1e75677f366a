"""Worker processes."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..core.queue.listing import WorkerBeat
from ..core.tasks.processes import ProcessRecord
from ..live.workers import WorkerSource
from .live import LiveManager, LiveModel


class Worker(LiveModel):
    """A worker process."""

    STATES: ClassVar = [
        ("working", _("Working")),
        ("quiet", _("Paused")),
        ("stopping", _("Stopping")),
        ("silent", _("No heartbeat")),
        ("unknown", _("Unknown")),
    ]

    key = models.CharField(primary_key=True, max_length=700, editable=False)
    worker_id = models.CharField(_("worker"), max_length=500)
    connection = models.CharField(_("connection"), max_length=100)
    last_beat_at = models.DateTimeField(_("last heartbeat"), null=True)
    is_alive = models.BooleanField(_("alive"))
    state = models.CharField(_("state"), max_length=8, choices=STATES)
    host = models.CharField(_("host"), max_length=200)
    pid = models.PositiveIntegerField(_("process id"), null=True)
    version = models.CharField(_("version"), max_length=50)
    queues = models.TextField(_("queues"))
    running = models.PositiveIntegerField(_("running"), null=True)
    longest_run_s = models.FloatField(_("longest running (s)"), null=True)
    memory_bytes = models.BigIntegerField(_("memory"), null=True)
    started_at = models.DateTimeField(_("started"), null=True)

    objects = LiveManager(WorkerSource)

    #: What the row was made of; only on rows that were read. A worker without a supervisor has no record.
    beat: WorkerBeat
    record: ProcessRecord | None

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        ordering = ("worker_id",)
        permissions = (("control_worker", _("Can control workers")),)

    def __str__(self) -> str:
        return self.worker_id
