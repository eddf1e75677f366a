"""The columns and the filter of the list of messages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy

from ..live.servers import all_places
from ..models import Message
from .bodies import preview
from .formats import as_moment, as_number, as_size, one_line, visible
from .fragments import is_fragment

#: A filter with more choices is longer than the list; the page of queues links to the messages of each.
MAX_QUEUE_CHOICES = 50


class QueueFilter(admin.SimpleListFilter):
    """One queue. What is behind the others is reached from the page of queues."""

    title = gettext_lazy("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the queues to choose from; a refresh leaves the filters as they are."""
        if is_fragment(request):
            return []
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


@admin.display(description=gettext_lazy("message"))
def short_id(message: Message) -> str:
    """Return the beginning of the id, which is when it was sent, and its end: the row links from it."""
    shown_id = one_line(message.message_id, 40)
    if len(shown_id) > 18:
        shown_id = f"{shown_id[:10]}…{shown_id[-6:]}"
    return format_html('<span class="rsmq-mono" title="{}">{}</span>', visible(message.message_id), shown_id)


@admin.display(description=gettext_lazy("queue"))
def queue_name(message: Message) -> str:
    """Return the queue."""
    return one_line(message.queue, 40)


@admin.display(description=gettext_lazy("task / error"))
def what(message: Message) -> str:
    """Return the task, and the error of a dead letter."""
    parts = [one_line(part, 60) for part in (message.task, message.error) if part]
    return " · ".join(parts) or "-"


@admin.display(description=gettext_lazy("task / error"))
def what_and_body(message: Message) -> str:
    """Return the same with the beginning of the body, for those who may see it."""
    body = preview(message.stored.body, message.task, is_cut=_is_cut(message))
    return format_html('{}<span class="rsmq-preview">{}</span>', what(message), body)


@admin.display(description=gettext_lazy("ready since / due"), ordering="visible_at")
def visible_from(message: Message) -> str:
    """Return when it can be received."""
    return as_moment(message.visible_at, message.now_ms)


@admin.display(description=gettext_lazy("deliveries"))
def received(message: Message) -> str:
    """Return how often it was received."""
    return as_number(message.receive_count)


@admin.display(description=gettext_lazy("size"))
def size(message: Message) -> str:
    """Return the size of the body."""
    return as_size(message.size_bytes)


def _is_cut(message: Message) -> bool:
    return len(message.stored.body) < (message.size_bytes or 0)
