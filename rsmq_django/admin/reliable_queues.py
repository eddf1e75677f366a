"""The pages of reliable queues: messages that are in flight, dead, ready or delayed, and operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.limits import MAX_BATCH
from ..core.reliable import STATES, Kind, StoredReliableMessage, list_reliable_queues
from ..core.reliable import ReliableQueue as CoreQueue
from ..live.places import place_of
from ..live.times import as_datetime
from ..models import ReliableQueue
from .bodies import CELL_BYTES, BodyCell, body_cell
from .components.operations import Operation, by_name
from .formats import as_duration, as_number, one_line, visible
from .logs import log
from .site import LiveAdmin

#: Messages of each kind on one page.
SHOWN_MESSAGES = 20
#: Names that a browser offers while one is typed.
MAX_NAMES = 200

SECTIONS: tuple[tuple[Kind, Any], ...] = (
    ("delivered", gettext_lazy("In flight")),
    ("dead", gettext_lazy("Dead")),
    ("undelivered", gettext_lazy("Ready")),
    ("delayed", gettext_lazy("Delayed")),
)


def _moving(kind: Kind) -> Operation:
    def move(queue: CoreQueue, receipts: Sequence[str], target: str) -> Any:
        return queue.move(target, *receipts, kind=kind)

    label, logged = gettext_lazy("Move to another queue"), gettext_lazy("Moved")
    return Operation(f"move_{kind}", "move_reliablequeue", label, move, logged, asks=("target",), states=(kind,))


#: The operation on messages of a kind. It is given receipts, so it skips messages that have been received since; the
#: last argument is the name of the queue to move to, "" without one.
SETTLINGS = by_name(
    Operation(
        "give_back", "settle_reliablequeue", gettext_lazy("Release"),
        lambda queue, receipts, target: queue.nack(*receipts, is_unused=True),
        gettext_lazy("Released"), states=("delivered",),
    ),
    Operation(
        "bury", "settle_reliablequeue", gettext_lazy("Move to dead letters"),
        lambda queue, receipts, target: queue.bury(*receipts, reason="moved to dead letters in the admin"),
        gettext_lazy("Moved to dead letters:"), states=("delivered",),
    ),
    _moving("delivered"),
    Operation(
        "ack", "settle_reliablequeue", gettext_lazy("Acknowledge"),
        lambda queue, receipts, target: queue.ack(*receipts),
        gettext_lazy("Acknowledged"), is_dangerous=True, states=("delivered",),
    ),
    Operation(
        "redrive", "redrive_reliablequeue", gettext_lazy("Retry"),
        lambda queue, receipts, target: queue.redrive(*receipts),
        gettext_lazy("Retried:"), states=("dead",),
    ),
    _moving("dead"),
    Operation(
        "discard", "discard_reliablequeue", gettext_lazy("Discard"),
        lambda queue, receipts, target: queue.discard(*receipts),
        gettext_lazy("Discarded"), is_dangerous=True, states=("dead",),
    ),
    _moving("undelivered"),
    _moving("delayed"),
)  # fmt: skip


class TargetForm(forms.Form):
    """Where messages are to be moved."""

    target = forms.CharField(
        label=gettext_lazy("Target queue"),
        max_length=160,
        widget=forms.TextInput(attrs={"list": "rsmq-queues", "autocomplete": "off"}),
    )

    def __init__(self, names: Sequence[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.names = names

    def clean_target(self) -> str:
        """Return the name of a queue that there is: a misspelt one would be made by the move."""
        name: str = self.cleaned_data["target"]
        if name not in self.names:
            raise forms.ValidationError(_("This queue does not exist."))
        return name


@dataclass(frozen=True, slots=True)
class ReliableMessageRow:
    """One message as it is shown."""

    id: str
    #: The parameter of an action: an id and, in flight or dead, the number of deliveries.
    receipt: str
    at: datetime | None
    deliveries: int
    who: str
    cell: BodyCell


@dataclass(frozen=True, slots=True)
class Section:
    """Some messages of one kind."""

    kind: str
    label: str
    count: int
    rows: list[ReliableMessageRow]
    older: int | None
    newer: int | None
    settlings: list[Operation]


@admin.register(ReliableQueue)
class ReliableQueueAdmin(LiveAdmin):
    """See the module."""

    list_display = ("shown_name", "waiting", "delayed", "pending", "oldest_pending", "dead", "most_deliveries")
    list_display_links = ("shown_name",)
    search_fields = ("name",)

    @admin.display(description=gettext_lazy("queue"), ordering="name")
    def shown_name(self, queue: ReliableQueue) -> str:
        """Return the name, which is what the row links from."""
        return one_line(queue.key, 60)

    @admin.display(description=gettext_lazy("oldest in flight"), ordering="oldest_pending_s")
    def oldest_pending(self, queue: ReliableQueue) -> str:
        """Return the age of the oldest delivery that is not acknowledged."""
        return as_duration(queue.oldest_pending_s)

    @admin.display(description=gettext_lazy("max deliveries"), ordering="max_deliveries")
    def most_deliveries(self, queue: ReliableQueue) -> str:
        """Return after how many deliveries a message is dead."""
        return str(queue.max_deliveries) if queue.max_deliveries else _("no limit")

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
                    self._section(request, queue, kind, label, getattr(statistics.depth, STATES[kind]))
                    for kind, label in SECTIONS
                    if getattr(statistics.depth, STATES[kind])
                ],
            }
        return super().render_change_form(request, context, *args, **kwargs)

    def _section(self, request: HttpRequest, queue: CoreQueue, kind: Kind, label: Any, count: int) -> Section:
        text = request.GET.get(kind, "")
        start = int(text) if text.isdecimal() and len(text) < 10 else 0
        with_bodies = self.may(request, "view_body")
        found = queue.messages(kind, start, SHOWN_MESSAGES, body_bytes=CELL_BYTES if with_bodies else 0)
        return Section(
            kind,
            str(label),
            count,
            [_row(message, kind, with_body=with_bodies) for message in found],
            max(0, start - SHOWN_MESSAGES) if start else None,
            start + SHOWN_MESSAGES if start + SHOWN_MESSAGES < count else None,
            [each for each in SETTLINGS.values() if kind in each.states and self.may(request, each.codename)],
        )

    def settle_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Do something to the chosen messages that have not moved on since they were shown."""
        settling = SETTLINGS.get(request.POST.get("action", ""))
        if settling is None:
            raise PermissionDenied
        row = self.row_for(request, object_id, settling.codename)
        queue = core_queue(row)
        if queue is None:
            raise Http404
        receipts = [word for word in request.POST.getlist("receipt") if word.isprintable()][:MAX_BATCH]
        if not receipts:
            self.tell(request, _("No message was selected."), is_good=False)
            return HttpResponseRedirect(self.address("reliablequeue_change", row.key))
        names = other_names(queue) if settling.asks else []
        form = TargetForm(names, request.POST if request.POST.get("post") else None)
        if (settling.has_question and not request.POST.get("post")) or (settling.asks and not form.is_valid()):
            return self._ask(request, row, settling, receipts, form)
        self._carry_out(request, row, settling, receipts, form.cleaned_data["target"] if settling.asks else "")
        return HttpResponseRedirect(self.address("reliablequeue_change", row.key))

    def _carry_out(
        self, request: HttpRequest, row: ReliableQueue, settling: Operation, receipts: list[str], target: str
    ) -> None:
        queue = core_queue(row)
        done = list((settling.carry_out(queue, receipts, target) if queue is not None else None) or ())
        if done:
            parts = {"what": settling.logged, "count": len(done), "ids": ", ".join(done[:20])}
            text = (
                ngettext("%(what)s %(count)d message: %(ids)s", "%(what)s %(count)d messages: %(ids)s", len(done))
                % parts
            )
            log(request, row, f"{text} → {target}" if target else text)
        text = _("%(done)s of %(all)s done") % {"done": as_number(len(done)), "all": as_number(len(receipts))}
        text = f"{settling.label} · {row.key}: {text}"
        rest = len(receipts) - len(done)
        self.tell(
            request, text + (_("; the other messages have changed meanwhile") if rest else "") + ".", is_good=not rest
        )

    def _ask(
        self, request: HttpRequest, row: Any, settling: Operation, receipts: list[str], form: TargetForm
    ) -> HttpResponse:
        back = self.address("reliablequeue_change", row.key)
        about = ngettext(
            "This removes %(n)s message from %(queue)s for good.",
            "This removes %(n)s messages from %(queue)s for good.",
            len(receipts),
        )
        if settling.asks:
            about = ngettext(
                "This moves %(n)s message from %(queue)s to the end of another queue. "
                "It gets a new id, and its deliveries are counted from 0.",
                "This moves %(n)s messages from %(queue)s to the end of another queue. "
                "They get new ids, and their deliveries are counted from 0.",
                len(receipts),
            )
        named = self._named(request, row, settling, receipts)
        context = {
            "title": str(settling.label),
            "queue": row,
            "about": about % {"n": len(receipts), "queue": row.key},
            "strong": "" if settling.asks else settling.label,
            "forms": [form] if settling.asks else [],
            "queue_names": form.names[:MAX_NAMES],
            "chosen": [(text, "", "receipt", receipt) for receipt, text in named],
            "hidden": [("action", settling.name), ("post", "yes")],
            "is_dangerous": settling.is_dangerous,
            "back": back,
            "trail": [(row.key, back)],
        }
        return self.own_page(request, "components/ask.html", context)

    def _named(self, request: HttpRequest, row: Any, settling: Operation, receipts: list[str]) -> list[tuple[str, str]]:
        """Return each receipt with the beginning of its message, for users who may see bodies."""
        names: dict[str, str] = {}
        kind: Any = settling.states[0]
        queue = core_queue(row) if self.may(request, "view_body") else None
        if queue is not None:
            found = queue.messages(kind, 0, SHOWN_MESSAGES, body_bytes=CELL_BYTES)
            rows = [_row(message, kind, with_body=True) for message in found]
            names = {each.receipt: f"{each.cell.preview} ({each.id})" for each in rows}
        return [(receipt, names.get(receipt, visible(receipt))) for receipt in receipts]


def other_names(queue: CoreQueue) -> list[str]:
    """Return the names of the other reliable queues on the same server."""
    return [name for name in list_reliable_queues(queue.client) if name != queue.name]


def core_queue(row: ReliableQueue) -> CoreQueue | None:
    """Return the queue of a row."""
    place = place_of(row.key)
    return CoreQueue(place.name, place.client) if place else None


def _row(message: StoredReliableMessage, kind: Kind, *, with_body: bool) -> ReliableMessageRow:
    return ReliableMessageRow(
        message.id,
        f"{message.id}:{message.deliveries}" if kind in ("delivered", "dead") else message.id,
        as_datetime(message.at_ms),
        message.deliveries,
        one_line(message.consumer, 60),
        body_cell(message.body, message.size_bytes, is_shown=with_body),
    )
