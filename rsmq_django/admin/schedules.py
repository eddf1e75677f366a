"""The pages of schedules: when they fire, pausing and resuming them, and running one now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import schedules
from ..core.errors import NotConfirmed, RedisFailure, RsmqError
from ..live.places import home_of
from ..live.runs import on_connection
from ..models import Schedule
from ..tasks.envelope import Envelope
from . import schedule_pages
from .components.operations import Operation, action_for, by_name, permission_for
from .cron_words import words_of
from .formats import as_time, one_line, visible
from .logs import log
from .schedule_forms import MISSED
from .schedule_ticks import last_ticks, next_ticks
from .site import LiveAdmin, explanation_of
from .workflow_graph import call_text

OPERATIONS = by_name(
    Operation("run", "run_schedule", gettext_lazy("Run now"), schedules.run_now, gettext_lazy("Run by hand")),
    Operation("pause", "pause_schedule", gettext_lazy("Pause"), schedules.pause, gettext_lazy("Paused")),
    Operation("resume", "pause_schedule", gettext_lazy("Resume"), schedules.resume, gettext_lazy("Resumed")),
)


def operate(model_admin: LiveAdmin, request: HttpRequest, operation: Operation, rows: Iterable[Schedule]) -> None:
    """Do something to schedules, and say what could not be done."""
    for schedule in rows:
        try:
            operation.carry_out(schedule.entry.name)
        except NotConfirmed as error:  # its call was sent
            model_admin.tell(request, explanation_of(error), is_good=False)
        except RedisFailure:
            raise
        except (RsmqError, ImproperlyConfigured, ValueError) as error:
            text = explanation_of(error) if isinstance(error, RsmqError) else str(error)
            model_admin.tell(request, f"{visible(schedule.name)}: {visible(text)}", is_good=False)
            continue
        log(request, schedule, str(operation.logged))
        model_admin.tell(request, f"{operation.label}: {visible(schedule.name)}")


@admin.register(Schedule)
class ScheduleAdmin(LiveAdmin):
    """See the module."""

    list_display = (
        "shown_name",
        "status",
        "shown_when",
        "next_at",
        "last_fired_at",
        "fired",
        "skipped",
        "task",
        "queue",
    )
    list_display_links = ("shown_name",)
    list_filter = ("is_paused", "is_declared")
    search_fields = ("name", "task")
    actions = tuple(action_for(operation, operate) for operation in OPERATIONS.values())
    has_run_schedule_permission = permission_for("run_schedule")
    has_pause_schedule_permission = permission_for("pause_schedule")
    #: What django-unfold looks for before it shows the link that adds one.
    show_add_link = True

    @admin.display(description=gettext_lazy("schedule"), ordering="name")
    def shown_name(self, schedule: Schedule) -> str:
        """Return the name."""
        return one_line(schedule.name, 60)

    @admin.display(description=gettext_lazy("when"))
    def shown_when(self, schedule: Schedule) -> str:
        """Return when it is due, in words."""
        return words_of(schedule.entry.schedule.timetable) if schedule.entry.schedule else "-"

    @admin.display(description=gettext_lazy("status"))
    def status(self, schedule: Schedule) -> str:
        """Return whether it fires."""
        if schedule.problem:
            return format_html('<span class="rsmq-bad">{}</span>', one_line(schedule.problem, 80))
        return _("paused") if schedule.is_paused else _("on")

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the page beside Django's."""
        return [
            self.own_url("add/", self.add_page, "add"),
            self.own_url("<path:object_id>/edit/", self.edit_page, "edit"),
            self.own_url("<path:object_id>/delete/", self.delete_page, "delete"),
            self.own_url("<path:object_id>/operate/", self.operate_view, "operate", post_only=True),
        ]

    def add_page(self, request: HttpRequest) -> HttpResponse:
        """See schedule_pages.py."""
        return schedule_pages.add_page(self, request)

    def edit_page(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """See schedule_pages.py."""
        return schedule_pages.edit_page(self, request, object_id)

    def delete_page(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """See schedule_pages.py."""
        return schedule_pages.delete_page(self, request, object_id)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may add schedules; Django then offers our page."""
        return self.may(request, "add_schedule")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: Django would delete rows. Our page deletes one schedule."""
        return False

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what can be done, and the options."""
        schedule: Schedule = context["original"]
        names = ["run", "resume" if schedule.is_paused else "pause"]
        context |= {
            "title": _("Schedule %(name)s") % {"name": visible(schedule.name)},
            "subtitle": None,
            "status": self.status(schedule),
            "operations": [
                (name, OPERATIONS[name].label) for name in names if self.may(request, OPERATIONS[name].codename)
            ],
            "may_view_result": self.may(request, "view_result"),
            "runs_url": self._runs_url(schedule) if self.may(request, "view_run") else "",
            **self._plan_of(request, schedule),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def _runs_url(self, schedule: Schedule) -> str:
        here = on_connection(home_of(schedule.entry.queue_name))
        return self.address("run_changelist", task=schedule.task, **here)

    def _plan_of(self, request: HttpRequest, row: Schedule) -> dict[str, Any]:
        """Return when it is due, with which arguments, and what may be changed of it."""
        schedule = row.entry.schedule
        may_view_body, may_change = self.may(request, "view_body"), not row.is_declared
        if schedule is None:
            return {"when": "-", "missed": "-", "may_delete": may_change and self.may(request, "delete_schedule")}
        ticks = next_ticks(row.entry)
        call = Envelope(schedule.task, "", list(schedule.args), dict(schedule.kwargs or {}))
        return {
            "when": words_of(schedule.timetable),
            "has_other_zone": any(tick.on_its_clock not in ("", as_time(tick.at)) for tick in ticks),
            "expression": visible(schedule.cron or ""),
            "arguments": call_text(call) if may_view_body else "",
            "missed": dict(MISSED).get(schedule.missed, schedule.missed),
            "next_ticks": ticks,
            "last_ticks": last_ticks(row.entry),
            "may_change": may_change and may_view_body and self.may(request, "change_schedule"),
            "may_delete": may_change and self.may(request, "delete_schedule"),
        }

    def operate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Do something from the page of a schedule."""
        operation = OPERATIONS.get(request.POST.get("action", ""))
        if operation is None:
            raise Http404
        schedule = self.row_for(request, object_id, operation.codename)
        operate(self, request, operation, [schedule])
        return HttpResponseRedirect(self.address("schedule_change", schedule.pk))
