"""The pages of worker processes: what each is and runs, and the orders that it can be given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.errors import RsmqError
from ..core.tasks.processes import Order, give_order
from ..core.tasks.stacks import ask_for_stacks
from ..live.places import QueueRef
from ..models import Worker
from ..queues import get_client
from .components.operations import Operation, action_for, by_name, permission_for
from .formats import as_duration, as_size, one_line, short_list, visible
from .logs import log
from .running import running_rows
from .site import LiveAdmin


def _operation(order: Order, label: Any, logged: Any) -> Operation:
    return Operation(order, "control_worker", label, lambda worker: _give(worker, order), logged)


OPERATIONS = by_name(
    _operation("quiet", gettext_lazy("Pause"), gettext_lazy("Pause requested")),
    _operation("resume", gettext_lazy("Resume"), gettext_lazy("Resume requested")),
    _operation("restart", gettext_lazy("Restart gracefully"), gettext_lazy("Restart requested")),
    _operation("stop", gettext_lazy("Stop gracefully"), gettext_lazy("Stop requested")),
)


def operate(model_admin: LiveAdmin, request: HttpRequest, operation: Operation, workers: Iterable[Worker]) -> None:
    """Send a command to processes and say how many exist."""
    rows, given = list(workers), list[Worker]()
    try:
        for worker in rows:
            if operation.carry_out(worker):
                log(request, worker, str(operation.logged))
                given.append(worker)
    except RsmqError:
        if given:
            _tell(model_admin, request, operation, given, 0)
        raise
    _tell(model_admin, request, operation, given, len(rows) - len(given))


def _tell(
    model_admin: LiveAdmin, request: HttpRequest, operation: Operation, given: Sequence[Worker], missing: int
) -> None:
    text = ngettext("%(order)s: %(count)d process.", "%(order)s: %(count)d processes.", len(given))
    text %= {"order": operation.label, "count": len(given)}
    if given:
        text = f"{text} {short_list([worker.worker_id for worker in given])}."
    if missing:
        text += " " + ngettext("%d no longer exists.", "%d no longer exist.", missing) % missing
    when = _("Workers receive commands within five seconds.") if given else ""
    model_admin.tell(request, f"{text} {when}".strip(), is_good=bool(given))


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
    actions = tuple(action_for(operation, operate) for operation in OPERATIONS.values())
    has_control_worker_permission = permission_for("control_worker")
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
    def _orders(worker: Worker) -> list[Operation]:
        fitting: dict[str, tuple[Order, ...]] = {
            "working": ("quiet", "restart", "stop"),
            "quiet": ("resume", "restart", "stop"),
            "stopping": ("stop",),
        }
        return [OPERATIONS[order] for order in fitting.get(worker.state, ())]

    def _links(self, worker: Worker, kind: str, page: str) -> list[tuple[str, str]]:
        names: tuple[str, ...] = getattr(worker.record, kind) if worker.record else ()
        keys = {visible(name): QueueRef(worker.connection, name).key for name in names}
        return [(name, self.address(page, key)) for name, key in keys.items()]

    def order_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give an order from the page of a process."""
        worker = self.row_for(request, object_id, "control_worker")
        operation = OPERATIONS.get(request.POST.get("order", ""))
        if operation is None:
            raise Http404
        operate(self, request, operation, [worker])
        return HttpResponseRedirect(self.address("worker_change", worker.pk))

    def stacks_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask a process where its running tasks are in their code; its page shows the answer when it has come."""
        worker = self.row_for(request, object_id, "view_body")
        client = get_client(worker.connection)
        if not client.run(ask_for_stacks(client.namespace, worker.beat.worker_id)):
            self.tell(request, _("The worker no longer exists."), is_good=False)
        return HttpResponseRedirect(f"{self.address('worker_change', worker.pk)}?stacks=1#rsmq-running")


def _give(worker: Worker, order: Order) -> bool:
    client = get_client(worker.connection)
    return worker.record is not None and client.run(give_order(client.namespace, worker.beat.worker_id, order))
