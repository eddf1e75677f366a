"""The pages of reliable queues: who waits, who is pending with whom, what is dead; and settling what is stuck."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.limits import MAX_BATCH
from ..core.reliable import Kind, StoredMessage
from ..core.reliable import ReliableQueue as CoreQueue
from ..live.places import place_of
from ..live.times import as_datetime
from ..models import ReliableQueue
from .bodies import SHOWN_BYTES, ShownBody, preview, shown
from .formats import as_duration, as_size, one_line, visible
from .logs import log
from .site import LiveAdmin

#: Messages of each kind on one page: their bodies are read whole.
SHOWN_MESSAGES = 20
PREVIEW_BYTES = 400

SECTIONS: tuple[tuple[Kind, Any], ...] = (
    ("delivered", gettext_lazy("Pending")),
    ("dead", gettext_lazy("Dead")),
    ("undelivered", gettext_lazy("Waiting")),
    ("delayed", gettext_lazy("Delayed")),
)


@dataclass(frozen=True, slots=True)
class Settling:
    """One thing that can be done to messages of a kind. It is given receipts, so it fails when they moved on."""

    kind: Kind
    label: Any
    codename: str
    logged: str
    carry_out: Callable[[CoreQueue, Sequence[str]], list[str] | None]
    is_dangerous: bool = False


SETTLINGS: Mapping[str, Settling] = {
    "give_back": Settling(
        "delivered", gettext_lazy("Give back"), "settle_reliablequeue", "Gave back",
        lambda queue, receipts: queue.nack(*receipts, is_unused=True),
    ),
    "bury": Settling(
        "delivered", gettext_lazy("Bury"), "settle_reliablequeue", "Buried",
        lambda queue, receipts: queue.bury(*receipts, reason="buried in the admin"),
    ),
    "ack": Settling(
        "delivered", gettext_lazy("Acknowledge"), "settle_reliablequeue", "Acknowledged",
        lambda queue, receipts: queue.ack(*receipts), is_dangerous=True,
    ),
    "redrive": Settling(
        "dead", gettext_lazy("Redrive"), "redrive_reliablequeue", "Redrove",
        lambda queue, ids: queue.redrive(*ids),
    ),
    "discard": Settling(
        "dead", gettext_lazy("Discard"), "discard_reliablequeue", "Discarded",
        lambda queue, ids: queue.discard(*ids), is_dangerous=True,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One message as it is shown."""

    id: str
    #: What an action is given: an id and, while it is pending, the delivery that was seen.
    receipt: str
    at: datetime | None
    ago: str
    deliveries: int
    who: str
    size: str
    preview: str
    body: ShownBody | None


@dataclass(frozen=True, slots=True)
class Section:
    """Some messages of one kind."""

    kind: str
    label: str
    count: int
    rows: list[Row]
    older: int | None
    newer: int | None
    settlings: list[tuple[str, Settling]]


