"""The field of a time in a filter: written in the time zone that Django shows, understood with any offset."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.dateparse import parse_datetime

FIRST, LAST = dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)


class TimeField(forms.DateTimeField):
    """A time, aware and in UTC, with and without USE_TZ.

    Without an offset it is of the current time zone. Of two times that clocks show twice it is the first, or with
    `is_end` the last: so a range has both.
    """

    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "step": 1}, format="%Y-%m-%dT%H:%M:%S")

    def __init__(self, *, is_end: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.is_end = is_end

    def to_python(self, value: Any) -> dt.datetime | None:
        """Return the time."""
        if value in self.empty_values:
            return None
        try:
            found = _parsed(value)
        except ValueError:  # the 31st of February
            found = None
        if found is None:
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid")
        if timezone.is_naive(found):
            found = found.replace(tzinfo=timezone.get_current_timezone(), fold=int(self.is_end))
        try:
            return found.astimezone(dt.UTC)
        except OverflowError:  # the first or the last day of all
            return LAST if found.year > dt.MINYEAR else FIRST

    def prepare_value(self, value: Any) -> Any:
        """Return what the field shows: a time with an offset, as links have it, is written without one."""
        try:
            found = _parsed(value)
            return value if found is None or timezone.is_naive(found) else timezone.make_naive(found)
        except (ValueError, OverflowError):
            return value


def _parsed(value: Any) -> dt.datetime | None:
    return value if isinstance(value, dt.datetime) else parse_datetime(str(value or "").strip())
