"""Numbers, times and texts of other people, as they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..live.texts import visible

__all__ = ["as_duration", "as_rate", "as_size", "one_line", "reason_of", "relative", "short_list", "visible"]


def one_line(text: str, longest: int = 120) -> str:
    """Return the beginning of a text on one line."""
    line = visible(" ".join(text[: 2 * longest].split()))
    return line if len(line) <= longest and len(text) <= 2 * longest else line[:longest] + "…"


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
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def as_duration(seconds: float | None, *, units: int = 2) -> str:
    """Return "3 min 20 s", in at most so many units."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    parts, rest = [], int(seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:units])


def as_rate(per_minute: float | None) -> str:
    """Return "0.3", "12" or "4.5k"."""
    if per_minute is None:
        return "-"
    if per_minute >= 1000:
        return f"{per_minute / 1000:.1f}k"
    return f"{per_minute:.0f}" if per_minute >= 10 or per_minute == 0 else f"{per_minute:.1f}"


def relative(then_ms: float, now_ms: float) -> str:
    """Return "3 min ago" or "in 29 s"."""
    seconds = (then_ms - now_ms) / 1000
    duration = as_duration(abs(seconds), units=1)
    if seconds > 0:
        return _("in %(duration)s") % {"duration": duration}
    return _("%(duration)s ago") % {"duration": duration}