@admin.register(ReliableQueue)
class ReliableQueueAdmin(LiveAdmin):
    """See the module."""

    list_display = ("shown_name", "waiting", "delayed", "pending", "oldest_pending", "dead", "max_deliveries")
    list_display_links = ("shown_name",)
    search_fields = ("name",)

    @admin.display(description=gettext_lazy("queue"), ordering="name")
    def shown_name(self, queue: ReliableQueue) -> str:
        """Return the name, which is what the row links from."""
        return one_line(queue.key, 60)

    @admin.display(description=gettext_lazy("oldest pending"), ordering="oldest_pending_s")
    def oldest_pending(self, queue: ReliableQueue) -> str:
        """Return how long ago the oldest delivery was that nobody acknowledged."""
        return as_duration(queue.oldest_pending_s)

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the pages beside Django's."""
        return [self.own_url("<path:object_id>/settle/", self.settle_view, "settle", post_only=True)]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what the page of a queue shows."""
        row: ReliableQueue = context["original"]
        queue = core_queue(row)
        if queue is not None:
            statistics = queue.statistics()
            context |= {
                "title": _("Reliable queue %(name)s") % {"name": visible(row.name)},
                "subtitle": None,
                "statistics": statistics,
                "consumers": [(one_line(name, 60) or "-", count) for name, count in statistics.consumers.items()],
                "oldest": as_duration(row.oldest_pending_s),
                "may_view_body": self.may(request, "view_body"),
                "sections": [
                    section for kind, label in SECTIONS if (section := self._section(request, queue, kind, label)).count
                ],
            }
        return super().render_change_form(request, context, *args, **kwargs)

    def _section(self, request: HttpRequest, queue: CoreQueue, kind: Kind, label: Any) -> Section:
        text = request.GET.get(kind, "")
        start = int(text) if text.isdecimal() and len(text) < 10 else 0
        count = getattr(queue.statistics(), kind)
        found = queue.messages(kind, start, SHOWN_MESSAGES) if count else []
        return Section(
            kind,
            str(label),
            count,
            [_row(message, kind, with_body=self.may(request, "view_body")) for message in found],
            max(0, start - SHOWN_MESSAGES) if start else None,
            start + SHOWN_MESSAGES if start + SHOWN_MESSAGES < count else None,
            [(n, s) for n, s in SETTLINGS.items() if s.kind == kind and self.may(request, s.codename)],
        )

    def settle_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Do something to the chosen messages that have not moved on since they were shown."""
        settling = SETTLINGS.get(request.POST.get("action", ""))
        if settling is None or not self.has_view_permission(request):
            raise PermissionDenied
        self.demand(request, settling.codename)
        row = ReliableQueue.objects.filter(pk=unquote(object_id)).first()
        queue = core_queue(row) if row is not None else None
        if queue is None:
            raise Http404
        receipts = [word for word in request.POST.getlist("receipt") if word.isprintable()][:MAX_BATCH]
        if not receipts:
            self.tell(request, _("No message was chosen."), is_good=False)
        elif settling.is_dangerous and not request.POST.get("post"):
            return self._ask(request, row, settling, receipts)
        else:
            done = settling.carry_out(queue, receipts) or []
            if done:
                log(request, row, f"{settling.logged} {len(done)} messages: {', '.join(done[:20])}")
            text = _("%(done)d of %(all)d done") % {"done": len(done), "all": len(receipts)}
            rest = len(receipts) - len(done)
            self.tell(request, text + (_(", the rest had moved on") if rest else "") + ".", is_good=not rest)
        return HttpResponseRedirect(queue_url(row))

    def _ask(self, request: HttpRequest, row: Any, settling: Settling, receipts: list[str]) -> HttpResponse:
        context = {
            "title": str(settling.label),
            "queue": row,
            "settling": settling,
            "action": request.POST["action"],
            "receipts": [(receipt, visible(receipt)) for receipt in receipts],
            "back": queue_url(row),
        }
        return self.own_page(request, "reliablequeue/ask.html", context)


def queue_url(row: Any) -> str:
    """Return the address of a queue's page."""
    return reverse("admin:rsmq_reliablequeue_change", args=[quote(row.key)])


def core_queue(row: ReliableQueue) -> CoreQueue | None:
    """Return the queue that a row stands for."""
    place = place_of(row.key)
    return CoreQueue(place.name, place.client) if place else None


def _row(message: StoredMessage, kind: Kind, *, with_body: bool) -> Row:
    body, elapsed_ms = message.body, message.elapsed_ms
    return Row(
        message.id,
        f"{message.id}:{message.deliveries}" if kind == "delivered" else message.id,
        as_datetime(message.at_ms),
        "" if elapsed_ms is None else as_duration(abs(elapsed_ms) / 1000, units=1),
        message.deliveries,
        one_line(message.consumer, 60),
        as_size(len(body)),
        preview(body[:PREVIEW_BYTES], "", is_cut=len(body) > PREVIEW_BYTES) if with_body else "",
        shown(body[: 2 * SHOWN_BYTES]) if with_body else None,
    )
