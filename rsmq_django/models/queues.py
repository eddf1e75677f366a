"""RSMQ queues and the messages in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..core.queue.browse import StoredMessage
from ..core.stats.depth import Depth
from ..live.history import QueuePast
from ..live.messages import DEAD, DELAYED, IN_FLIGHT, READY, MessageSource
from ..live.places import QueueRef, place_of
from ..live.queues import QueueRowSource
from .live import LiveManager, LiveModel


class Queue(LiveModel):
    """An RSMQ queue."""

    key = models.CharField(primary_key=True, max_length=500, editable=False)
    name = models.CharField(_("name"), max_length=160, editable=False)
    connection = models.CharField(_("connection"), max_length=100, editable=False)
    is_configured = models.BooleanField(_("in settings"), default=False, editable=False)
    holds_dead_letters = models.BooleanField(_("dead letters"), default=False, editable=False)
    is_paused = models.BooleanField(_("paused"), default=False, editable=False)
    is_broken = models.BooleanField(_("broken"), default=False, editable=False)
    visibility_timeout_s = models.FloatField(_("visibility timeout (s)"), default=0)
    delay_s = models.FloatField(_("delay (s)"), default=0)
    max_size_bytes = models.IntegerField(_("maximum size (bytes)"), default=0)
    messages = models.BigIntegerField(_("messages"), default=0, editable=False)
    ready = models.BigIntegerField(_("ready"), default=0, editable=False)
    hidden = models.BigIntegerField(_("delayed or in flight"), default=0, editable=False)
    oldest_ready_s = models.FloatField(_("oldest ready (s)"), null=True, editable=False)
    next_due_s = models.FloatField(_("next due (s)"), null=True, editable=False)
    total_sent = models.BigIntegerField(_("sent"), default=0, editable=False)
    total_received = models.BigIntegerField(_("received"), default=0, editable=False)
    created_at = models.DateTimeField(_("created"), null=True, editable=False)
    modified_at = models.DateTimeField(_("changed"), null=True, editable=False)

    objects = LiveManager(QueueRowSource)

    #: The clock of its server when it was read; only on rows that were read.
    now_ms: int

    #: Only on rows of the list: what happened lately, and how many processes take messages from it.
    past: QueuePast | None
    #: Kinds of `core/doctor/troubles.py`, the worst first.
    troubles: Sequence[str] = ()
    processes: int
    #: Messages in its dead-letter queue; None when the settings name none, or there is none yet.
    dead: int | None
    #: With the number of messages in flight; None when its server did not answer.
    depth: Depth | None

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        ordering = ("name",)
        default_permissions = ("view", "change", "delete")
        permissions = (
            ("send_message", _("Can send messages and enqueue tasks")),
            ("purge_queue", _("Can purge queue")),
            ("pause_queue", _("Can pause and resume queue")),
        )

    def __str__(self) -> str:
        place = place_of(self.key)
        return self.key if place is None else place.label

    @property
    def place(self) -> QueueRef:
        """Return where it is."""
        place = place_of(self.key)
        assert place is not None, f"{self.key!r} came from a place"
        return place


class Message(LiveModel):
    """A message in a queue, or a dead letter."""

    STATES: ClassVar = [
        (READY, _("Ready")),
        (DELAYED, _("Delayed")),
        (IN_FLIGHT, _("In flight")),
        (DEAD, _("Dead letter")),
    ]

    key = models.CharField(primary_key=True, max_length=700, editable=False)
    queue = models.CharField(_("queue"), max_length=500)
    message_id = models.CharField(_("message id"), max_length=200)
    state = models.CharField(_("state"), max_length=9, choices=STATES)
    task = models.CharField(_("task"), max_length=500)
    error = models.CharField(_("error"), max_length=500)
    receive_count = models.PositiveIntegerField(_("receive count"))
    visible_at = models.DateTimeField(_("visible from"), null=True)
    sent_at = models.DateTimeField(_("sent"), null=True)
    first_received_at = models.DateTimeField(_("first received"), null=True)
    size_bytes = models.BigIntegerField(_("size"), null=True)

    objects = LiveManager(MessageSource)

    #: What the row was made of; only on rows that were read.
    place: QueueRef
    stored: StoredMessage
    now_ms: int

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ("queue", "visible_at")
        default_permissions = ("view", "delete")
        permissions = (
            ("view_body", _("Can view bodies, results and errors")),
            ("move_message", _("Can run messages now, delay and move them")),
            ("redrive_message", _("Can redrive dead letters")),
        )

    def __str__(self) -> str:
        return self.key
