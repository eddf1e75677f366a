"""When a schedule is due, in words: "weekdays at 03:30, Europe/Berlin". Uncommon expressions are shown as they are.

Only forms whose words say exactly what the expression says have words: "*/7" begins anew each hour, so it has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.dates import MONTHS
from django.utils.text import get_text_list
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..conf.timetable import Cron, Every, Timetable, in_words
from .formats import visible

#: More times of day than this are not listed.
MAX_TIMES = 4
WEEKDAYS: Sequence[Any] = (
    gettext_lazy("Sundays"),
    gettext_lazy("Mondays"),
    gettext_lazy("Tuesdays"),
    gettext_lazy("Wednesdays"),
    gettext_lazy("Thursdays"),
    gettext_lazy("Fridays"),
    gettext_lazy("Saturdays"),
)
_WEEKDAY_NAMES = {name: number for number, name in enumerate("SUN MON TUE WED THU FRI SAT".split())}
_MONTH_NAMES = {
    name: number for number, name in enumerate("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(), start=1)
}
_PART = re.compile(r"(\w+)(?:-(\w+))?\Z", re.ASCII)
_STEP = re.compile(r"\*/(\d{1,2})\Z", re.ASCII)


def words_of(timetable: Timetable) -> str:
    """Return when a schedule is due; the expression itself where there are no words for it."""
    if isinstance(timetable, Every):
        return _("every %(period)s") % {"period": in_words(timetable.period_ms / 1000)}
    if not isinstance(timetable, Cron):
        return str(timetable)
    said = cron_in_words(timetable.expression)
    return f"{said or visible(timetable.expression)}, {visible(timetable.zone)}"


def cron_in_words(expression: str) -> str:
    """Return a cron expression in words, "" when it cannot be put into words."""
    fields = expression.upper().split()
    if len(fields) == 6:
        if fields[0] != "0":
            return _every_seconds(fields)
        fields = fields[1:]
    if len(fields) != 5:
        return ""
    minute, hour, day, month, weekday = fields
    days, months = _days(day, weekday), _months(month)
    if days is None or months is None:
        return ""
    times = _times(minute, hour)
    if times:
        at = {"days": days or _("daily"), "times": get_text_list(times, _("and"))}
        return ", ".join(part for part in (_("%(days)s at %(times)s") % at, months) if part)
    interval = _interval(minute, hour)
    return ", ".join(part for part in (interval, days, months) if part) if interval else ""


def _every_seconds(fields: Sequence[str]) -> str:
    if fields[1:] != ["*"] * 5:
        return ""
    step = 1 if fields[0] == "*" else _step(fields[0], 60)
    if step == 1:
        return _("every second")
    return _("every %(n)d seconds") % {"n": step} if step else ""


def _times(minute: str, hour: str) -> list[str]:
    """Return the times of day: "03:30"; an empty list when there are too many."""
    minutes, hours = _numbers(minute, {}, 0, 59), _numbers(hour, {}, 0, 23)
    if not minutes or not hours or len(minutes) * len(hours) > MAX_TIMES:
        return []
    return [f"{h:02}:{m:02}" for h in hours for m in minutes]


def _interval(minute: str, hour: str) -> str:
    """Return how often it is due within a day; "" when that is not the same distance each time."""
    if minute == "*" or minute.startswith("*/"):
        step = 1 if minute == "*" else _step(minute, 60)
        if not step:
            return ""
        said = _("every minute") if step == 1 else _("every %(n)d minutes") % {"n": step}
        return said if hour == "*" else _between(said, hour)
    minutes = _numbers(minute, {}, 0, 59)
    if len(minutes) != 1 or not (hour == "*" or hour.startswith("*/")):
        return ""
    step = 1 if hour == "*" else _step(hour, 24)
    if step == 1:
        return _("every hour at minute %(minute)d") % {"minute": minutes[0]}
    return _("every %(n)d hours at minute %(minute)d") % {"n": step, "minute": minutes[0]} if step else ""


def _between(said: str, hour: str) -> str:
    hours = _numbers(hour, {}, 0, 23)
    if not hours or hours != list(range(hours[0], hours[-1] + 1)):
        return ""
    return _("%(interval)s from %(first)s to %(last)s") % {
        "interval": said,
        "first": f"{hours[0]:02}:00",
        "last": f"{hours[-1]:02}:59",
    }


def _days(day: str, weekday: str) -> str | None:
    """Return the days, "" for all; None when there are no words for them."""
    if day != "*" and weekday != "*":
        return None  # either of them is enough
    if day == "*":
        return "" if weekday == "*" else _weekdays(weekday)
    if day == "L":
        return _("on the last day of each month")
    numbers = _numbers(day, {}, 1, 31)
    if not numbers or len(numbers) > MAX_TIMES:
        return None
    listed = get_text_list([str(number) for number in numbers], _("and"))
    return ngettext("on day %(days)s of each month", "on days %(days)s of each month", len(numbers)) % {"days": listed}


def _weekdays(weekday: str) -> str | None:
    days = sorted({number % 7 for number in _numbers(weekday, _WEEKDAY_NAMES, 0, 7)})
    if not days:
        return None
    if days == [1, 2, 3, 4, 5]:
        return _("weekdays")
    if days == [0, 6]:
        return _("weekends")
    if len(days) == 7:
        return ""
    # Weeks begin on Monday.
    return get_text_list([str(WEEKDAYS[number]) for number in sorted(days, key=lambda each: (each - 1) % 7)], _("and"))


def _months(month: str) -> str | None:
    if month == "*":
        return ""
    numbers = _numbers(month, _MONTH_NAMES, 1, 12)
    if not numbers:
        return None
    return _("in %(months)s") % {"months": get_text_list([str(MONTHS[number]) for number in numbers], _("and"))}


def _step(text: str, whole: int) -> int:
    """Return the step of "*/15" when it divides the whole, so that all distances are equal; else 0."""
    match = _STEP.match(text)
    step = int(match[1]) if match else 0
    return step if step and whole % step == 0 else 0


def _numbers(text: str, names: Mapping[str, int], least: int, most: int) -> list[int]:
    """Return the numbers of a list such as "1-5,7" or "MON,WED"; none for anything else."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part)
        ends = [_number(word, names) for word in (match[1], match[2] or match[1])] if match else [None, None]
        first, last = ends
        if first is None or last is None or not least <= first <= last <= most:
            return []
        found.update(range(first, last + 1))
    return sorted(found)


def _number(word: str, names: Mapping[str, int]) -> int | None:
    return int(word) if word.isdecimal() and len(word) < 3 else names.get(word)
