"""Writing down who did what, in the history that Django's admin keeps. Never a body or an argument."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest

from . import bulk_pages


def log(request: HttpRequest, row: Any, text: str) -> None:
    """Add one line to the history of a row."""
    LogEntry.objects.create(
        user_id=bulk_pages.user_id(request),
        content_type=ContentType.objects.get_for_model(type(row)),
        object_id=row.key,
        object_repr=row.key[:200],
        action_flag=CHANGE,
        change_message=text,
    )
