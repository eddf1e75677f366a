"""The filters of the list of messages, and going on where looking for messages has stopped.

Redis has no index of tasks, errors and tags: messages are looked at one after the other, up to `SEARCH_LIMIT` of them
for a page, which says how many those were and links to the next ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..live.servers import all_places
from ..tasks.catalogue import known_tasks
from .formats import as_number, one_line
from .fragments import is_fragment
from .site import LiveChangeList

BEGIN_PARAMETER = "after"
#: Longer lists of suggestions are longer than the page.
MAX_SUGGESTIONS = 100
#: A filter with more choices is longer than the list; the page of queues links to the messages of each.
MAX_QUEUE_CHOICES = 50


class QueueFilter(admin.SimpleListFilter):
    """Filter by one queue. The messages of other queues are reached from the page of queues."""

    title = gettext_lazy("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the queues to choose from; a refresh leaves the filters as they are."""
        if is_fragment(request):
            return []
        places = all_places([])
        if len(places) > MAX_QUEUE_CHOICES:
            places = [place for place in places if place.is_configured or place.key == self.value()]
        return [(place.key, one_line(place.label, 40)) for place in places[:MAX_QUEUE_CHOICES]]

    def has_output(self) -> bool:
        """Return True: a chosen filter can always be cleared, also without other choices."""
        return bool(self.lookup_choices) or self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the messages of the queue."""
        return queryset.filter(queue=self.value()) if self.value() else queryset


class TextFilter(admin.SimpleListFilter):
    """A filter with a field to type in: there are too many values to choose from."""

    template = "admin/rsmq/text_filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return nothing to choose from."""
        return []

    def has_output(self) -> bool:
        """Return True: there is a field."""
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the field: its value, what else the address holds, and the address without it."""
        others = {
            name: value
            for name, value in changelist.params.items()
            if name not in (self.parameter_name, BEGIN_PARAMETER)
        }
        yield {
            "selected": bool(self.value()),
            "query_string": changelist.get_query_string({}, [self.parameter_name, BEGIN_PARAMETER]),
            "display": _("All"),
            "others": others.items(),
            "suggestions": self.suggestions(),
        }

    def suggestions(self) -> list[str]:
        """Return values to begin with."""
        return []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """Return the messages that have the value."""
        value = (self.value() or "").strip()[:500]
        live: Any = queryset
        return live.narrow(**{str(self.parameter_name): value}) if value else queryset


class TaskFilter(TextFilter):
    """A part of the dotted path of the task."""

    title = gettext_lazy("task")
    parameter_name = "task"

    def suggestions(self) -> list[str]:
        """Return the tasks of the project."""
        paths = sorted(known_tasks())
        return paths if len(paths) <= MAX_SUGGESTIONS else []


class ErrorFilter(TextFilter):
    """A part of the dotted path of the exception of a dead letter."""

    title = gettext_lazy("error")
    parameter_name = "error"


class TagFilter(TextFilter):
    """A whole tag. Tags are in bodies, so it is only for users who may see bodies."""

    title = gettext_lazy("tag")
    parameter_name = "tag"


class AgeFilter(admin.SimpleListFilter):
    """How long ago a message was sent, as its id says."""

    title = gettext_lazy("age")
    parameter_name = "age"
    #: The value in the address: its label, the greatest and the least age.
    ages = {
        "lt1m": (gettext_lazy("up to 1 minute"), 60, None),
        "lt1h": (gettext_lazy("up to 1 hour"), 3600, None),
        "gt1m": (gettext_lazy("over 1 minute"), None, 60),
        "gt1h": (gettext_lazy("over 1 hour"), None, 3600),
        "gt1d": (gettext_lazy("over 1 day"), None, 86_400),
        "gt7d": (gettext_lazy("over 7 days"), None, 7 * 86_400),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the ages to choose from."""
        return [(value, label) for value, (label, _most, _least) in self.ages.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """Return the messages of that age."""
        chosen = self.ages.get(self.value() or "")
        if chosen is None:
            return queryset
        _label, most_s, least_s = chosen
        now_ms = 1000 * time.time()
        live: Any = queryset
        return live.narrow(
            sent_from_ms=now_ms - 1000 * most_s if most_s else None,
            sent_until_ms=now_ms - 1000 * least_s if least_s else None,
        )


class MessageChangeList(LiveChangeList):
    """Goes on where an earlier page has stopped looking."""

    fields_per_row = 2

    def get_filters_params(self, params: dict[str, Any] | None = None) -> Any:
        """Leave out where looking begins."""
        found: Any = super().get_filters_params(params)
        found.pop(BEGIN_PARAMETER, None)
        return found

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return the messages from there on."""
        found: Any = super().get_queryset(request, *args, **kwargs)
        begin = request.GET.get(BEGIN_PARAMETER, "")
        return found.begin_at(begin) if begin else found

    @property
    def scan_notes(self) -> list[str | SafeString]:
        """Return how many messages were looked at, with a link to the next ones."""
        queryset: Any = self.queryset
        scan = queryset.scanned()
        if scan is None or (scan.is_complete and not scan.looked_before):
            return []
        numbers = (scan.looked_before + 1, scan.looked_before + scan.looked_at, scan.of)
        first, last, of = map(as_number, numbers)
        text = _("Searched messages %(first)s to %(last)s of %(of)s.") % {"first": first, "last": last, "of": of}
        if not scan.end:
            return [text]
        query = self.get_query_string({BEGIN_PARAMETER: scan.end}, ["p"])
        return [format_html('{} <a href="{}">{}</a>', text, query, _("Continue"))]
