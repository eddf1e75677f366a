"""The pages of topics: the list, one topic with its groups and its log, and where a group goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.errors import GroupLive, GroupMoved, InvalidName, InvalidValue
from ..core.topic import ConsumerGroup, GroupStatus, SeekResult, TopicMessage
from ..core.topic import Topic as CoreTopic
from ..core.topic.lag import group_statuses, group_statuses_of
from ..core.topic.seeking import MAX_INDEX, Target
from ..live.places import place_of
from ..live.times import as_datetime
from ..models import Topic
from .bodies import CELL_BYTES, BodyCell, body_cell
from .formats import as_duration, as_number, as_size, one_line, visible
from .lag_charts import lag_charts
from .logs import log
from .past_charts import SPAN_PARAMETER, span_links, span_of
from .redaction import redacted_header
from .site import LiveAdmin, LiveChangeList, explanation_of

#: Messages on one page of the log.
LOG_PAGE = 20
#: Of each topic in the list.
MOST_GROUPS_LISTED = 20


class TopicChangeList(LiveChangeList):
    """Looks at the groups of those topics that its page shows."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and which group of each topic is furthest behind."""
        super().get_results(request)
        rows: Any = self.result_list
        read = {row.key: core_topic(row) for row in rows if row.groups and not row.is_broken}
        topics = {key: topic for key, topic in read.items() if topic is not None}
        found: dict[str, list[GroupStatus]] = {}
        for client in {topic.client for topic in topics.values()}:
            keys = [key for key, topic in topics.items() if topic.client is client]
            looked = group_statuses_of([topics[key] for key in keys], most=MOST_GROUPS_LISTED)
            found |= dict(zip(keys, looked, strict=True))
        for row in rows:
            row.furthest_behind = max(found.get(row.key, ()), key=lambda group: group.lag, default=None)


