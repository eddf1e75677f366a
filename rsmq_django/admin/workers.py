"""The pages of worker processes: what each is and runs, and the orders that it can be given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.processes import Order, give_order
from ..core.stacks import ask_for_stacks
from ..live.places import Place
from ..models import Worker
from ..queues import get_client
from .formats import as_duration, as_size, one_line, short_list, visible
from .logs import log
from .running import running_rows
from .site import LiveAdmin

LABELS: dict[Order, Any] = {
    "quiet": gettext_lazy("Pause"),
    "resume": gettext_lazy("Resume"),
    "restart": gettext_lazy("Restart gracefully"),
    "stop": gettext_lazy("Stop gracefully"),
}
#: What the history of the admin says.
LOGGED: dict[Order, Any] = {
    "quiet": gettext_lazy("Pause requested"),
    "resume": gettext_lazy("Resume requested"),
    "restart": gettext_lazy("Restart requested"),
    "stop": gettext_lazy("Stop requested"),
}


def action_for(order: Order) -> Callable[..., None]:
    """Return the admin action that sends a command to the selected workers."""

    def act(model_admin: WorkerAdmin, request: HttpRequest, queryset: Any) -> None:
        model_admin.order(request, order, queryset)

    act.__name__ = order
    act.short_description = LABELS[order]  # type: ignore[attr-defined]
    act.allowed_permissions = ("control_worker",)  # type: ignore[attr-defined]
    return act


@admin.register(Worker)
class WorkerAdmin(LiveAdmin):
    """See the module."""

    list_display = (
        "shown_id",
        "shown_state",
        "running",
        "longest_run",
        "memory",
        "beat_age",
        "age",
        "shown_queues",
        "version",
        "connection",
    )
    list_display_links = ("shown_id",)
    list_filter = ("state",)
    search_fields = ("worker_id", "queues")
    actions = tuple(action_for(order) for order in LABELS)
    change_list_template = "admin/rsmq/worker/change_list.html"

    # -- The list -----------------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("worker"), ordering="worker_id")
    def shown_id(self, worker: Worker) -> str:
        """Return the id, which begins with host and process id of the supervisor."""
        return one_line(worker.worker_id, 80)

    @admin.display(description=gettext_lazy("state"), ordering="state")
    def shown_state(self, worker: Worker) -> str:
        """Return the state, in a colour."""
        return format_html('<span class="rsmq-state rsmq-state-{}">{}</span>', worker.state, worker.get_state_display())

    @admin.display(description=gettext_lazy("longest running"), ordering="longest_run_s")
    def longest_run(self, worker: Worker) -> str:
        """Return for how long the oldest of its tasks has been running."""
        return as_duration(worker.longest_run_s) if worker.running else "-"

    @admin.display(description=gettext_lazy("memory"), ordering="memory_bytes")
    def memory(self, worker: Worker) -> str:
        """Return how much memory it has."""
        return as_size(worker.memory_bytes) if worker.memory_bytes is not None else "-"

    @admin.display(description=gettext_lazy("last heartbeat"), ordering="last_beat_at")
    def beat_age(self, worker: Worker) -> str:
        """Return how long ago its supervisor said that it lives."""
        age_s = max(0.0, worker.beat.now_ms - worker.beat.beat_ms) / 1000
        text = _("%(duration)s ago") % {"duration": as_duration(age_s, units=1)}
        return text if worker.is_alive else format_html('<span class="rsmq-bad">{}</span>', text)

    @admin.display(description=gettext_lazy("age"), ordering="started_at")
    def age(self, worker: Worker) -> str:
        """Return for how long it has been there."""
        return as_duration(worker.record.age_ms / 1000) if worker.record else "-"

    @admin.display(description=gettext_lazy("queues"), ordering="queues")
    def shown_queues(self, worker: Worker) -> str:
        """Return the first queues that it takes messages from; its page has all."""
        return short_list(worker.record.queues) if worker.record else "-"

    # -- One process --------------------------------------------------------------------------------------------------

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the page beside Django's."""
        return [
            self.own_url("<path:object_id>/order/", self.order_view, "order", post_only=True),
            self.own_url("<path:object_id>/stacks/", self.stacks_view, "stacks", post_only=True),
        ]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what the process runs, and what it can be ordered to do."""
        worker: Worker = context["original"]
        running = running_rows(worker, sees_bodies=self.may(request, "view_body"))
        context |= {
            "title": _("Worker process"),
            "subtitle": None,
            "beat_age": self.beat_age(worker),
            "age": self.age(worker),
            "memory": self.memory(worker),
            "running": running,
            "has_stacks": any(row.stack for row in running),
            "may_ask_for_stacks": self.may(request, "view_body") and bool(worker.record and worker.record.running),
            "stacks_wanted": "stacks" in request.GET,
            "queue_links": self._links(worker, "queues", "queue_change"),
            "reliable_links": self._links(worker, "reliable", "reliablequeue_change"),
            "orders": self._orders(worker) if self.may(request, "control_worker") and worker.record else [],
        }
        return super().render_change_form(request, context, *args, **kwargs)

    @staticmethod
    def _orders(worker: Worker) -> list[tuple[Order, Any]]:
        fitting: dict[str, tuple[Order, ...]] = {
            "working": ("quiet", "restart", "stop"),
            "quiet": ("resume", "restart", "stop"),
            "stopping": ("stop",),
        }
        return [(order, LABELS[order]) for order in fitting.get(worker.state, ())]

    def _links(self, worker: Worker, kind: str, page: str) -> list[tuple[str, str]]:
        names: tuple[str, ...] = getattr(worker.record, kind) if worker.record else ()
        keys = {visible(name): Place(worker.connection, name).key for name in names}
        return [(name, self.address(page, key)) for name, key in keys.items()]

    def order_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give an order from the page of a process."""
        self.demand(request, "control_worker")
        if not self.has_view_permission(request):
            raise PermissionDenied
        worker = Worker.objects.filter(pk=unquote(object_id)).first()
        name = request.POST.get("order", "")
        if worker is None or name not in LABELS:
            raise Http404
        order: Any = name
        self.order(request, order, [worker])
        return HttpResponseRedirect(self.address("worker_change", worker.pk))

    def stacks_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask a process where its running tasks are in their code; its page shows the answer when it has come."""
        self.demand(request, "view_body")
        if not self.has_view_permission(request):
            raise PermissionDenied
        worker = Worker.objects.filter(pk=unquote(object_id)).first()
        if worker is None:
            raise Http404
        client = get_client(worker.connection)
        if not client.run(ask_for_stacks(client.namespace, worker.beat.worker_id)):
            self.tell(request, _("The worker no longer exists."), is_good=False)
        return HttpResponseRedirect(f"{self.address('worker_change', worker.pk)}?stacks=1#rsmq-running")

    def order(self, request: HttpRequest, order: Order, workers: Iterable[Worker]) -> None:
        """Give an order to processes and say how many were there to hear it."""
        self.demand(request, "control_worker")
        rows = list(workers)
        given = [worker for worker in rows if _give(worker, order)]
        for worker in given:
            log(request, worker, str(LOGGED[order]))
        text = ngettext("%(order)s: %(count)d process.", "%(order)s: %(count)d processes.", len(given))
        text %= {"order": LABELS[order], "count": len(given)}
        if given:
            text = f"{text} {short_list([worker.worker_id for worker in given])}."
        missing = len(rows) - len(given)
        if missing:
            text += " " + ngettext("%d no longer exists.", "%d no longer exist.", missing) % missing
        when = _("Workers receive commands within five seconds.") if given else ""
        self.tell(request, f"{text} {when}".strip(), is_good=bool(given))

    def has_control_worker_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may give orders; Django asks for it under this name."""
        return self.may(request, "control_worker")


def _give(worker: Worker, order: Order) -> bool:
    client = get_client(worker.connection)
    return worker.record is not None and client.run(give_order(client.namespace, worker.beat.worker_id, order))
