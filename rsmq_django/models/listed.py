"""Topics and reliable queues."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..live.listed import ReliableQueueSource, TopicSource
from .live import LiveManager, LiveModel


class Topic(LiveModel):
    """A log of messages that any number of groups read."""

    key = models.CharField(primary_key=True, max_length=500, editable=False)
    name = models.CharField(_("name"), max_length=160)
    connection = models.CharField(_("connection"), max_length=100)
    is_broken = models.BooleanField(_("broken"), default=False)
    messages = models.BigIntegerField(_("messages"), default=0)
    first = models.BigIntegerField(_("first index"), default=0)
    last = models.BigIntegerField(_("last index"), default=0)
    groups = models.PositiveIntegerField(_("groups"), default=0)
    oldest_at = models.DateTimeField(_("oldest"), null=True)
    newest_at = models.DateTimeField(_("newest"), null=True)

    objects = LiveManager(TopicSource)

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("topic")
        verbose_name_plural = _("topics")
        ordering = ("name",)
        permissions = (("seek_topic", _("Can replay topics and set groups")),)

    def __str__(self) -> str:
        return self.key


class ReliableQueue(LiveModel):
    """A queue whose messages stay on record until they are acknowledged."""

    key = models.CharField(primary_key=True, max_length=500, editable=False)
    name = models.CharField(_("name"), max_length=160)
    connection = models.CharField(_("connection"), max_length=100)
    waiting = models.BigIntegerField(_("ready"), default=0)
    delayed = models.BigIntegerField(_("delayed"), default=0)
    pending = models.BigIntegerField(_("in flight"), default=0)
    dead = models.BigIntegerField(_("dead"), default=0)
    oldest_pending_s = models.FloatField(_("oldest in flight (s)"), null=True)
    max_deliveries = models.PositiveIntegerField(_("max deliveries"), default=0)

    objects = LiveManager(ReliableQueueSource)

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("reliable queue")
        verbose_name_plural = _("reliable queues")
        ordering = ("name",)
        permissions = (
            ("settle_reliablequeue", _("Can acknowledge, release and dead-letter messages in flight")),
            ("redrive_reliablequeue", _("Can redrive dead messages")),
            ("discard_reliablequeue", _("Can discard dead messages")),
            ("move_reliablequeue", _("Can move messages to another reliable queue")),
        )

    def __str__(self) -> str:
        return self.key
