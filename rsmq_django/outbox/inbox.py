"""Exactly-once effect: a task records its completion in its own transaction, and a repeated run finds the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.db import IntegrityError, transaction

from .models import InboxEntry
from .writing import outbox_database


def run_once(task_id: str, task: str, function: Callable[[], Any]) -> Any:
    """Call the function in a transaction that also records the task id; a repeated run returns the recorded value.

    The record is written first: a concurrent run waits for the first run's transaction, and then finds the task done,
    or runs it if the transaction was rolled back.
    """
    database = outbox_database()
    entries = InboxEntry.objects.using(database)
    with transaction.atomic(using=database):
        try:
            with transaction.atomic(using=database):
                entry = entries.create(task_id=task_id, task=task[:255])
        except IntegrityError:
            return json.loads(entries.get(task_id=task_id).value)
        value = function()
        entry.value = _as_json(value)
        entry.save(using=database, update_fields=["value"])
        return value


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return "null"  # the return value cannot be stored; the task has succeeded
