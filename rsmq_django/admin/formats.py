"""How every page writes numbers, times, durations, sizes and texts of other programs. No page formats its own."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.utils import timezone
from django.utils.formats import date_format, get_format, number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..live.texts import visible

__all__ = [
    "as_duration",
    "as_figure",
    "as_moment",
    "as_number",
    "as_rate",
    "as_run_time",
    "as_size",
    "as_time",
    "breakable",
    "days_title",
    "local",
    "local_text",
    "one_line",
    "reason_of",
    "relative",
    "short_list",
    "since",
    "times_title",
    "until",
    "visible",
]

NOTHING = SafeString("-")


def one_line(text: str, longest: int = 120) -> str:
    """Return the beginning of a text on one line."""
    line = visible(" ".join(text[: 2 * longest].split()))
    return line if len(line) <= longest and len(text) <= 2 * longest else line[:longest] + "…"


def breakable(path: str) -> SafeString:
    """Return a dotted path that a narrow column breaks after a dot or an underscore, not inside a word."""
    parts = re.findall(r"[^._]*[._]?", path)
    return format_html_join(SafeString("<wbr>"), "{}", ((part,) for part in parts if part))


#: Why a message became a dead letter, as its record says it, in words.
REASONS: Mapping[str, Any] = {
    "attempts_used_up": gettext_lazy("Retries exhausted"),
    "gave_up": gettext_lazy("Not retryable"),
    "crashed": gettext_lazy("Crashed its worker process"),
    "worker_died": gettext_lazy("Worker died"),
    "expired": gettext_lazy("Expired"),
    "cancelled": gettext_lazy("Cancelled"),
    "bad_return_value": gettext_lazy("Result cannot be stored"),
    "workflow_gone": gettext_lazy("Workflow is gone"),
    "wrong_queue": gettext_lazy("Wrong queue"),
}


def reason_of(reason: str) -> str:
    """Return why a message became a dead letter; reasons of other programs as they are."""
    return str(REASONS[reason]) if reason in REASONS else visible(reason)


def short_list(names: Sequence[str], most: int = 3) -> str:
    """Return "a, b, c and 7 more"."""
    shown = ", ".join(visible(name) for name in names[:most])
    more = len(names) - most
    return shown if more <= 0 else _("%(names)s and %(more)d more") % {"names": shown, "more": more}


def as_size(size_bytes: int | None) -> str:
    """Return "1.5 KiB"."""
    if size_bytes is None:
        return _("no body")
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{as_figure(size, '.0f' if unit == 'B' or size >= 100 else '.1f')} {unit}"
        size /= 1024
    return f"{as_figure(size, '.1f')} GiB"


def as_duration(seconds: float | None, *, units: int = 2) -> str:
    """Return "3 min 20 s", in at most N units."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{as_figure(seconds, '.1f')} s"
    parts, rest = [], int(seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:units])


def as_run_time(seconds: float | None) -> str:
    """Return "840 µs", "12.3 ms", "1.25 s" or "3 min 20 s", for what usually takes less than a few seconds."""
    if seconds is None or seconds >= 120:
        return as_duration(seconds)
    for unit, of_a_second in (("µs", 1e6), ("ms", 1e3)):
        value = float(f"{seconds * of_a_second:.3g}")
        if 0 < value < 1000:
            return f"{as_figure(value, '.3g')} {unit}"
    return f"{as_figure(seconds, '.3g')} s"


def as_rate(per_minute: float | None) -> str:
    """Return "0.3", "12" or "4,512"."""
    if per_minute is None:
        return "-"
    return as_number(round(per_minute)) if per_minute >= 10 or per_minute == 0 else as_figure(per_minute, ".1f")


def relative(then_ms: float, now_ms: float) -> str:
    """Return "3 min ago" or "in 29 s"."""
    seconds = (then_ms - now_ms) / 1000
    duration = as_duration(abs(seconds), units=1) if abs(seconds) >= 10 else f"{abs(seconds):.0f} s"
    if seconds > 0:
        return _("in %(duration)s") % {"duration": duration}
    return _("%(duration)s ago") % {"duration": duration}


