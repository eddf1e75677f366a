"""The state of the installation as one line.

"1.0 M ready, oldest 36 min (no worker on mega) · 532 dead letters in 6 kinds · 0 workers": the admin makes links of its
parts, `rsmq_doctor` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core.doctor.service import duration
from .installation import Installation
from .places import QueueRef
from .texts import visible

#: Beyond this, queues are counted rather than named.
MOST_NAMES = 2
NEXT = " · "


@dataclass(frozen=True, slots=True)
class StatePart:
    """A part of the line."""

    #: Its subject: ready, oldest, dead, workers, unknown, or the id of a trouble.
    about: str
    text: str
    #: The queues that it names; empty for all of them.
    places: tuple[QueueRef, ...] = ()
    #: The text before and after it.
    before: str = NEXT
    behind: str = ""


def as_text(parts: Sequence[StatePart]) -> str:
    """Return the line as plain text."""
    return "".join(f"{part.before}{part.text}{part.behind}" for part in parts).removeprefix(NEXT)


def parts_of(state: Installation) -> list[StatePart]:
    """Return the parts of the line."""
    unknown = [StatePart("unknown", _why_unknown(state, alias) % {"alias": alias}) for alias in state.unknown]
    return [*_backlog(state), *_failures(state), _workers(state), *unknown] if state.is_known else unknown


def _why_unknown(state: Installation, alias: str) -> str:
    if alias in state.denied_by_sentinels:
        return _("the sentinels of the connection “%(alias)s” deny access")
    if alias in state.denied:
        return _("the Redis user of the connection “%(alias)s” has no permission")
    return _("the connection “%(alias)s” does not answer")


def _backlog(state: Installation) -> Iterator[StatePart]:
    yield StatePart("ready", _("%(count)s ready") % {"count": short_number(state.ready)})
    if state.oldest is not None:
        text = _("oldest %(duration)s") % {"duration": duration(state.oldest_s)}
        yield StatePart("oldest", text, (state.oldest,), before=", ")
    unserved = state.queues_with("unserved")
    without_worker = frozenset(unserved)
    late = [place for place in state.queues_with("late") if place not in without_worker]
    notes = [
        note
        for note in (
            _about("unserved", _("no worker on %(queues)s"), unserved),
            _about("late", _("older than its target: %(queues)s"), late),
            _about("paused-backlog", _("paused: %(queues)s"), state.queues_with("paused-backlog")),
        )
        if note is not None
    ]
    for number, note in enumerate(notes):
        is_last = number == len(notes) - 1
        yield replace(note, before="; " if number else " (", behind=")" if is_last else "")


def _failures(state: Installation) -> Iterator[StatePart]:
    text = ngettext("%(count)s dead letter", "%(count)s dead letters", state.dead)
    text %= {"count": short_number(state.dead)}
    if state.dead:
        kinds = ngettext("in %(count)s kind", "in %(count)s kinds", state.kinds)
        text = f"{text} {kinds % {'count': f'{state.kinds}+' if state.are_more_kinds else state.kinds}}"
    yield StatePart("dead-letters", text, tuple(state.queues_with("dead-letters")))
    failing = _about("failing", _("failing: %(queues)s"), state.queues_with("failing"))
    if failing is not None:
        yield failing


def _workers(state: Installation) -> StatePart:
    text = ngettext("%(count)s worker", "%(count)s workers", state.workers)
    return StatePart("workers", text % {"count": short_number(state.workers)})


def _about(trouble_id: str, text: str, places: Sequence[QueueRef]) -> StatePart | None:
    if not places:
        return None
    names = ", ".join(place.with_shard(visible(place.name)) for place in places)
    if len(places) > MOST_NAMES:
        names = _("%(count)s queues") % {"count": short_number(len(places))}
    return StatePart(trouble_id, text % {"queues": names}, tuple(places))


def short_number(number: int) -> str:
    """Return "532", "12,345" or "1.0 M"."""
    if number < 1_000_000:
        return str(number_format(number, use_l10n=True, force_grouping=True))
    return f"{number_format(number / 1e6, 1, use_l10n=True, force_grouping=True)} M"