@admin.register(Topic)
class TopicAdmin(LiveAdmin):
    """See the module."""

    list_display = ("shown_name", "messages", "last", "groups", "behind", "oldest_at", "newest_at", "status")
    list_display_links = ("shown_name",)
    search_fields = ("name",)
    sortable_by = ("shown_name", "messages", "groups")

    @admin.display(description=gettext_lazy("topic"), ordering="name")
    def shown_name(self, topic: Topic) -> str:
        """Return the name, which is what the row links from."""
        return one_line(topic.key, 60)

    @admin.display(description=gettext_lazy("largest lag"))
    def behind(self, topic: Topic) -> str:
        """Return the group with the largest lag; red when it has no active consumer."""
        group: GroupStatus | None = getattr(topic, "furthest_behind", None)
        if group is None or not group.lag:
            return "-" if group is None else "0"
        text = f"{as_number(group.lag)} ({one_line(group.name, 30)})"
        return text if group.live_consumers else format_html('<span class="rsmq-bad">{}</span>', text)

    @admin.display(description=gettext_lazy("status"))
    def status(self, topic: Topic) -> str:
        """Return the problems of the topic."""
        return format_html('<span class="rsmq-bad">{}</span>', _("broken")) if topic.is_broken else "-"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that also looks at the groups."""
        return TopicChangeList

    def own_urls(self) -> Sequence[URLPattern]:
        """Return the pages beside Django's."""
        return [self.own_url("<path:object_id>/groups/<path:group>/seek/", self.seek_view, "seek")]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add what the page of a topic shows."""
        row: Topic = context["original"]
        topic = core_topic(row)
        context |= {"title": _("Topic %(name)s") % {"name": visible(row.name)}, "subtitle": None}
        if topic is not None and not row.is_broken:
            groups = groups_of(topic)
            context |= {
                "status": topic.status(),
                "retention": retention_of(topic),
                "groups": [_shown_group(group, row) for group in groups],
                "charts": lag_charts(topic, groups, span_of(request)),
                "spans": span_links(request),
                "span": request.GET.get(SPAN_PARAMETER, ""),
                "may_seek": self.may(request, "seek_topic"),
                "may_view_body": self.may(request, "view_body"),
                "log": read_log(topic, request.GET, with_bodies=self.may(request, "view_body")),
                "asked_from": request.GET.get("from", ""),
                "asked_at": request.GET.get("at", ""),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    # -- Where a group goes on ----------------------------------------------------------------------------------------

    def seek_view(self, request: HttpRequest, object_id: str, group: str) -> HttpResponse:
        """Ask for the new position, show a preview, and move the group if it has not changed since the preview."""
        row = self.row_for(request, object_id, "seek_topic")
        found = _group(row, unquote(group))
        if found is None:
            raise Http404
        if request.POST.get("confirmed"):
            return self._seek(request, row, found)
        form = SeekForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                return self._ask(request, row, found, found.seek(form.target(), dry_run=True))
            except InvalidValue as error:
                form.add_error("value", explanation_of(error))
        return self._seek_page(request, row, found, forms=[form])

    def _ask(self, request: HttpRequest, row: Topic, group: ConsumerGroup, plan: SeekResult) -> HttpResponse:
        hidden = [("before", str(plan.before)), ("after", str(plan.after)), ("confirmed", "yes")]
        return self._seek_page(request, row, group, plan=plan, effects=effects_of(plan), hidden=hidden)

    def _seek(self, request: HttpRequest, row: Topic, group: ConsumerGroup) -> HttpResponse:
        form = ConfirmForm(request.POST)
        if not form.is_valid():
            return self._seek_page(request, row, group, forms=[SeekForm()])
        after = form.cleaned_data["after"]
        plan = group.seek(after, dry_run=True)
        try:
            shown = replace(plan, before=form.cleaned_data["before"])
            done = group.seek(after, force=form.cleaned_data["force"], seen=shown)
        except GroupMoved:
            self.tell(
                request,
                _("The position of the group has changed meanwhile. Nothing was changed. Check the new preview."),
                is_good=False,
            )
            return self._ask(request, row, group, plan)
        except GroupLive:
            text = _("The group has active consumers. Stop them first, or tick Force.")
            self.tell(request, text, is_good=False)
            return self._ask(request, row, group, plan)
        log(
            request,
            row,
            _("Moved group %(group)s from %(before)d to %(after)d")
            % {"group": group.name, "before": done.before, "after": done.after},
        )
        self.tell(
            request, _("Group %(group)s continues at index %(index)d.") % {"group": group.name, "index": done.after}
        )
        return HttpResponseRedirect(self.address("topic_change", row.key))

    def _seek_page(self, request: HttpRequest, row: Topic, group: ConsumerGroup, **more: Any) -> HttpResponse:
        back = self.address("topic_change", row.key)
        context = {
            "title": _("Move position of group %(group)s") % {"group": visible(group.name)},
            "frame": f"admin/rsmq/components/{'ask' if 'plan' in more else 'form'}.html",
            "group": group.status(),
            "button": _("Preview"),
            "is_dangerous": "plan" in more,
            "back": back,
            "trail": [(row.key, back)],
            **more,
        }
        return self.own_page(request, "topic/seek.html", context)


def core_topic(row: Topic) -> CoreTopic | None:
    """Return the topic of a row."""
    place = place_of(row.key)
    return CoreTopic(place.name, place.client) if place else None


def _group(row: Topic, name: str) -> ConsumerGroup | None:
    topic = core_topic(row)
    try:
        group = topic.group(name) if topic else None
    except InvalidName:
        return None
    return group if group is not None and group.status().exists else None


# -- Groups -----------------------------------------------------------------------------------------------------------


def groups_of(topic: CoreTopic) -> list[GroupStatus]:
    """Return the groups of a topic, those with the most ahead first."""
    return sorted(group_statuses(topic), key=lambda status: (-status.lag, status.name))


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """One group as a row of the table."""

    status: GroupStatus
    #: Share of the retained messages that it has read, in percent.
    share_read: int
    #: Age of its next message; "" when there is none.
    behind_for: str
    #: How long ago a consumer read from it.
    seen_ago: str
    #: It has lag and no active consumer.
    is_left_alone: bool


def _shown_group(group: GroupStatus, row: Topic) -> ShownGroup:
    share = 100 if not row.messages else max(0, min(100, 100 - round(100 * group.lag / row.messages)))
    seen_ago_s = None if group.seen_ms is None else max(0.0, time.time() - group.seen_ms / 1000)
    return ShownGroup(
        group,
        share,
        "" if group.depth.oldest_ready_s is None else as_duration(group.depth.oldest_ready_s),
        "" if seen_ago_s is None else as_duration(seen_ago_s),
        group.lag > 0 and not group.live_consumers,
    )


def retention_of(topic: CoreTopic) -> list[str]:
    """Return what a topic keeps, in words."""
    kept = topic.status().retention
    words = [
        _("%d messages") % kept.max_count if kept.max_count is not None else "",
        as_duration(kept.max_age_s) if kept.max_age_s is not None else "",
        as_size(kept.max_bytes) if kept.max_bytes is not None else "",
    ]
    limits = [word for word in words if word] or [_("unlimited")]
    return [*limits, *([_("messages that a group has not read yet")] if kept.wait_for_groups else [])]


def effects_of(plan: SeekResult) -> list[str]:
    """Return what a seek will do, in sentences."""
    distance = plan.after - plan.before
    if distance < 0:
        first = (
            ngettext("%d message will be delivered again.", "%d messages will be delivered again.", -distance)
            % -distance
        )
    elif distance > 0:
        first = ngettext("%d message will be skipped.", "%d messages will be skipped.", distance) % distance
    else:
        first = _("The position does not change.")
    held = (
        ngettext(
            "The lease of %d unacknowledged message is dropped.",
            "The leases of %d unacknowledged messages are dropped.",
            plan.held,
        )
        % plan.held
    )
    return [first, *([held] if plan.held else [])]


# -- The log ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogLine:
    """One message of the log as it is shown."""

    index: int
    published_at: datetime | None
    key: str
    cell: BodyCell
    headers: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some messages in a row."""

    lines: list[LogLine]
    first: int
    last: int
    #: Where the pages before and behind this one begin; None where there is none.
    older: int | None
    newer: int | None
    problem: str = ""


