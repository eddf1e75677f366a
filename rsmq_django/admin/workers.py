"""The page of worker processes."""

from __future__ import annotations

from django.contrib import admin

from ..models import Worker
from .site import LiveAdmin


@admin.register(Worker)
class WorkerAdmin(LiveAdmin):
    """Which workers there are, and when they were last heard of."""

    list_display = ("worker_id", "connection", "is_alive", "last_beat_at")
    list_filter = ("is_alive",)
    search_fields = ("worker_id",)
