"""The pages of workflows: how far each is, what its members returned, why some failed, and cancelling it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.queue.browse import read_failure
from ..core.tasks.workflow_records import MemberRecord, live_tasks, read_failed, read_members
from ..core.tasks.workflows import stop
from ..models import Workflow
from ..queues import get_client
from ..tasks.cancellation import cancel_only_on
from ..tasks.compat import TaskResultDoesNotExist
from .bodies import PREVIEW_BYTES, preview
from .formats import as_number, one_line, visible
from .logs import log
from .message_page import as_safe_text
from .site import LiveAdmin
from .workflow_graph import Node, graph_of
from .workflow_picture import picture

#: Members on one page.
SHOWN_MEMBERS = 50
#: Of a workflow of many members one request cancels as many as it can in this time.
CANCEL_S = 2.0


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member as it is shown."""

    number: int
    #: Its current or last task, or the task that failed.
    task_id: str
    state: str
    value: str
    #: Names only: of the task, and of the exception or the reason.
    task: str
    error: str
    #: The exception's own text, for users who may see it.
    text: str


@admin.register(Workflow)
class WorkflowAdmin(LiveAdmin):
    """See the module."""

    list_display = (
        "shown_name",
        "kind",
        "shown_state",
        "progress",
        "failed",
        "waiting",
        "created_at",
        "finished_at",
    )
    list_display_links = ("shown_name",)
    list_filter = ("state", "kind")
    search_fields = ("workflow_id", "name")
    search_help_text = gettext_lazy("Search id or name. The list shows the 1,000 newest workflows of each server.")

    @admin.display(description=gettext_lazy("workflow"), ordering="name")
    def shown_name(self, workflow: Workflow) -> str:
        """Return its name, or its id when it has none."""
        return one_line(workflow.name or workflow.workflow_id, 60)

    @admin.display(description=gettext_lazy("state"), ordering="state")
    def shown_state(self, workflow: Workflow) -> str:
        """Return the state, in a colour."""
        return format_html(
            '<span class="rsmq-state rsmq-state-{}">{}</span>', workflow.state, workflow.get_state_display()
        )

    @admin.display(description=gettext_lazy("done"), ordering="done")
    def progress(self, workflow: Workflow) -> str:
        """Return how many of its calls have succeeded."""
        share = round(100 * workflow.done / workflow.total) if workflow.total else 0
        counts = map(as_number, (workflow.done, workflow.total))
        return format_html('<progress max="100" value="{}">{} %</progress> {}/{}', share, share, *counts)

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the page beside Django's."""
        return [self.own_url("<path:object_id>/cancel/", self.cancel_view, "cancel", post_only=True)]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add members and failures."""
        workflow: Workflow = context["original"]
        first = _first_member(request, workflow)
        may_view_body = self.may(request, "view_body")
        last = min(first + SHOWN_MEMBERS, workflow.members) - 1
        graph = graph_of(workflow, may_view_body=may_view_body)
        context |= {
            "graph": graph,
            "picture": picture(graph, self._link_for(request)) if graph else "",
            "title": _("Workflow %(name)s") % {"name": one_line(workflow.name or workflow.workflow_id, 60)},
            "subtitle": None,
            "progress": self.progress(workflow),
            "members": [_row(each, may_view_body) for each in _members(workflow, first, last)],
            "older": max(0, first - SHOWN_MEMBERS) if first else None,
            "newer": last + 1 if last + 1 < workflow.members else None,
            "failures": [_row(each, may_view_body) for each in _failed(workflow)],
            "callbacks": [
                (label, task_id)
                for label, task_id in (
                    (_("Success callback"), workflow.status.then_id),
                    (_("Failure callback"), workflow.status.on_failure_id),
                )
                if task_id
            ],
            "may_view_body": may_view_body,
            "may_view_result": self.may(request, "view_result"),
            "may_cancel": self.may(request, "cancel_workflow") and _can_be_cancelled(workflow),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def _link_for(self, request: HttpRequest) -> Callable[[Node], str]:
        """Return a function that returns the URL of a call's result, for users who may see it."""
        if not self.may(request, "view_result"):
            return lambda node: ""
        return lambda node: self.address("result_change", node.task_id) if node.task_id else ""

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Cancel the waiting and running tasks, after a confirmation."""
        workflow = self.row_for(request, object_id, "cancel_workflow")
        back = self.address("workflow_change", workflow.key)
        if not request.POST.get("post"):
            text = _(
                "This cancels the %(open)s members of %(name)s that have not ended, including running ones. "
                "No further step or callback will run."
            )
            context = {
                "title": _("Are you sure?"),
                "about": text % {"open": as_number(workflow.waiting), "name": workflow},
                "hidden": [("post", "yes")],
                "is_dangerous": True,
                "back": back,
                "trail": [(workflow, back)],
            }
            return self.own_page(request, "components/ask.html", context)
        client = get_client(workflow.connection)
        if not _can_be_cancelled(workflow) or not client.run(stop(client.namespace, workflow.status.id)):
            self.tell(request, _("The workflow has already ended."), is_good=False)
            return HttpResponseRedirect(back)
        cancelled, is_complete = list[str](), False
        try:
            is_complete = cancel_for(workflow, CANCEL_S, cancelled)
        finally:  # also when the server goes away in between
            log(request, workflow, _("Cancelled %(count)d tasks") % {"count": len(cancelled)})
            if is_complete:
                text = _("Workflow %(name)s was cancelled with %(count)d tasks. No further step or callback will run.")
            else:
                text = _("Workflow %(name)s: %(count)d tasks were cancelled, others are left. Cancel again.")
            name = one_line(workflow.name or workflow.workflow_id, 60)
            self.tell(request, text % {"name": name, "count": len(cancelled)}, is_good=is_complete)
        return HttpResponseRedirect(back)


def _can_be_cancelled(workflow: Workflow) -> bool:
    """Return whether there is something to cancel, perhaps left over from a request that took too long."""
    return workflow.state == "running" or (workflow.state == "cancelled" and workflow.waiting > 0)


def cancel_for(workflow: Workflow, seconds: float, cancelled: list[str]) -> bool:
    """Cancel tasks of a stopped workflow for up to N seconds, and return whether none is left.

    The ids of cancelled tasks are appended to a list, so that they are known when the server goes away.
    """
    client, workflow_id = get_client(workflow.connection), workflow.status.id
    cursor, until_s = b"0", time.monotonic() + seconds
    while True:
        cursor, task_ids = client.run(live_tasks(client.namespace, workflow_id, cursor))
        for task_id in task_ids:
            if time.monotonic() > until_s:
                return False
            with suppress(TaskResultDoesNotExist):  # it has ended meanwhile, or was never sent
                if cancel_only_on(client, task_id):
                    cancelled.append(task_id)
        if cursor == b"0":
            return True


def _first_member(request: HttpRequest, workflow: Workflow) -> int:
    text = request.GET.get("from", "")
    first = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return max(0, min(first, workflow.members - 1))


def _members(workflow: Workflow, first: int, last: int) -> list[MemberRecord]:
    if last < first:
        return []
    client = get_client(workflow.connection)
    return client.run(
        read_members(client.namespace, workflow.status.id, first, last, value_bytes=PREVIEW_BYTES),
    )


def _failed(workflow: Workflow) -> list[MemberRecord]:
    """Return the first members that failed, by number."""
    if not workflow.failed:
        return []
    client = get_client(workflow.connection)
    _cursor, found = client.run(read_failed(client.namespace, workflow.status.id, b"0"))
    return sorted(found, key=lambda each: each.number)[:SHOWN_MEMBERS]


def _row(record: MemberRecord, may_view_body: bool) -> MemberRow:
    failure = read_failure(record.failure) if record.failure else None
    state = _("failed") if record.failure else _("pending") if record.task_id else _("done")
    is_shown = may_view_body and record.value
    return MemberRow(
        record.number,
        record.task_id or record.failed_task_id,
        state,
        preview(record.value, "", size_bytes=record.value_bytes) if is_shown else "",
        visible(failure.task) if failure else "",
        visible(failure.error or failure.reason) if failure else "",
        one_line(as_safe_text(failure.message), 300) if failure and may_view_body else "",
    )