def read_log(topic: CoreTopic, asked: Any, *, with_bodies: bool) -> LogPage:
    """Read a page of the log, from an index or a time on; without either the latest messages."""
    status, problem = topic.status(), ""
    start = max(status.first, status.last - LOG_PAGE + 1)
    try:
        if asked.get("from"):
            start = min(max(int(asked["from"]), status.first), max(status.last, 1))
        elif asked.get("at"):
            start = _index_at(topic, asked["at"])
    except (ValueError, ValidationError, InvalidValue):
        problem = _("That is neither an index nor a time.")
    found = topic.read_range(start, LOG_PAGE, body_bytes=CELL_BYTES if with_bodies else 0)
    lines = [
        _line(message, size, with_bodies=with_bodies)
        for message, size in zip(found.messages, found.sizes, strict=True)
        if message.index < start + LOG_PAGE
    ]
    older = max(start - LOG_PAGE, found.first) if start > found.first else None
    newer = start + LOG_PAGE if start + LOG_PAGE <= found.last else None
    return LogPage(lines, found.first, found.last, older, newer, problem)


def _index_at(topic: CoreTopic, text: str) -> int:
    moment: Any = forms.DateTimeField().clean(text)
    # A dry run of a group that need not exist: it changes nothing, and finds the index of a time in the log.
    return max(1, topic.group("looking").seek(moment, dry_run=True).after)


def _line(message: TopicMessage, size_bytes: int, *, with_bodies: bool) -> LogLine:
    return LogLine(
        message.index,
        as_datetime(message.published_ms),
        one_line(message.key or "", 60) if with_bodies else "",
        body_cell(message.body, size_bytes, is_shown=with_bodies),
        [(one_line(name, 60), one_line(redacted_header(name, value))) for name, value in message.headers.items()]
        if with_bodies
        else [],
    )


# -- Forms ------------------------------------------------------------------------------------------------------------


class SeekForm(forms.Form):
    """Where a group is to go on."""

    to = forms.ChoiceField(
        label=gettext_lazy("Continue at"),
        choices=[
            ("earliest", gettext_lazy("the first retained message (replay)")),
            ("latest", gettext_lazy("the next message published")),
            ("index", gettext_lazy("this index")),
            ("time", gettext_lazy("this time")),
            ("ago", gettext_lazy("a number of seconds ago")),
            ("shift", gettext_lazy("a number of messages forward, or back (-10)")),
        ],
    )
    value = forms.CharField(label=gettext_lazy("Value"), required=False, max_length=40)

    def clean(self) -> dict[str, Any]:
        """Convert the value to the chosen kind of position."""
        cleaned: dict[str, Any] = super().clean() or {}
        fields: dict[str, Any] = {
            "index": forms.IntegerField(min_value=0, max_value=MAX_INDEX),
            "time": forms.DateTimeField(),
            "ago": forms.FloatField(min_value=0, max_value=1e9),
            "shift": forms.IntegerField(min_value=-MAX_INDEX, max_value=MAX_INDEX),
        }
        to = cleaned.get("to", "")
        cleaned["target"] = to
        if to in fields:
            try:
                value = fields[to].clean(cleaned.get("value", ""))
            except ValidationError as error:
                self.add_error("value", error)
            else:
                cleaned["target"] = _target(to, value)
        return cleaned

    def target(self) -> Target:
        """Return where to."""
        target: Target = self.cleaned_data["target"]
        return target


def _target(to: str, value: Any) -> Target:
    if to == "ago":
        return timedelta(seconds=value)
    target: Target = f"{value:+d}" if to == "shift" else value
    return target


class ConfirmForm(forms.Form):
    """The preview that the user confirmed."""

    before = forms.IntegerField()
    after = forms.IntegerField(min_value=0, max_value=MAX_INDEX)
    force = forms.BooleanField(required=False)
