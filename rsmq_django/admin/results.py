"""The page of task results."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from ..models import Result
from .site import LiveAdmin


@admin.register(Result)
class ResultAdmin(LiveAdmin):
    """What became of a task: Redis knows it by its id."""

    list_display = ("task_id", "status", "queue", "attempts", "enqueued_at", "started_at", "finished_at")
    search_fields = ("task_id",)
    search_help_text = _("Results are found by their task id.")
