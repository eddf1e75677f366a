"""The pages of tasks: which there are, their options, and how their attempts went."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..live.places import QueueRef, home_of
from ..live.runs import on_connection
from ..live.tasks import past_of_task, queue_place
from ..models import RegisteredTask
from .formats import as_run_time, breakable, one_line, short_list, visible
from .past_charts import charts_of, span_links, span_of
from .site import LiveAdmin
from .task_options import options_of


@admin.register(RegisteredTask)
class TaskAdmin(LiveAdmin):
    """See the module."""

    list_display = (
        "shown_path",
        "shown_queues",
        "sent",
        "succeeded",
        "failed",
        "dead",
        "median",
        "p95",
        "is_registered",
    )
    list_display_links = ("shown_path",)
    list_filter = ("is_registered",)
    search_fields = ("path", "queue")
    search_help_text = gettext_lazy("Totals (reset after 32 idle days).")

    @admin.display(description=gettext_lazy("task"), ordering="path")
    def shown_path(self, task: RegisteredTask) -> str:
        """Return the dotted path."""
        return breakable(one_line(task.path, 100))

    @admin.display(description=gettext_lazy("queue"), ordering="queue")
    def shown_queues(self, task: RegisteredTask) -> str:
        """Return the first queues in which it was counted; its page has all."""
        return short_list(task.queue.split(", "))

    @admin.display(description=gettext_lazy("median run time"), ordering="run_median_s")
    def median(self, task: RegisteredTask) -> str:
        """Return how long one of two runs takes at most."""
        return as_run_time(task.run_median_s)

    @admin.display(description=gettext_lazy("p95"), ordering="run_p95_s")
    def p95(self, task: RegisteredTask) -> str:
        """Return how long 19 of 20 runs take at most."""
        return as_run_time(task.run_p95_s)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add options and charts."""
        task: RegisteredTask = context["original"]
        charts = charts_of(past_of_task(task.pk, task.queue_names, span_of(request)), span_of(request))
        context |= {
            "title": _("Task %(path)s") % {"path": visible(task.path)},
            "subtitle": None,
            "options": options_of(task.task) if task.task is not None else [],
            "document": one_line(task.task.func.__doc__ or "", 300) if task.task is not None else "",
            "charts": [chart for chart in charts if chart.name != "throughput"],
            "spans": span_links(request),
            "median": self.median(task),
            "p95": self.p95(task),
            "queue_links": [(visible(name), self._queue_url(name)) for name in task.queue_names],
            "runs_url": self._runs_url(task) if self.may(request, "view_run") else "",
            "messages_url": self.address("message_changelist", q=task.path),
            "enqueue_url": self._enqueue_url(request, task),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def _enqueue_url(self, request: HttpRequest, task: RegisteredTask) -> str:
        if task.task is None or not (self.may(request, "send_message") and self.may(request, "view_queue")):
            return ""
        name = task.task.queue_name
        return self.address("queue_enqueue", QueueRef(home_of(name), name).key, task=task.path)

    def _runs_url(self, task: RegisteredTask) -> str:
        """Return the address of the runs on the connection of the task's queue, or of the first queue with counters."""
        name = task.task.queue_name if task.task is not None else next(iter(task.queue_names), "")
        return self.address("run_changelist", task=task.path, **on_connection(home_of(name)))

    def _queue_url(self, name: str) -> str:
        place = queue_place(name)
        return self.address("queue_change", place.key) if place is not None else ""
