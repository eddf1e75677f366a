"""The list of runs, newest first, and the page of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf.settings import get_settings
from ..live.older_runs import LakeProblem, OlderRuns
from ..live.places import QueueRef
from ..live.row_keys import row_key
from ..live.runs import on_connection
from ..live.servers import all_places
from ..live.times import as_datetime
from ..models import Run
from ..tasks.catalogue import known_tasks
from .formats import as_moment, as_number, as_run_time, as_size, as_time, breakable, one_line, visible
from .message_page import as_safe_text
from .recorded_calls import RecordedCall, call_of_run
from .run_again import RunsAgain
from .run_filters import BEFORE, RunForm, known_fields
from .run_page import PageOfRun
from .site import LiveAdmin, LiveChangeList

#: Names that a field of the form offers.
MAX_CHOICES = 200


class RunChangeList(LiveChangeList):
    """A page of runs; the next one begins behind its last run."""

    @property
    def notes(self) -> list[str]:
        """Return what the operator should know beside the rows."""
        queryset: Any = self.queryset
        notes, page = super().notes, queryset.source.page_of_runs
        if get_settings().events.record == "off":
            notes.append(_("The event log is off: new runs are not listed. See EVENTS in the settings."))
        if page is not None and page.is_cut:
            text = _("Searched %(count)s events. Use “Older runs” to search older ones.")
            if self.continues_at:
                text = _("No match in %(count)s events. The search continues with older ones.")
            notes.append(text % {"count": as_number(page.looked_at)})
        if queryset.source.older is not None:
            notes.append(_note_about(queryset.source.older))
        return notes

    @property
    def older_url(self) -> str:
        """Return the address of the page behind this one, or ""."""
        queryset: Any = self.queryset
        page = queryset.source.page_of_runs
        return self.get_query_string({BEFORE: page.older}, ["p"]) if page is not None and page.older else ""

    @property
    def continues_at(self) -> str:
        """Return the address at which a search continues by itself because it has found nothing yet, or ""."""
        queryset: Any = self.queryset
        page = queryset.source.page_of_runs
        return self.older_url if page is not None and page.is_cut and not page.runs else ""

    @property
    def newest_url(self) -> str:
        """Return the address of the first page, or "" when this is it."""
        return self.get_query_string(remove=[BEFORE, "p"]) if BEFORE in self.params else ""


@admin.register(Run)
class RunAdmin(RunsAgain, LiveAdmin):
    """See the module."""

    change_list_template = "admin/rsmq/run/change_list.html"
    list_display = (
        "shown_time",
        "shown_task",
        "shown_queue",
        "shown_outcome",
        "latency",
        "run_time",
        "attempt",
        "shown_worker",
        "shown_error",
        "tags",
    )
    list_display_links = ("shown_time", "shown_task")
    list_filter: ClassVar[Any] = known_fields([*RunForm.base_fields, BEFORE])
    sortable_by: ClassVar[Any] = ()
    show_full_result_count = False
    actions = None

    # -- The list -----------------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("time"))
    def shown_time(self, run: Run) -> SafeString:
        """Return when the attempt ended."""
        return as_moment(run.ended_at)

    @admin.display(description=gettext_lazy("task"))
    def shown_task(self, run: Run) -> str:
        """Return the task, which may be broken into lines; "unknown" where there is none."""
        return breakable(one_line(run.task, 80)) if run.task else _("unknown")

    @admin.display(description=gettext_lazy("queue"))
    def shown_queue(self, run: Run) -> str:
        """Return the queue; a lane or a priority band is a part of its queue."""
        return one_line(get_settings().base_name(run.queue), 60)

    @admin.display(description=gettext_lazy("outcome"))
    def shown_outcome(self, run: Run) -> SafeString:
        """Return the outcome, in a colour."""
        return outcome_of(run)

    @admin.display(description=gettext_lazy("latency"))
    def latency(self, run: Run) -> str:
        """Return the time from due to start."""
        return as_run_time(run.latency_s)

    @admin.display(description=gettext_lazy("run time"))
    def run_time(self, run: Run) -> str:
        """Return the time from start to end."""
        return as_run_time(run.run_time_s)

    @admin.display(description=gettext_lazy("worker"))
    def shown_worker(self, run: Run) -> str:
        """Return the beginning of the worker's id."""
        return one_line(run.worker, 24)

    @admin.display(description=gettext_lazy("error"))
    def shown_error(self, run: Run) -> str:
        """Return the kind of error; its text for users who may see it."""
        name = run.error.rpartition(".")[2]
        text = as_safe_text(run.event.error) if getattr(run, "shows_texts", False) else ""
        return one_line(f"{name}: {text}" if name and text else name or "-", 100)

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns: tags are in bodies."""
        columns = super().get_list_display(request)
        return columns if self.may(request, "view_body") else [each for each in columns if each != "tags"]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunChangeList]:
        """Return our list."""
        may_view_body = self.may(request, "view_body")

        class List(RunChangeList):
            def get_results(self, request: HttpRequest) -> None:
                super().get_results(request)
                for run in self.result_list:
                    run.shows_texts = may_view_body

        return List

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return the runs that the address asks for."""
        queryset: Any = super().get_queryset(request)
        form = RunForm(request.GET, may_view_body=self.may(request, "view_body"))
        before = request.GET.get(BEFORE, "")
        position = before if _is_position(before) else "+"
        queryset.source.asked = form.asked(position)
        return queryset

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Return the same: the form has the words."""
        return queryset, False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the list below the form."""
        form = RunForm(request.GET, may_view_body=self.may(request, "view_body"))
        context = {
            "form": form,
            "tasks": sorted(known_tasks())[:MAX_CHOICES],
            "queues": [place.name for place in all_places([])[:MAX_CHOICES]],
            "are_asked": any(request.GET.get(name) for name in RunForm.base_fields),
        }
        response: Any = super().changelist_view(request, {**context, **(extra_context or {})})
        shown = getattr(response, "context_data", None) or {}
        if "cl" in shown and shown["cl"].queryset.source.older is not None:
            shown["is_live"] = False  # the past does not change, and an open page would read the lake again and again
        return response

    # -- One run ------------------------------------------------------------------------------------------------------

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the page beside Django's."""
        return (self.run_url(),)

    def recorded_call(self, key: str) -> RecordedCall | None:
        """Return the call of a run."""
        run = Run.objects.filter(pk=key).first()
        if run is None:
            return None
        return call_of_run(QueueRef(run.connection, run.event.queue), run.event.message_id, run.event.task_id)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what the page of a run shows."""
        run: Run = context["original"]
        page, event = PageOfRun(run), run.event
        may_view_body = self.may(request, "view_body")
        context |= {
            "title": _("Run of %(task)s") % {"task": one_line(run.task, 80) or _("unknown")},
            "subtitle": None,
            "page": page,
            "may_view_body": may_view_body,
            "outcome": outcome_of(run),
            "latency": as_run_time(run.latency_s),
            "run_time": as_run_time(run.run_time_s),
            "size": as_size(event.body_bytes),
            "ended": as_moment(run.ended_at),
            "task_id": visible(event.task_id),
            "message_id": visible(event.message_id),
            "urls": self._urls(request, page),
            "others": [
                (each, self.address("run_change", each.pk), outcome_of(each), as_run_time(each.run_time_s))
                for each in page.other_runs
            ],
            **self.run_context(request, run.pk, event.task if event.task_id else ""),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def _urls(self, request: HttpRequest, page: PageOfRun) -> dict[str, str]:
        """Return the addresses of what the run has to do with, as far as the user may see it."""
        event, place = page.event, page.place
        here = on_connection(place.alias)
        urls = {"same_error": self.address("run_changelist", group=page.group, **here) if page.group else ""}
        urls["same_task"] = self.address("run_changelist", task=event.task, **here) if event.task else ""
        if self.may(request, "view_registeredtask") and event.task in known_tasks():
            urls["task"] = self.address("registeredtask_change", event.task)
        if self.may(request, "view_queue") and ":" not in place.name:
            urls["queue"] = self.address("queue_change", place.key)
        if self.may(request, "view_message") and page.message_place is not None:
            urls["message"] = self.address("message_change", page.message_place.message_key(page.message_id))
        if self.may(request, "view_result") and page.record:
            urls["result"] = self.address("result_change", event.task_id)
        if self.may(request, "view_worker") and event.worker:
            urls["worker"] = self.address("worker_change", row_key(place.alias, event.worker))
        if self.may(request, "view_workflow") and page.workflow_id:
            urls["workflow"] = self.address("workflow_change", row_key(place.alias, page.workflow_id))
        return urls


def _note_about(older: OlderRuns) -> str:
    """Return a sentence about the part of a page that is not in the log: where it comes from, or why it is missing."""
    if older.log_begins_ms is None:
        begin = _("The event log is empty.")
    else:
        begin = _("The event log begins at %(time)s.") % {"time": as_time(as_datetime(older.log_begins_ms))}
    texts = {
        None: _("Older runs are from the lake, which has neither tags nor arguments."),
        LakeProblem.NO_LAKE: _("There is no lake with older runs."),
        LakeProblem.NOT_INSTALLED: _("The lake may have older runs; to read it, this site needs rsmq-django[spark]."),
        LakeProblem.UNREADABLE: _("The lake with older runs cannot be read; the log of this site has the reason."),
    }
    return f"{begin} {texts[older.problem]}"


def outcome_of(run: Run) -> SafeString:
    """Return the outcome in words and in a colour."""
    return format_html('<span class="rsmq-state rsmq-state-{}">{}</span>', run.outcome, run.get_outcome_display())


def _is_position(text: str) -> bool:
    parts = text.split("-")
    is_id = len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts)
    return is_id and any(int(part) for part in parts)  # Redis refuses to look before 0-0
