"""The pages of messages: the list of a queue's messages, and the details of one message.

Columns and filter are in `message_list.py`, operations on messages in `message_actions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..live.places import message_place_of
from ..live.row_keys import row_key
from ..live.servers import all_places
from ..live.times import as_datetime
from ..models import Message
from ..tasks.cancellation import cancel_on
from ..tasks.catalogue import known_tasks
from . import bulk_pages, message_actions, message_list
from .body_download import body_of
from .components.operations import Operation, action_for, permission_for
from .formats import as_duration, as_size, reason_of, visible
from .forms import ParametersForm
from .message_filters import (
    MAX_QUEUE_CHOICES,
    AgeFilter,
    ErrorFilter,
    MessageChangeList,
    QueueFilter,
    TagFilter,
    TaskFilter,
)  # fmt: skip
from .message_page import MessagePage
from .naming import names_of
from .operations import OPERATIONS
from .recorded_calls import RecordedCall, call_of_message
from .run_again import RunsAgain
from .site import LiveAdmin

#: What other programs may have written into a failure record.
FAILURE_TEXTS = ("queue", "error", "worker")


@admin.register(Message)
class MessageAdmin(RunsAgain, LiveAdmin):
    """See the module."""

    list_display: Any = (
        message_list.short_id,
        "state",
        message_list.what,
        message_list.visible_from,
        message_list.received,
        message_list.size,
        # The last one, so that the places of the others, by which a list is ordered, are the same without it.
        message_list.queue_name,
    )
    list_display_links: Any = (message_list.short_id,)
    list_filter: ClassVar[Any] = (QueueFilter, "state", TaskFilter, ErrorFilter, TagFilter, AgeFilter)
    #: How many there are without the filter would have to be counted in every queue.
    show_full_result_count = False
    search_fields = ("message_id",)
    search_help_text = gettext_lazy("Search id, task, body or error. Numbers match as a whole: 7 does not find 47.")
    sortable_by: ClassVar[Any] = (message_list.visible_from,)
    actions = tuple(action_for(each, message_actions.operate_on_selected) for each in OPERATIONS.values())
    has_delete_message_permission = permission_for("delete_message")
    has_move_message_permission = permission_for("move_message")
    has_redrive_message_permission = permission_for("redrive_message")

    # -- The list -----------------------------------------------------------------------------------------------------

    def action_checkbox(self, message: Any) -> SafeString:
        """Return the stock checkbox, and what the operator saw: actions compare with it."""
        checkbox = super().action_checkbox(message)
        return format_html(
            '{}<input type="hidden" name="seen" value="{} {}">', checkbox, message.receive_count, message.key
        )

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns: bodies only for users who may see them."""
        columns = list(super().get_list_display(request))
        if self.may(request, "view_body"):
            columns[columns.index(message_list.what)] = message_list.what_and_body
        if request.GET.get("queue"):
            columns.remove(message_list.queue_name)
        return columns

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Return the filters: tags are in bodies."""
        return [each for each in self.list_filter if each is not TagFilter or self.may(request, "view_body")]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that goes on where looking has stopped."""
        return MessageChangeList

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Search bodies and errors only for users who may see them."""
        if not search_term.strip():
            return queryset, False
        return queryset.search(search_term, in_bodies=self.may(request, "view_body")), False

    # -- One message --------------------------------------------------------------------------------------------------

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the pages beside Django's."""
        return (
            self.own_url("bulk/", self.bulk_view, "bulk", post_only=True),
            self.own_url("<path:object_id>/operate/", self.operate_view, "operate", post_only=True),
            self.own_url("<path:object_id>/cancel/", self.cancel_view, "cancel", post_only=True),
            self.own_url("<path:object_id>/body/", self.body_view, "body"),
            self.run_url(),
        )

    def recorded_call(self, key: str) -> RecordedCall | None:
        """Return the call in a message."""
        found = message_place_of(key)
        return call_of_message(*found) if found is not None else None

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what the page of a message shows."""
        message, page = context["original"], self._page(request, context["original"])
        failure = page.failure
        context |= {
            "title": _("Message"),
            "subtitle": None,
            "page": page,
            "may": {"view_body": self.may(request, "view_body"), "view_result": self.may(request, "view_result")},
            "operations": self._operations_for(request, message),
            "may_cancel": self.may(request, "delete_message") and page.can_be_cancelled,
            "queue_names": [place.key for place in all_places([])[:MAX_QUEUE_CHOICES]],
            "message_id": visible(page.stored.id),
            "task": visible(message.task),
            "task_url": self._task_url(request, message.task),
            "holder": visible(page.holder or ""),
            "holder_url": self._worker_url(request, page),
            "task_id": visible(page.task_id),
            "size": as_size(page.stored.size_bytes),
            "visible_in": as_duration(page.visible_in_s),
            "ready_since": as_duration(-page.visible_in_s),
            "failure": {name: visible(getattr(failure, name)) for name in FAILURE_TEXTS} if failure else {},
            "reason": reason_of(failure.reason) if failure else "",
            "died_at": as_datetime(failure.died_ms) if failure else None,
            **self.run_context(request, message.key, message.task if message.task in known_tasks() else ""),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def _page(self, request: HttpRequest, message: Message) -> MessagePage:
        return MessagePage(message, with_body=self.may(request, "view_body"))

    def _task_url(self, request: HttpRequest, task: str) -> str:
        """Return the address of a task that the code declares: of others there may be no page."""
        if task not in known_tasks() or not self.may(request, "view_registeredtask"):
            return ""
        return self.address("registeredtask_change", task)

    def _worker_url(self, request: HttpRequest, page: MessagePage) -> str:
        if not page.holder or not self.may(request, "view_worker"):
            return ""
        return self.address("worker_change", row_key(page.place.alias, page.holder))

    def _operations_for(self, request: HttpRequest, message: Message) -> list[tuple[Operation, ParametersForm]]:
        """Return what the user may do to a message, each with the form for what it needs."""
        return [
            (operation, ParametersForm(operation, auto_id=f"{operation.name}_%s"))
            for operation in OPERATIONS.values()
            if self.may(request, operation.codename) and message.state in operation.states
        ]

    def operate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Do one operation to one message, unless it has moved on."""
        operation, key = OPERATIONS.get(request.POST.get("action", "")), unquote(object_id)
        if operation is None:
            raise Http404
        self.demand(request, operation.codename)
        self.demand(request, "view_message")
        form = ParametersForm(operation, request.POST)
        if (operation.is_dangerous and "post" not in request.POST) or not form.is_valid():
            return message_actions.ask(
                self, request, operation, Message.objects.filter(pk=key), form if form.errors else None
            )
        message_actions.operate(self, request, operation, Message.objects.filter(pk=key), [key], form.cleaned_data)
        if Message.objects.filter(pk=key).exists():
            return HttpResponseRedirect(self.address("message_change", key))
        return HttpResponseRedirect(self._list_of(key))

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Cancel the task of a message. The worker of a running task is notified."""
        message = self.row_for(request, object_id, "delete_message")
        page = self._page(request, message)
        if not page.can_be_cancelled:
            raise Http404
        # Other connections may have a task of the same id.
        is_cancelled = bool(cancel_on(page.place.client, page.task_id))
        if is_cancelled:
            user: Any = request.user
            LogEntry.objects.log_actions(user.pk, [message], CHANGE, change_message=_("Task cancelled"))
        text = _("%(task)s was cancelled.") if is_cancelled else _("Too late: %(task)s has already finished.")
        self.tell(request, text % {"task": names_of([message])}, is_good=is_cancelled)
        return HttpResponseRedirect(self._list_of(message.key))

    def _list_of(self, key: str) -> str:
        return self.address("message_changelist", queue=key.rpartition("/")[0])

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Ask, then delete a message that has not changed since the question."""
        self.demand(request, "delete_message")
        self.demand(request, "view_message")
        operation, key = OPERATIONS["delete_selected"], unquote(object_id)
        rows = Message.objects.filter(pk=key)
        if request.method == "POST":
            message_actions.operate(self, request, operation, rows, [key], {})
            return HttpResponseRedirect(self._list_of(key))
        if not rows.exists():
            return super().delete_view(request, object_id, extra_context)
        return message_actions.ask(self, request, operation, rows, None)

    def body_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Return the whole body as a file, with secrets hidden."""
        self.demand(request, "view_body")
        if not self.has_view_permission(request):
            raise PermissionDenied
        return body_of(unquote(object_id))

    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """Do the next part of an operation on many messages."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return bulk_pages.carry_on(self, request)
