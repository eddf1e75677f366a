"""The pages of task results: found by task id, with every attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..live.places import QueueRef
from ..models import Result
from ..tasks.results import authenticity
from .bodies import shown
from .formats import visible
from .message_page import attempts_of
from .recorded_calls import RecordedCall, call_of_result
from .run_again import RunsAgain
from .site import LiveAdmin

#: Where rsmqctl and the tasks themselves have more than a page should show.
LONGEST_CHARACTERS = 1024 * 1024


#: What Django's statuses are called on all pages; those of other programs are shown as they are.
STATUSES = {
    "READY": gettext_lazy("Ready"),
    "RUNNING": gettext_lazy("Running"),
    "SUCCESSFUL": gettext_lazy("Succeeded"),
    "FAILED": gettext_lazy("Failed"),
}


def status_of(status: str) -> str:
    """Return the status of a task in words."""
    return str(STATUSES.get(status, visible(status)))


@admin.register(Result)
class ResultAdmin(RunsAgain, LiveAdmin):
    """See the module."""

    list_display = ("task_id", "shown_status", "queue", "attempts", "enqueued_at", "started_at", "finished_at")
    #: Redis cannot list results, so their total number is unknown.
    show_full_result_count = False
    search_fields = ("task_id",)
    search_help_text = gettext_lazy("Enter a task id to find its result.")

    @admin.display(description=gettext_lazy("status"), ordering="status")
    def shown_status(self, result: Result) -> str:
        """Return the status in words."""
        return status_of(result.status)

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the page beside Django's."""
        return (self.run_url(),)

    def recorded_call(self, key: str) -> RecordedCall | None:
        """Return the call of a task."""
        result = Result.objects.filter(pk=key).first()
        return call_of_result(result.connection, result.task_id, result.record) if result is not None else None

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add the value, the call and the attempts, for users who may see them."""
        result: Result = context["original"]
        place = QueueRef(result.connection, result.record.get("queue", ""))
        message_id = result.record.get("message", "").encode("utf-8", "surrogateescape")
        context |= {
            "title": _("Task result"),
            "subtitle": None,
            "task_id": visible(result.task_id),
            "status": status_of(result.status),
            "queue_key": place.key if place.name else "",
            "message_key": place.message_key(message_id) if place.name and message_id else "",
            "may_view_body": self.may(request, "view_body"),
            "attempts": attempts_of(result.record),
            "value": self._shown(result, "value"),
            "call": self._shown(result, "body"),
            "authenticity": authenticity(result.task_id, result.record),
            **self.run_context(request, result.task_id, self._task_of(result)),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    @staticmethod
    def _task_of(result: Result) -> str:
        """Return the task, if this project declares it."""
        call = call_of_result(result.connection, result.task_id, result.record)
        return call.envelope.task if call is not None and call.task is not None else ""

    @staticmethod
    def _shown(result: Result, name: str) -> Any:
        text = result.record.get(name)
        if text is None:
            return None
        body = text[:LONGEST_CHARACTERS].encode("utf-8", "surrogateescape")
        return shown(body)
