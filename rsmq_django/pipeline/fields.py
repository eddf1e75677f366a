"""Columns of the tables: histograms as short texts, and times in UTC."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Max, Min, QuerySet
from django.db.models.functions import Trunc
from django.utils import timezone

if TYPE_CHECKING:
    _DateTimeField = models.DateTimeField[dt.datetime, dt.datetime]
    _TextField = models.TextField[Any, dict[int, int]]
else:
    _DateTimeField = models.DateTimeField
    _TextField = models.TextField


class UtcField(_DateTimeField):
    """A time in UTC, aware with and without USE_TZ: two hours of a year have the same local time without a zone.

    Databases without time zones store UTC. A time without a zone is local, as in any other column.
    """

    if TYPE_CHECKING:
        _pyi_private_set_type: Any
        _pyi_private_get_type: Any

    def get_prep_value(self, value: Any) -> Any:
        """Return the time in UTC."""
        value = super().get_prep_value(value)
        return value if value is None else utc(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """Return the time as the database takes it."""
        value = value if prepared else self.get_prep_value(value)
        if value is not None and connection.vendor != "postgresql":
            value = value.replace(tzinfo=None)
        return connection.ops.adapt_datetimefield_value(value)

    def from_db_value(self, value: dt.datetime | None, expression: Any, connection: Any) -> dt.datetime | None:
        """Return the time in UTC. Of local times of PostgreSQL, `fold` tells which one of two it is."""
        if value is None or connection.vendor == "postgresql":
            return value and utc(value)
        return value.replace(tzinfo=dt.UTC)


def utc(when: dt.datetime) -> dt.datetime:
    """Return a time in UTC; one without a zone is local."""
    return (timezone.make_aware(when) if timezone.is_naive(when) else when).astimezone(dt.UTC)


class LocalDays(QuerySet[Any]):
    """Rows whose days, months and years are local with and without USE_TZ: the date hierarchy of a list has them.

    Without USE_TZ, Django would count those of the stored times, which are UTC in databases without time zones.
    """

    def datetimes(self, field_name: str, kind: str, order: str = "ASC", tzinfo: Any = None) -> Any:
        """Return the days with rows, or the first days of the months or years with rows."""
        # A stored day is a part of two local days, so its ends are in all of them.
        days = self.annotate(stored_day=Trunc(field_name, "day", output_field=models.DateTimeField()))
        ends = days.order_by().values("stored_day").annotate(first=Min(field_name), last=Max(field_name))
        local = [timezone.localtime(at) for row in ends for at in (row["first"], row["last"])]
        begins = {dt.date(at.year, 1 if kind == "year" else at.month, at.day if kind == "day" else 1) for at in local}
        return sorted(begins, reverse=order == "DESC")


class HistogramField(_TextField):
    """Counts by bucket, {500: 12, 502: 3}, as "500:12,,3": the first bucket, and all counts from there on; no zeros.

    Reads the JSON of earlier versions, too.
    """

    if TYPE_CHECKING:
        _pyi_private_set_type: Any
        _pyi_private_get_type: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"default": dict})

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> dict[int, int]:
        """Return the counts by bucket."""
        return decode(value or "")

    def get_prep_value(self, value: Any) -> Any:
        """Return the text."""
        return encode(value) if isinstance(value, Mapping) else value


def encode(counts: Mapping[Any, int]) -> str:
    """Return the text of a histogram, whose buckets may be texts."""
    numbers = {int(bucket): count for bucket, count in counts.items() if count}
    if not numbers:
        return ""
    first = min(numbers)
    return f"{first}:" + ",".join(str(numbers.get(bucket, "")) for bucket in range(first, max(numbers) + 1))


def decode(text: str) -> dict[int, int]:
    """Return the counts of a text."""
    first, counts = numbers_of(text)
    return {bucket: count for bucket, count in enumerate(counts, first) if count}


def numbers_of(text: str) -> tuple[int, list[int]]:
    """Return the first bucket of a text, and all counts from there on."""
    if text.startswith("{"):
        text = encode(json.loads(text))
    first, _, counts = text.partition(":")
    if not counts:
        return 0, []
    # Twice, because each replacement ends at a comma that the next one would begin with.
    return int(first), list(map(int, counts.replace(",,", ",0,").replace(",,", ",0,").split(",")))
