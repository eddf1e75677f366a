"""The pages of queues: the list of all queues with their charts, and the attributes of one queue.

Operations on a queue are in `queue_pages.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..conf.settings import get_settings
from ..core.errors import InvalidName, QueueNotFound, RsmqError
from ..core.queue.browse import count, depth_call
from ..core.stats.depth import Depth
from ..live.history import past_of
from ..live.places import QueueRef
from ..live.processes import serving
from ..live.servers import answers_that_came
from ..models import Queue
from . import queue_actions, queue_pages
from .charts import sparkline
from .components.operations import permission_for
from .formats import as_figure, as_number, as_rate, as_size, one_line, short_list, since, until, visible
from .forms import AttributesForm
from .past_charts import charts_of, span_links, span_of
from .queue_list import QueueChangeList
from .queue_trouble import BADGES, TroubleFilter
from .site import LiveAdmin
from .state_line import show_on_index, state_line

#: Those of messages in a queue.
STATES = ("ready", "delayed", "in_flight")


@admin.register(Queue)
class QueueAdmin(LiveAdmin):
    """See the module."""

    form = AttributesForm
    fieldsets = ((gettext_lazy("Attributes"), {"fields": ("visibility_timeout_s", "delay_s", "max_size_bytes")}),)
    list_display = (
        "shown_name",
        "ready_messages",
        "delayed",
        "in_flight",
        "dead_letters",
        "oldest",
        "failures",
        "processes",
        "handled_rate",
        "sent_rate",
        "curve",
        "next_due",
    )
    change_list_template = "admin/rsmq/queue/change_list.html"
    list_display_links = ("shown_name",)
    list_filter = (TroubleFilter, "is_configured", "is_paused")
    search_fields = ("name",)
    actions = queue_actions.ACTIONS
    has_pause_queue_permission = permission_for("pause_queue")
    has_purge_queue_permission = permission_for("purge_queue")

    def __init__(self, model: type[Queue], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        show_on_index(admin_site)

    # -- The list -----------------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("queue"), ordering="name")
    def shown_name(self, queue: Queue) -> str:
        """Return the name, which links to the page of the queue, and its problems."""
        troubles = [str(BADGES[each]) for each in queue.troubles if each in BADGES]
        loud = [*troubles, _("paused") if queue.is_paused else "", _("broken") if queue.is_broken else ""]
        quiet = [
            _("dead letters") if queue.holds_dead_letters else "",
            "" if queue.is_configured else _("not in the settings"),
        ]
        badges = [(word, kind) for kind, words in (("bad", loud), ("quiet", quiet)) for word in words if word]
        shown = format_html_join("", ' <span class="rsmq-badge rsmq-{1}">{0}</span>', badges)
        return format_html("{}{}", one_line(str(queue), 60), shown)

    @admin.display(description=gettext_lazy("ready"), ordering="ready")
    def ready_messages(self, queue: Queue) -> str:
        """Return how many can be received now, with a link to all messages."""
        return format_html('<a href="{}">{}</a>', self.messages_url(queue.place), as_number(queue.ready))

    @admin.display(description=gettext_lazy("delayed"))
    def delayed(self, queue: Queue) -> str:
        """Return how many messages wait for the end of their delay."""
        return self._hidden(queue, "delayed")

    @admin.display(description=gettext_lazy("in flight"))
    def in_flight(self, queue: Queue) -> str:
        """Return how many messages are in flight or wait for their next attempt."""
        return self._hidden(queue, "in_flight")

    @admin.display(description=gettext_lazy("dead"))
    def dead_letters(self, queue: Queue) -> str:
        """Return how many dead letters of the queue there are, with a link to them."""
        place = queue.place.dead_letters
        if not queue.dead or place is None:
            return "-" if queue.dead is None else "0"
        return format_html('<a class="rsmq-bad" href="{}">{}</a>', self.messages_url(place), as_number(queue.dead))

    @admin.display(description=gettext_lazy("oldest ready"), ordering="oldest_ready_s")
    def oldest(self, queue: Queue) -> str:
        """Return how long the first ready message has been waiting."""
        return since(queue.oldest_ready_s, queue.now_ms)

    @admin.display(description=gettext_lazy("next due"), ordering="next_due_s")
    def next_due(self, queue: Queue) -> str:
        """Return when the next lease or delay ends."""
        return until(queue.next_due_s, queue.now_ms)

    @admin.display(description=gettext_lazy("sent per min"))
    def sent_rate(self, queue: Queue) -> str:
        """Return how many messages a minute came in lately."""
        return as_rate(queue.past.sent_per_min if queue.past else None)

    @admin.display(description=gettext_lazy("processed per min"))
    def handled_rate(self, queue: Queue) -> str:
        """Return how many attempts a minute ended lately."""
        return as_rate(queue.past.handled_per_min if queue.past else None)

    @admin.display(description=gettext_lazy("failed"))
    def failures(self, queue: Queue) -> str:
        """Return which share of attempts failed in the time shown."""
        share = queue.past.failed_share if queue.past else None
        if not share:
            return "-" if share is None else "0 %"
        return format_html('<span class="rsmq-bad">{} %</span>', as_figure(100 * share, ".2g"))

    @admin.display(description=gettext_lazy("workers"))
    def processes(self, queue: Queue) -> str:
        """Return how many processes consume it; red when it has a backlog and no worker."""
        is_fine = queue.processes or queue.ready == 0 or queue.holds_dead_letters
        return str(queue.processes) if is_fine else format_html('<span class="rsmq-bad">{}</span>', 0)

    @admin.display(description=gettext_lazy("processed"))
    def curve(self, queue: Queue) -> str:
        """Return how many attempts ended in each part of the time shown."""
        handled = queue.past.handled if queue.past else []
        label = _("%(queue)s: %(count)d attempts ended") % {
            "queue": queue.place.with_shard(visible(queue.name)),
            "count": sum(handled),
        }
        return sparkline(handled, label) or "-"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that also reads the past."""
        return QueueChangeList

    # -- One queue ----------------------------------------------------------------------------------------------------

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may change attributes, and whether those of this queue can be changed."""
        return self.may(request, "change_queue") and not (obj is not None and _is_foreign(obj))

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the pages beside Django's."""
        return [
            self.own_url(f"<path:object_id>/{name}/", queue_pages.view_of(self, name), name)
            for name in queue_pages.VIEWS
        ] + [
            self.own_url("bulk/", self.bulk_view, "bulk", post_only=True),
            self.own_url("state/", self.state_page, "state"),
        ]

    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """Pause, resume or purge several queues."""
        return queue_actions.bulk_view(self, request)

    def state_page(self, request: HttpRequest) -> HttpResponse:
        """Show the line that is on the index, from which it is refreshed there; the user sees what they may see."""
        request.current_app = self.admin_site.name
        state = state_line(request)
        if state is None:
            raise PermissionDenied
        return TemplateResponse(request, "admin/rsmq/_state.html", {"state": state})

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what the page of a queue shows."""
        queue: Queue = context["original"]
        context |= {
            "title": _("Queue %(name)s") % {"name": queue.place.with_shard(visible(queue.name))},
            "subtitle": None,
            "messages_url": self.messages_url(queue.place),
            "now": _depth_of(queue.place),
            "dead": self._dead_letters(request, queue),
            "processes": len(serving(queue.place)),
            "workers_url": self._workers_url(queue) if self.may(request, "view_worker") else "",
            "is_left_alone": queue.ready > 0 and not queue.holds_dead_letters,
            "charts": charts_of(past_of([queue.place], span_of(request)), span_of(request)),
            "spans": span_links(request),
            "urls": {state: self.messages_url(queue.place, state__exact=state) for state in STATES},
            "oldest": since(queue.oldest_ready_s, queue.now_ms),
            "max_size": _("no limit") if queue.max_size_bytes < 0 else as_size(queue.max_size_bytes),
            "pages": [] if _is_foreign(queue) else queue_pages.links_for(self, request, queue),
            "may_pause": self.may(request, "pause_queue"),
            "is_foreign": _is_foreign(queue),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def _dead_letters(self, request: HttpRequest, queue: Queue) -> tuple[int, str, str, str] | None:
        """Return how many dead letters of a queue there are, the page about them, and their queue."""
        place = queue.place.dead_letters
        if place is None:
            return None
        (found,) = answers_that_came(place.client, [count(place.client.namespace, place.name)])
        if found is None:  # it is made when the first one dies
            return 0, "", "", ""
        may_look = self.may(request, queue_pages.VIEWS["failures"].codename)
        failures = self.address("queue_failures", place.key) if may_look else ""
        return found.messages, failures, self.address("queue_change", place.key), place.with_shard(visible(place.name))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Set only the changed attributes: another operator may have set the rest meanwhile."""
        changes = {name: form.cleaned_data[name] for name in form.changed_data}
        if changes:
            obj.place.queue().set_attributes(**changes)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return the objects to delete: queues, and the messages in them."""
        rows = list(objs)
        lines = [
            ngettext("%(queue)s: %(count)s message", "%(queue)s: %(count)s messages", row.messages)
            % {"queue": str(row), "count": as_number(row.messages)}
            for row in rows
        ]
        missing = set() if self.has_delete_permission(request) else {str(self.opts.verbose_name)}
        counts = {_("queues"): len(rows), _("messages"): sum(row.messages for row in rows)}
        return lines, counts, missing, []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete a queue with its messages."""
        self.delete_queryset(request, [obj])

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Delete queues with their messages. A queue that another user has deleted counts as deleted."""
        deleted = list[Queue]()
        log_deletions: Any = super().log_deletions
        try:
            for row in queryset:
                with suppress(QueueNotFound):
                    row.place.queue().delete_queue()
                log_deletions(request, [row])
                deleted.append(row)
        except RsmqError:
            if deleted:
                self.tell(request, f"{_('Deleted')}: {short_list([str(row) for row in deleted])}")
            raise

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Return no entries: Django asks for them before the deletion; `delete_queryset` writes them after it."""
        return []

    # -- Addresses ----------------------------------------------------------------------------------------------------

    def _hidden(self, queue: Queue, state: str) -> str:
        """Return how many messages are in a state that only looking tells, with a link to them; "~" is an estimate."""
        depth = queue.depth
        if depth is None or queue.is_broken:
            return "-"
        number = getattr(depth, state)
        if not number and not depth.is_estimated:
            return "0"
        url = self.messages_url(queue.place, state__exact=state)
        title = _("Estimated: too many to count") if depth.is_estimated else ""
        shown = ("~" if depth.is_estimated else "") + as_number(number)
        return format_html('<a href="{}" title="{}">{}</a>', url, title, shown)

    def messages_url(self, place: QueueRef, **filters: str) -> str:
        """Return the address of the list of the messages in a queue."""
        return self.address("message_changelist", queue=place.key, **filters)

    def _workers_url(self, queue: Queue) -> str:
        """Return the address of the list of processes whose queues have this name."""
        return self.address("worker_changelist", q=get_settings().base_name(queue.place.name))


def _depth_of(place: QueueRef) -> Depth | None:
    (found,) = answers_that_came(place.client, [depth_call(place.client.namespace, place.name)])
    return found


def _is_foreign(queue: Queue) -> bool:
    """Return whether only other programs give such names: we look at such a queue, and do nothing to it."""
    try:
        queue.place.queue()
    except InvalidName:
        return True
    return False
