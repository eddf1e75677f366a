"""Writing down who did what, in the history that Django's admin keeps. Never a body or an argument."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest


def log(request: HttpRequest, row: Any, text: str) -> int:
    """Add one line to the history of a row, and return the number of that line."""
    entry = LogEntry.objects.create(
        user_id=user_id(request),
        content_type=ContentType.objects.get_for_model(type(row)),
        object_id=row.pk,
        object_repr=str(row)[:200],
        action_flag=CHANGE,
        change_message=text,
    )
    return int(entry.pk)


def user_id(request: HttpRequest) -> Any:
    """Return the primary key of who is logged in."""
    user: Any = request.user
    return user.pk
