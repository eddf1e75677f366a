"""The page of failure groups: filters, trend, muting, and the redrive of the dead letters of a group."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..admin.charts import sparkline
from ..admin.formats import as_number, one_line, visible
from ..admin.naming import question
from ..admin.redaction import redact
from ..admin.time_field import TimeField
from ..conf.settings import get_settings
from . import history
from .charts import SPANS
from .fields import utc
from .models import FailureGroup, MutedFailure
from .pages import MOST_CHOICES, HistoryAdmin, span_links, span_of

#: Maximum number of dead letters per redrive request, which keeps the request short.
MOST_REDRIVEN = 1000
NEW = {"24h": dt.timedelta(days=1), "7d": dt.timedelta(days=7)}


class FailureForm(forms.Form):
    """The filters of the page."""

    span = forms.CharField(required=False, widget=forms.HiddenInput)
    task = forms.CharField(label=gettext_lazy("Task"), required=False, max_length=200)
    queue = forms.CharField(label=gettext_lazy("Queue"), required=False, max_length=160)
    kind = forms.CharField(label=gettext_lazy("Error"), required=False, max_length=200)
    new = forms.ChoiceField(
        label=gettext_lazy("New"),
        required=False,
        choices=[
            ("", gettext_lazy("New and known")),
            ("24h", gettext_lazy("Since yesterday")),
            ("7d", gettext_lazy("Since a week ago")),
        ],
    )
    new_since = TimeField(label=gettext_lazy("New since"), required=False)
    muted = forms.BooleanField(label=gettext_lazy("Show muted"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("task", "queue", "kind"):
            self.fields[name].widget.attrs["list"] = f"rsmq-{name}s"

    def asked(self) -> dict[str, Any]:
        """Return the arguments of failure_groups(); fields that cannot be understood are left out."""
        self.is_valid()
        given = self.cleaned_data
        new = [given["new_since"]] if given.get("new_since") else []
        if period := NEW.get(given.get("new", "")):
            new.append(utc(timezone.now()) - period)
        asked = {name: given.get(name) or None for name in ("task", "queue", "kind")}
        return asked | {"new_since": max(new) if new else None}


@admin.register(FailureGroup)
class FailureGroupAdmin(HistoryAdmin):
    """Groups of similar failures over weeks, with a button that redrives the dead letters of a group."""

    # The list shows it, without secrets, to users who may see bodies.
    exclude = ("sample",)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show groups over all days instead of rows of days."""
        self.demand_view(request)
        if request.method == "POST":
            return self._mute(request) if "mute" in request.POST else self._redrive(request)
        span = span_of(request)
        days = _days_of(span)
        since = days[0]
        form = FailureForm(request.GET)
        asked, muted = form.asked(), set(MutedFailure.objects.values_list("fingerprint", flat=True))
        may_view_body = request.user.has_perm("rsmq.view_body")
        hidden = () if form.cleaned_data.get("muted") else muted
        groups = history.failure_groups(since=since, without=hidden, **asked)
        context = {
            "title": _("Failures"),
            "span": span,
            "spans": span_links(request),
            "form": form,
            "is_filtered": any(asked.values()) or bool(muted and not hidden),
            **history.failure_names(since=since, most=MOST_CHOICES),
            "groups": [
                {
                    "group": group,
                    "sample": one_line(redact(group.sample), 300) if may_view_body else "",
                    "trend": _trend(group, days),
                    "queues": [(name, _dead_letters_url(self, name)) for name in group.queues],
                    "is_muted": group.fingerprint in muted,
                }
                for group in groups
            ],
            "muted": len(hidden),
            "may_redrive": request.user.has_perm("rsmq.redrive_message"),
            "may_mute": request.user.has_perm("rsmq_pipeline.mute_failuregroup"),
            **self.freshness(),
        }
        return self.own_page(request, "history/failures.html", context)

    def _mute(self, request: HttpRequest) -> HttpResponse:
        """Mute a group, or show it again."""
        if not request.user.has_perm("rsmq_pipeline.mute_failuregroup"):
            raise PermissionDenied
        fingerprint = request.POST.get("fingerprint", "")
        here = HttpResponseRedirect(request.get_full_path())
        row = FailureGroup.objects.filter(fingerprint=fingerprint).order_by("-day").first()
        if row is None:
            self.tell(request, _("This failure group no longer exists."), is_good=False)
            return here
        if is_muted := request.POST["mute"] == "yes":
            by = request.user.get_username()
            MutedFailure.objects.get_or_create(fingerprint=fingerprint, defaults={"muted_by": by})
        else:
            MutedFailure.objects.filter(fingerprint=fingerprint).delete()
        text = _("Muted %(group)s") if is_muted else _("Unmuted %(group)s")
        text %= {"group": _name_of(row)}
        self.log_change(request, row, text)
        self.tell(request, f"{text}.")
        return here

    def _redrive(self, request: HttpRequest) -> HttpResponse:
        if not request.user.has_perm("rsmq.redrive_message"):
            raise PermissionDenied
        here = reverse("admin:rsmq_pipeline_failuregroup_changelist", current_app=self.admin_site.name)
        fingerprint = request.POST.get("fingerprint", "")
        found = history.failure_groups(fingerprint=fingerprint) if fingerprint else []
        if not found:
            self.tell(request, _("This failure group no longer exists."), is_good=False)
            return HttpResponseRedirect(here)
        is_sure = bool(request.POST.get("post"))
        try:
            done = self._replayed(fingerprint, dry_run=not is_sure)
        except (ImportError, ImproperlyConfigured, OSError):
            text = _("The archive cannot be read here. Where the pipeline runs: rsmq_pipeline replay %(group)s --yes")
            self.tell(request, text % {"group": visible(fingerprint)}, is_good=False)
            return HttpResponseRedirect(here)
        if not is_sure:
            context = {
                "title": _("Retry"),
                "group": found[0],
                "question": question("redrive", sum(done.moved.values()), _name_of(found[0])),
                # A Counter has a value for any name, so a template cannot access its items.
                "moved": sorted(done.moved.items()),
                "help": _("Up to %(most)s at a time.") % {"most": MOST_REDRIVEN},
                "url": here,
                "hidden": [("fingerprint", found[0].fingerprint), ("post", "yes")],
                "back": here,
            }
            return self.own_page(request, "history/redrive.html", context)
        moved, name = sum(done.moved.values()), _name_of(found[0])
        if moved:
            text = _("Retried %(count)d dead letters of %(group)s") % {"count": moved, "group": name}
            row = FailureGroup.objects.filter(fingerprint=fingerprint).order_by("-day").first()
            assert row is not None, "it was found a moment ago"
            self.log_change(request, row, text)
        text = ngettext("%d dead letter was retried.", "%d dead letters were retried.", moved) % moved
        stayed = sum(done.stayed.values())
        rest = _("%d not retried: deleted, received or moved meanwhile.") % stayed if stayed else ""
        self.tell(request, f"{name}: {text} {rest}".strip())
        return HttpResponseRedirect(here)

    @staticmethod
    def _replayed(fingerprint: str, *, dry_run: bool) -> Any:
        # Imported here, because it needs packages that only machines of the pipeline have.
        from .config import find_lake
        from .replay import replay

        return replay(find_lake(), fingerprint, dry_run=dry_run, limit=MOST_REDRIVEN)


def _name_of(group: history.FailureSummary | FailureGroup) -> str:
    """Return the task and the class of the exception of a group."""
    return ", ".join(visible(part) for part in (group.task, group.error_type.rpartition(".")[2]) if part)


def _days_of(span: str) -> list[dt.date]:
    """Return the days of UTC of a period, today last."""
    today = utc(timezone.now()).date()
    return [today - dt.timedelta(days=back) for back in reversed(range(SPANS[span][0]))]


def _trend(group: history.FailureSummary, days: Sequence[dt.date]) -> Any:
    """Return the failures by day as a tiny chart."""
    counts = [group.by_day.get(day, 0) for day in days]
    newest = ngettext("%(n)s failure on the last day", "%(n)s failures on the last day", counts[-1])
    return sparkline(counts, newest % {"n": as_number(counts[-1])})


def _dead_letters_url(page: HistoryAdmin, queue: str) -> str:
    """Return the address of the dead letters of a queue, by failure; "" without one."""
    settings = get_settings().queues.get(queue)
    if settings is None or settings.dead_letter is None:
        return ""
    return page.address("queue_failures", settings.dead_letter)