def as_number(value: float | None) -> str:
    """Return "1,000,000" or "2.75", with the separators of the language; "-" for None."""
    return "-" if value is None else str(number_format(round(value, 2), force_grouping=True))


def as_figure(value: float, pattern: str) -> str:
    """Return a number in a format such as ".3g", with the decimal separator of the language."""
    return format(value, pattern).replace(".", str(get_format("DECIMAL_SEPARATOR")))


def as_time(when: datetime | None) -> str:
    """Return "2026-11-22 20:51:08 UTC", in the time zone that Django shows; "-" for None."""
    return "-" if when is None else f"{local(when):%Y-%m-%d %H:%M:%S %Z}"


def local(when: datetime) -> datetime:
    """Return a time in Django's current time zone; a time without a zone is of the default one. Ignores USE_TZ."""
    return timezone.localtime(
        timezone.make_aware(when, timezone.get_default_timezone()) if timezone.is_naive(when) else when
    )


def local_text(when: datetime, pattern: str) -> str:
    """Return a time in a format of Django, such as "H:i". A time of day that clocks repeat has its zone behind it."""
    shown = local(when)
    is_repeated = shown.replace(fold=1 - shown.fold).utcoffset() != shown.utcoffset()
    return f"{date_format(shown, pattern)} {shown:%Z}" if is_repeated else date_format(shown, pattern)


def times_title() -> str:
    """Return the title of a column or an axis of times: "Time (Europe/Berlin)"."""
    return _("Time (%(zone)s)") % {"zone": timezone.get_current_timezone_name()}


def days_title() -> str:
    """Return the title of a column or an axis of days, which are those of UTC everywhere."""
    return _("Day (UTC)")


def as_moment(when: datetime | None, now_ms: float | None = None) -> SafeString:
    """Return a time with seconds and zone, and beside it how long ago it is; "-" for None.

    `live.js` keeps the second part up to date without asking the server. `now_ms` is the clock of the server that the
    time comes from; without it, this machine's.
    """
    if when is None:
        return NOTHING
    shown = local(when)
    return format_html(
        '<time class="rsmq-time" datetime="{}"><span>{}</span> <span>{}</span></time> {}',
        shown.isoformat(timespec="seconds"),
        f"{shown:%Y-%m-%d}",
        f"{shown:%H:%M:%S %Z}",
        as_age(1000 * shown.timestamp(), now_ms),
    )


def as_age(then_ms: float, now_ms: float | None = None) -> SafeString:
    """Return "3 min ago" or "in 29 s", which `live.js` keeps up to date without asking the server."""
    shown = relative(then_ms, 1000 * time.time() if now_ms is None else now_ms)
    return format_html('<span class="rsmq-ago" data-rsmq-at="{}">{}</span>', round(then_ms), shown)


def since(seconds: float | None, now_ms: float) -> SafeString:
    """Return how long something has lasted, "36 min 10 s", which `live.js` keeps up to date; "-" for None."""
    return until(None if seconds is None else -seconds, now_ms)


def until(seconds: float | None, now_ms: float) -> SafeString:
    """Return in how long something is due, which `live.js` keeps up to date; "-" for None."""
    if seconds is None:
        return NOTHING
    shown = as_duration(abs(seconds))
    return format_html('<span data-rsmq-until="{}">{}</span>', round(now_ms + 1000 * seconds), shown)


@cache
def formatted_column(model: type[models.Model], name: str) -> Callable[[Any], str] | None:
    """Return the column of a list that shows a time or a number of the model; None for other fields."""
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    write: Callable[[Any], str]
    if isinstance(field, models.DateTimeField):
        write = as_moment
    elif isinstance(field, (models.IntegerField, models.FloatField)) and not field.choices:
        write = as_number
    else:
        return None

    @admin.display(description=field.verbose_name, ordering=name)
    def column(row: Any) -> str:
        return write(getattr(row, name))

    # The class of its cells, by which the style sheet knows it.
    column.__name__ = name
    return column
