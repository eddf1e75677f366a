"""The pages of messages: the list of what lies in the queues, and everything about one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.browse import pick
from ..core.errors import RsmqError
from ..core.limits import MAX_BODY_BYTES
from ..live.envelopes import task_name
from ..live.messages import DEAD, PREVIEW_BYTES
from ..live.places import Place, message_place_of
from ..live.servers import all_places
from ..live.times import as_datetime
from ..models import Message
from ..tasks.cancellation import cancel
from ..tasks.compat import TaskResultDoesNotExist
from . import bulk_pages
from .bodies import preview, shown
from .formats import as_duration, as_size, one_line, relative, visible
from .forms import ParametersForm
from .message_page import MessagePage
from .operations import OPERATIONS, Operation, Tally, as_seen, carry_out
from .site import LiveAdmin, explanation_of

#: A body that is longer is not sent to a browser. Our own clients send no longer one.
MAX_DOWNLOAD_BYTES = MAX_BODY_BYTES
#: What other programs may have written into a failure record.
FAILURE_TEXTS = ("reason", "queue", "error", "worker")
#: A filter with more choices is longer than the list; the page of queues links to the messages of each.
MAX_QUEUE_CHOICES = 50

Action = Callable[["MessageAdmin", HttpRequest, Any], HttpResponse | None]


class QueueFilter(admin.SimpleListFilter):
    """One queue. What is behind the others is reached from the page of queues."""

    title = gettext_lazy("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the queues to choose from."""
        places = all_places([])
        if len(places) > MAX_QUEUE_CHOICES:
            places = [place for place in places if place.is_configured or place.key == self.value()]
        return [(place.key, one_line(place.key, 40)) for place in places[:MAX_QUEUE_CHOICES]]

    def has_output(self) -> bool:
        """Return True: what is chosen can be taken back, whatever is offered."""
        return bool(self.lookup_choices) or self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the messages of the queue."""
        return queryset.filter(queue=self.value()) if self.value() else queryset


def action_for(operation: Operation) -> Action:
    """Return the admin action that does an operation to what is selected."""

    def act(model_admin: MessageAdmin, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return model_admin.operate_on_selected(request, operation, queryset)

    act.__name__ = operation.name
    act.short_description = operation.label  # type: ignore[attr-defined]
    act.allowed_permissions = (operation.codename,)  # type: ignore[attr-defined]
    return act


@admin.register(Message)
class MessageAdmin(LiveAdmin):
    """See the module."""

    list_display = (
        "short_id",
        "state",
        "what",
        "visible_from",
        "received",
        "size",
        # The last one, so that the places of the others, by which a list is ordered, are the same without it.
        "queue_name",
    )
    list_display_links = ("short_id",)
    list_filter = (QueueFilter, "state")
    #: How many there are without the filter would have to be counted in every queue.
    show_full_result_count = False
    search_fields = ("message_id",)
    search_help_text = gettext_lazy("Words in ids, tasks, bodies and errors.")
    sortable_by = ("visible_from",)
    actions = tuple(action_for(operation) for operation in OPERATIONS.values())

    # -- The list -----------------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("message"))
    def short_id(self, message: Message) -> str:
        """Return the beginning of the id, which is when it was sent, and its end: the row links from it."""
        shown_id = one_line(message.message_id, 40)
        if len(shown_id) > 18:
            shown_id = f"{shown_id[:10]}…{shown_id[-6:]}"
        return format_html('<span class="rsmq-mono" title="{}">{}</span>', visible(message.message_id), shown_id)

    @admin.display(description=gettext_lazy("queue"))
    def queue_name(self, message: Message) -> str:
        """Return the queue."""
        return one_line(message.queue, 40)

    @admin.display(description=gettext_lazy("what"))
    def what(self, message: Message) -> str:
        """Return the task, and the error of a dead letter; see get_list_display() for bodies."""
        parts = [one_line(part, 60) for part in (message.task, message.error) if part]
        return " · ".join(parts) or "-"

    @admin.display(description=gettext_lazy("what"))
    def what_and_body(self, message: Message) -> str:
        """Return the same with the beginning of the body, for those who may see it."""
        body = preview(message.stored.body, message.task, is_cut=_is_cut(message))
        return format_html('{}<span class="rsmq-preview">{}</span>', self.what(message), body)

    @admin.display(description=gettext_lazy("visible"), ordering="visible_at")
    def visible_from(self, message: Message) -> str:
        """Return when it can be received."""
        return relative(message.stored.visible_at_ms, message.now_ms)

    @admin.display(description=gettext_lazy("received"))
    def received(self, message: Message) -> int:
        """Return how often it was received."""
        return message.receive_count

    @admin.display(description=gettext_lazy("size"))
    def size(self, message: Message) -> str:
        """Return the size of the body."""
        return as_size(message.size_bytes)

    def action_checkbox(self, message: Any) -> SafeString:
        """Return the stock checkbox, and what the operator saw: actions compare with it."""
        checkbox = super().action_checkbox(message)
        return format_html(
            '{}<input type="hidden" name="seen" value="{} {}">', checkbox, message.receive_count, message.key
        )

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns: bodies are for those who may see them."""
        bodies = {"what": "what_and_body"} if self.may(request, "view_body") else {}
        hidden = {"queue_name"} if request.GET.get("queue") else set()
        return [bodies.get(str(column), column) for column in self.list_display if column not in hidden]

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Search bodies and errors only for those who may see them."""
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
        )

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what the page of a message shows."""
        message, page = context["original"], MessagePage(context["original"])
        failure = page.failure
        context |= {
            "title": _("Message"),
            "subtitle": None,
            "page": page,
            "may": {"view_body": self.may(request, "view_body"), "view_result": self.may(request, "view_result")},
            "operations": self._operations_for(request, message),
            "may_cancel": self.may(request, "delete_message") and _can_be_cancelled(message, page),
            "queue_names": [place.key for place in all_places([])[:MAX_QUEUE_CHOICES]],
            "message_id": visible(page.stored.id),
            "task": visible(message.task),
            "task_id": visible(page.task_id),
            "size": as_size(page.stored.size_bytes),
            "visible_in": as_duration(page.visible_in_s),
            "ready_since": as_duration(-page.visible_in_s),
            "failure": {name: visible(getattr(failure, name)) for name in FAILURE_TEXTS} if failure else {},
            "died_at": as_datetime(failure.died_ms) if failure else None,
        }
        return super().render_change_form(request, context, *args, **kwargs)

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
        form = ParametersForm(operation, request.POST)
        if (operation.is_dangerous and "post" not in request.POST) or not form.is_valid():
            return self._ask(request, operation, Message.objects.filter(pk=key), form if form.errors else None)
        tally = self.operate(request, operation, seen_counts(request, [key]), form.cleaned_data)
        self.tell(request, f"{operation.title}: {tally.sentence()}", is_good=tally.is_clean)
        if Message.objects.filter(pk=key).exists():
            return HttpResponseRedirect(reverse("admin:rsmq_message_change", args=[quote(key)]))
        return HttpResponseRedirect(self._list_of(key))

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Cancel the task of a message, also one that runs: its worker is told."""
        self.demand(request, "delete_message")
        if not self.has_view_permission(request):
            raise PermissionDenied
        message = Message.objects.filter(pk=unquote(object_id)).first()
        page = MessagePage(message) if message is not None else None
        if message is None or page is None or not _can_be_cancelled(message, page):
            raise Http404
        try:
            is_cancelled = cancel(page.task_id)
        except TaskResultDoesNotExist:
            is_cancelled = False
        if is_cancelled:
            user: Any = request.user
            LogEntry.objects.log_actions(user.pk, [message], CHANGE, change_message="Task cancelled")
        text = _("The task was cancelled.") if is_cancelled else _("It was too late: the task has finished.")
        self.tell(request, text, is_good=is_cancelled)
        return HttpResponseRedirect(self._list_of(message.key))

    def _list_of(self, key: str) -> str:
        return f"{reverse('admin:rsmq_message_changelist')}?{urlencode({'queue': key.rpartition('/')[0]})}"

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Ask as Django does, but delete only what has not moved on."""
        if request.method != "POST":
            return super().delete_view(request, object_id, extra_context)
        operation, key = OPERATIONS["delete_selected"], unquote(object_id)
        tally = self.operate(request, operation, seen_counts(request, [key]), {})
        self.tell(request, f"{operation.title}: {tally.sentence()}", is_good=tally.is_clean)
        return HttpResponseRedirect(self._list_of(key))

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what is deleted: just the messages, because nothing refers to them."""
        rows = list(objs)
        missing = set() if self.has_delete_permission(request) else {str(self.opts.verbose_name)}
        return [str(row) for row in rows], {str(self.opts.verbose_name_plural): len(rows)}, missing, []

    def body_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return the whole body as a file, with secrets hidden."""
        self.demand(request, "view_body")
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = message_place_of(unquote(object_id))
        if found is None:
            raise Http404
        place, message_id = found
        call = pick(place.client.namespace, place.name, [message_id], body_bytes=MAX_DOWNLOAD_BYTES)
        messages = place.client.run(call).messages
        if not messages or messages[0].size_bytes is None:
            raise Http404
        if messages[0].size_bytes > MAX_DOWNLOAD_BYTES:
            text = _("%(size)s are too much for a browser; use rsmqctl message show --raw.")
            return HttpResponse(text % {"size": as_size(messages[0].size_bytes)}, "text/plain", status=413)
        return as_file(messages[0].body)

    # -- Actions ------------------------------------------------------------------------------------------------------

    def has_delete_message_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may delete messages."""
        return self.may(request, "delete_message")

    def has_move_message_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may run messages now, delay and move them."""
        return self.may(request, "move_message")

    def has_redrive_message_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may redrive dead letters."""
        return self.may(request, "redrive_message")

    def operate_on_selected(self, request: HttpRequest, operation: Operation, queryset: Any) -> HttpResponse | None:
        """Do an operation to the selected rows, after asking for what it needs."""
        self.demand(request, operation.codename)
        if request.POST.get("select_across") == "1":
            return self._operate_on_all(request, operation, queryset)
        keys = request.POST.getlist(ACTION_CHECKBOX_NAME)
        is_asked = "post" in request.POST
        form = ParametersForm(operation, request.POST if is_asked else None)
        needs_page = bool(operation.asks) or operation.is_dangerous
        if needs_page and not (is_asked and form.is_valid()):
            return self._ask(request, operation, queryset, form)
        params = form.cleaned_data if needs_page else {}
        tally = self.operate(request, operation, seen_counts(request, keys), params)
        self.tell(request, tally.sentence(), is_good=tally.is_clean)
        return None

    def _operate_on_all(self, request: HttpRequest, operation: Operation, queryset: Any) -> HttpResponse | None:
        job = bulk_pages.job_of_selection(request, operation, queryset.selection)
        if job is None:
            text = _("Choose one queue first: all messages of a list are those of one queue.")
            self.tell(request, text, is_good=False)
            return None
        return bulk_pages.ask(self, request, job)

    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """Do the next part of an operation on many messages."""
        return bulk_pages.carry_on(self, request)

    def _ask(self, request: HttpRequest, operation: Operation, queryset: Any, form: forms.Form | None) -> HttpResponse:
        rows = list(queryset)
        keys = {row.key for row in rows}
        context = {
            "title": _("Are you sure?") if operation.is_dangerous else operation.title,
            "operation": operation,
            "form": form if form is not None else ParametersForm(operation),
            "rows": rows,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
            # Of a page that takes only POST there is one without its last part.
            "back": request.get_full_path().removesuffix("operate/"),
            "seen": [value for value in request.POST.getlist("seen") if value.partition(" ")[2] in keys],
            "question": ngettext("This is about %(count)d message.", "This is about %(count)d messages.", len(rows))
            % {"count": len(rows)},
        }
        return self.own_page(request, "message/ask.html", context)

    def operate(
        self, request: HttpRequest, operation: Operation, seen: dict[str, int | None], params: dict[str, Any]
    ) -> Tally:
        """Do an operation to messages, as they were seen, and write down for each who did it."""
        self.demand(request, operation.codename)
        tally, by_place = Tally(), by_queue(seen)
        tally.stay("gone", len(seen) - sum(map(len, by_place.values())))
        for place, receive_counts in by_place.items():
            before = len(tally.done_ids)
            try:
                messages = as_seen(place, receive_counts, tally)
                carry_out(operation, place, messages, params, tally)
            except RsmqError as error:
                self.tell(request, explanation_of(error), is_good=False)
            self._log(request, operation, place, tally.done_ids[before:], params)
        return tally

    def _log(
        self, request: HttpRequest, operation: Operation, place: Place, ids: list[bytes], params: dict[str, Any]
    ) -> None:
        flag = DELETION if operation.name == "delete_selected" else CHANGE
        rows = [Message(key=place.message_key(message_id)) for message_id in ids]
        user: Any = request.user
        LogEntry.objects.log_actions(user.pk, rows, flag, change_message=operation.logged % params)


def seen_counts(request: HttpRequest, keys: Sequence[str]) -> dict[str, int | None]:
    """Return the receive counts that the page has shown, by message key; None for what was not said."""
    said: dict[str, int] = {}
    for value in request.POST.getlist("seen"):
        count, _space, key = value.partition(" ")
        if count.isascii() and count.isdigit():
            said[key] = int(count)
    return {key: said.get(key) for key in keys}


def by_queue(seen: dict[str, int | None]) -> dict[Place, dict[bytes, int | None]]:
    """Group what was seen by queue: message id -> receive count. Keys that stand for no message are left out."""
    grouped: dict[Place, dict[bytes, int | None]] = {}
    for key, receive_count in seen.items():
        found = message_place_of(key)
        if found is not None:
            grouped.setdefault(found[0], {})[found[1]] = receive_count
    return grouped


def as_file(body: bytes) -> HttpResponse:
    """Return a body as a file that no browser will run."""
    whole = shown(body, longest=None, task=task_name(body[:PREVIEW_BYTES]))
    content: bytes | str = body if whole.kind == "binary" else whole.text
    suffix = {"json": "json", "text": "txt", "binary": "bin"}[whole.kind]
    response = HttpResponse(content, "application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="body.{suffix}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _can_be_cancelled(message: Message, page: MessagePage) -> bool:
    """Return whether it is a task that has not ended. Without a record all queues would have to be searched."""
    return message.state != DEAD and bool(page.task_id and page.record)


def _is_cut(message: Message) -> bool:
    return len(message.stored.body) < (message.size_bytes or 0)
