"""Exactly-once effect: a task notes in its own transaction that it is done, and a repeat finds the note."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.db import IntegrityError, transaction

from .models import InboxEntry
from .writing import outbox_database


def run_once(task_id: str, task: str, function: Callable[[], Any]) -> Any:
    """Call the function in a transaction that also notes the task id; a repeat returns what the first run returned.

    The note is written first: a second run at the same time waits for the first one's transaction, and then finds it
    done or, when it was rolled back, runs itself.
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
        return "null"  # the task ends as one whose return value cannot be kept; its work is done
