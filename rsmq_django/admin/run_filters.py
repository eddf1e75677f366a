"""What the list of runs is asked for: a form whose fields are in the address of the page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..conf.settings import get_settings
from ..core.stats.run_filter import FAILED, RunFilter
from ..live.runs import Asked, default_alias
from ..models import Run
from .time_field import TimeField

#: Where the page before this one ended.
BEFORE = "before"
PERIODS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
ANY_FAILURE = "failed"


class RunForm(forms.Form):
    """The filters of the list."""

    q = forms.CharField(label=_("Search"), required=False, max_length=300)
    task = forms.CharField(label=_("Task"), required=False, max_length=500)
    queue = forms.CharField(label=_("Queue"), required=False, max_length=500)
    outcome = forms.ChoiceField(
        label=_("Outcome"),
        required=False,
        choices=[("", _("Any")), (ANY_FAILURE, _("Any failure")), *Run.OUTCOMES],
    )
    worker = forms.CharField(label=_("Worker"), required=False, max_length=500)
    tag = forms.CharField(label=_("Tag"), required=False, max_length=500)
    group = forms.CharField(label=_("Error group"), required=False, max_length=64)
    period = forms.ChoiceField(
        label=_("Period"),
        required=False,
        choices=[("", _("Any time")), ("1h", _("Last hour")), ("24h", _("Last 24 hours")), ("7d", _("Last 7 days"))],
    )
    since = TimeField(label=_("From"), required=False)
    until = TimeField(label=_("Until"), required=False, is_end=True)
    connection = forms.ChoiceField(label=_("Connection"), required=False)

    def __init__(self, *args: Any, may_view_body: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.may_view_body = may_view_body
        if not may_view_body:
            del self.fields["tag"]  # tags are in bodies
        for name in ("task", "queue"):
            self.fields[name].widget.attrs["list"] = f"rsmq-{name}s"
        if not self["group"].value():
            self.fields["group"].widget = forms.HiddenInput()
        connection: Any = self.fields["connection"]
        connection.choices = [("", default_alias()), *((name, name) for name in get_settings().connections)]
        if len(get_settings().connections) == 1:
            connection.widget = forms.HiddenInput()

    def asked(self, before: str) -> Asked:
        """Return which runs are wanted; fields that cannot be understood are left out."""
        self.is_valid()
        given = self.cleaned_data
        since, until = given.get("since"), given.get("until")
        if period := PERIODS.get(given.get("period", "")):
            begin = datetime.now(UTC) - period
            since = max(since, begin) if since else begin
        outcome = given.get("outcome", "")
        kinds = FAILED if outcome == ANY_FAILURE else frozenset([outcome] if outcome else ())
        wanted = RunFilter(
            task=given.get("task") or None,
            queue=given.get("queue") or None,
            kinds=kinds,
            worker=given.get("worker") or None,
            tag=given.get("tag") or None,
            group=given.get("group") or None,
            since_ms=_as_ms(since),
            until_ms=_as_ms(until),
            words=tuple(given.get("q", "").split()),
            in_arguments=self.may_view_body,
            in_errors=self.may_view_body,
        )
        return Asked(given.get("connection") or default_alias(), wanted, before)


def _as_ms(when: datetime | None) -> int | None:
    return None if when is None else max(0, round(when.timestamp() * 1000))


class _FormField(admin.SimpleListFilter):
    """Takes a field of the form out of what Django would look for in the model; it shows nothing itself."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return []

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset


def known_fields(names: Iterable[str]) -> list[type[admin.SimpleListFilter]]:
    """Return filters that make Django accept the fields of a form in an address."""
    return [type(f"Known{name}", (_FormField,), {"title": name, "parameter_name": name}) for name in names]
