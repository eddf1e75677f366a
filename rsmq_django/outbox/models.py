"""The two tables: outbox messages to send, and inbox entries of finished tasks."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone

__all__ = ["WAITING", "InboxEntry", "OutboxMessage"]

#: Rows that the relay has to process.
WAITING = models.Q(sent_at=None, refusal="")


class OutboxMessage(models.Model):
    """A task message to be sent to Redis. Rows are sent in the order of their keys, per queue."""

    queue_name = models.CharField(max_length=160)
    task_id = models.CharField(max_length=63, unique=True)
    #: Dotted path, for display.
    task = models.CharField(max_length=255)
    body = models.BinaryField()
    #: None: the queue's delay.
    run_after = models.DateTimeField(null=True)
    keeps_result = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, db_index=True)
    #: Why it can never be sent; an operator has to check it.
    refusal = models.TextField(default="", blank=True)

    class Meta:
        verbose_name = "outbox message"
        indexes: ClassVar = [models.Index(fields=["queue_name", "id"], condition=WAITING, name="rsmq_outbox_waiting")]

    def __str__(self) -> str:
        return f"{self.task} {self.task_id} for {self.queue_name}"


class InboxEntry(models.Model):
    """A finished task, recorded in the transaction of its work."""

    task_id = models.CharField(max_length=63, primary_key=True)
    task = models.CharField(max_length=255)
    #: Its return value, as JSON.
    value = models.TextField(default="null")
    done_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        verbose_name = "inbox entry"
        verbose_name_plural = "inbox entries"

    def __str__(self) -> str:
        return f"{self.task} {self.task_id}"
