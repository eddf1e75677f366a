"""What the pages of the history share: a stock list over tables, and periods."""

from __future__ import annotations

from functools import wraps
from typing import Any
from urllib.parse import quote

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..admin.formats import local_text
from ..admin.run_filters import known_fields
from ..admin.site import LiveAdmin, PlainChangeList, View
from . import history
from .charts import DEFAULT_SPAN, SPANS
from .models import NAME_LENGTH

#: Longest lists of names to choose from.
MOST_CHOICES = 500


class FilterForm(forms.Form):
    """A form above a list, whose fields are columns: Django's filters would be below the rows in most windows."""

    def __init__(self, request: HttpRequest, model: type[models.Model]) -> None:
        super().__init__(request.GET)
        self.others = [(name, value) for name, value in request.GET.items() if name not in (*self.fields, "p")]
        for name, field in self.fields.items():
            if isinstance(field, forms.ChoiceField):
                values = model._default_manager.order_by(name).values_list(name, flat=True).distinct()
                field.choices = [("", _("Any")), *((str(value), self.shown(str(value))) for value in values)]

    def shown(self, value: str) -> str:
        """Return how a value to choose is written."""
        return value

    def asked(self) -> dict[str, str]:
        """Return the columns with their values; fields that cannot be understood are left out."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}


class QueueForm(FilterForm):
    """The filter of lists with a queue in each row. The browser offers names."""

    queue = forms.CharField(
        label=gettext_lazy("Queue"),
        required=False,
        max_length=NAME_LENGTH,
        widget=forms.TextInput(attrs={"list": "rsmq-queues"}),
    )


class HistoryAdmin(LiveAdmin):
    """Base class for tables that only the pipeline writes."""

    is_live = False
    change_list_template = "admin/rsmq/history/list.html"
    #: The filters of a stock list.
    filter_form: type[FilterForm] | None = None

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return a stock list: these have tables."""
        return PlainChangeList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the list below its filters."""
        if self.filter_form is None:
            return super().changelist_view(request, extra_context)
        context: dict[str, Any] = {"form": self.filter_form(request, self.model)}
        if "queue" in self.filter_form.base_fields:
            names = self.model._default_manager.order_by("queue").values_list("queue", flat=True).distinct()
            context["queue_names"] = names[:MOST_CHOICES]
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Return the fields of the form above the list, and the period of its charts."""
        if self.filter_form is None:
            return super().get_list_filter(request)
        return known_fields(["span", *self.filter_form.base_fields])

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return the rows that the form above the list asks for."""
        rows = super().get_queryset(request)
        if self.filter_form is None or not {*request.GET} & {*self.filter_form.base_fields}:
            return rows
        return rows.filter(**self.filter_form(request, self.model).asked())

    def get_urls(self) -> list[URLPattern]:
        """Return all URLs; they read zero bytes, which PostgreSQL refuses in a query, as publishing stores them."""
        urls = super().get_urls()
        for url in urls:
            url.callback = _without_zero_bytes(url.callback)
        return urls

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of a row; times and numbers are written as in lists."""
        sets = super().get_fieldsets(request, obj)
        return [(name, {**options, "fields": [*map(self._formatted, options["fields"])]}) for name, options in sets]

    @admin.display(description=gettext_lazy("day (UTC)"), ordering="day")
    def utc_day(self, row: Any) -> str:
        """Return the day of a row; days are those of UTC in any time zone."""
        return f"{row.day:%Y-%m-%d}"

    def _formatted(self, column: Any) -> Any:
        return super()._formatted("utc_day" if column == "day" else column)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        """Search in columns."""
        return admin.ModelAdmin.get_search_results(self, request, queryset, search_term)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: the pipeline deletes old rows."""
        return False

    def demand_view(self, request: HttpRequest) -> None:
        """Raise PermissionDenied unless the user has the view permission."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def freshness(self) -> dict[str, Any]:
        """Return how old the history is."""
        found = history.freshness()
        return {"freshness": found, "newest_hour": found.newest_hour and local_text(found.newest_hour, "Y-m-d H:i")}


def _without_zero_bytes(view: View) -> View:
    @wraps(view)
    def cleaned(request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        for name in ("GET", "POST"):
            given = getattr(request, name).urlencode()
            if "%00" in given:
                setattr(request, name, QueryDict(given.replace("%00", quote("\ufffd"))))
        return view(request, *args, **kwargs)

    return cleaned


def span_of(request: HttpRequest) -> str:
    """Return the chosen period."""
    span = request.GET.get("span", "")
    return span if span in SPANS else DEFAULT_SPAN


def span_links(request: HttpRequest, *, is_chosen: bool = True) -> list[tuple[str, str, bool]]:
    """Return the label and the query of each period, and whether it is chosen."""
    labels = {"2d": _("2 days"), "2w": _("2 weeks"), "12w": _("12 weeks"), "52w": _("1 year")}
    links = []
    for span, label in labels.items():
        query = request.GET.copy()
        query["span"] = span
        for name in ("since", "until"):  # of a range in place of a period
            query.pop(name, None)
        links.append((label, f"?{query.urlencode()}", is_chosen and span == span_of(request)))
    return links
