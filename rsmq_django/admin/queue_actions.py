"""Pausing, resuming and purging several queues at once: confirmed with their names and counts, and logged.

All queues of one connection are paused or resumed by one script. Purging is one script for each queue, so a queue is
emptied as a whole or not at all; a queue that received messages after the confirmation page was shown is not
changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django import forms
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..conf.settings import get_settings
from ..core.errors import InvalidName, QueueNotFound, RsmqError
from ..core.limits import MAX_BATCH
from ..core.queue import moves
from ..core.queue.pause import pause, resume
from ..live.places import QueueRef, by_client
from ..models import Queue
from .components.operations import Operation, action_for, by_name
from .formats import as_number, short_list
from .logs import log, user_id
from .site import LiveAdmin

#: The word to type before queues are purged.
PURGE_WORD = "purge"


class SelectionForm(forms.Form):
    """The queues of a question, and how many messages each had been sent."""

    queues = forms.JSONField(widget=forms.HiddenInput)
    word = forms.CharField(
        label=gettext_lazy("Type “purge” to confirm"), widget=forms.TextInput(attrs={"autocomplete": "off"})
    )

    def __init__(self, operation: Operation, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if operation.name != "purge":
            del self.fields["word"]

    def clean_queues(self) -> dict[str, int]:
        """Return key -> number of messages sent. Raises ValidationError for anything else."""
        found = self.cleaned_data["queues"]
        if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
            raise forms.ValidationError(_("This page has expired or was changed. Start again."))
        return found

    def clean_word(self) -> str:
        """Return the word. Raises ValidationError for another one."""
        if self.cleaned_data["word"].strip().lower() != PURGE_WORD:
            raise forms.ValidationError(_("Type “purge” to continue."))
        return PURGE_WORD


def bulk_view(model_admin: LiveAdmin, request: HttpRequest) -> HttpResponse:
    """Carry out the confirmed operation; POST only."""
    operation = OPERATIONS.get(request.POST.get("action", ""))
    if operation is None:
        raise Http404
    model_admin.demand(request, operation.codename)
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    form = SelectionForm(operation, request.POST)
    is_valid = form.is_valid()
    seen = form.cleaned_data.get("queues", {})
    found = {row.key: row for row in Queue.objects.filter(pk__in=list(seen))}
    rows = _concerned(operation, [found[key] for key in seen if key in found])
    if not is_valid:
        return _ask(model_admin, request, operation, rows, form)
    operation.carry_out(model_admin, request, [row for row in rows if _is_ours(row)], seen)
    return HttpResponseRedirect(model_admin.address("queue_changelist"))


def _ask(
    model_admin: LiveAdmin, request: HttpRequest, operation: Operation, selected: Iterable[Queue], form: Any = None
) -> HttpResponse:
    rows = _concerned(operation, selected)
    seen = {row.key: row.total_sent for row in rows}
    count = sum(row.messages for row in rows)
    about = {
        "purge": ngettext(
            "This removes %(count)s message, even if it is delayed or in flight. "
            "The queues are kept. A queue that receives new messages meanwhile is not changed.",
            "This removes all %(count)s messages, including delayed messages and messages in flight. "
            "The queues are kept. A queue that receives new messages meanwhile is not changed.",
            count,
        )
        % {"count": as_number(count)},
        "pause": _(
            "Workers stop receiving messages from these queues. "
            "Running tasks finish, and new messages can still be sent."
        ),
    }
    context = {
        "title": _("Are you sure?"),
        "about": about.get(operation.name, ""),
        "url": model_admin.address("queue_bulk"),
        "is_dangerous": operation.is_dangerous,
        "question": f"{operation.question(len(rows))}: {short_list([str(row) for row in rows])}",
        "rows": [(row, _is_ours(row)) for row in rows],
        "form": form or SelectionForm(operation, initial={"queues": seen}),
        "hidden": [("action", operation.name), ("queues", json.dumps(seen))],
        "back": model_admin.address("queue_changelist"),
    }
    return model_admin.own_page(request, "queue/ask_bulk.html", context)


def _concerned(operation: Operation, selected: Iterable[Queue]) -> list[Queue]:
    """Return the queues that an operation is about: a priority band is paused with its whole queue."""
    rows = list(selected)
    if operation.codename != "pause_queue":
        return rows
    keys = {row.key: whole_queue(row.place).key for row in rows}
    found = {row.key: row for row in [*rows, *Queue.objects.filter(pk__in=sorted({*keys.values()} - keys.keys()))]}
    return list({row.key: row for row in (found.get(keys[each.key], each) for each in rows)}.values())


def whole_queue(place: QueueRef) -> QueueRef:
    """Return the queue whose priority band or lane this is; any other queue is itself."""
    return QueueRef(place.alias, get_settings().base_name(place.name)) if place.is_configured else place


def _is_ours(row: Queue) -> bool:
    """Return whether the name is valid in this project: other queues are not changed."""
    try:
        row.place.queue()
    except InvalidName:
        return False
    return not row.is_broken


def _set_paused(model_admin: LiveAdmin, request: HttpRequest, rows: Sequence[Queue], *, is_pause: bool) -> None:
    changed = [row for row in rows if row.is_paused != is_pause]
    by_place = {whole_queue(row.place): row for row in changed}
    text, done = _("Paused") if is_pause else _("Resumed"), list[Queue]()
    try:
        for group in by_client(by_place).values():
            client = group[0].client
            for at in range(0, len(group), MAX_BATCH):
                part = group[at : at + MAX_BATCH]
                client.run((pause if is_pause else resume)(client.namespace, *(place.name for place in part)))
                # Now, because the next connection may not answer.
                rows_of_part = [by_place[place] for place in part]
                LogEntry.objects.log_actions(user_id(request), rows_of_part, CHANGE, change_message=text)
                done += rows_of_part
    except RsmqError:
        if done:
            _tell_paused(model_admin, request, done, is_pause=is_pause)
        raise
    _tell_paused(model_admin, request, changed, is_pause=is_pause)


def _tell_paused(model_admin: LiveAdmin, request: HttpRequest, changed: Sequence[Queue], *, is_pause: bool) -> None:
    n = len(changed)
    told = (
        ngettext("%(count)s queue is paused", "%(count)s queues are paused", n)
        if is_pause
        else ngettext("%(count)s queue is resumed", "%(count)s queues are resumed", n)
    )
    _tell(model_admin, request, told % {"count": as_number(n)}, changed)


def _pause(model_admin: LiveAdmin, request: HttpRequest, rows: list[Queue], seen: Mapping[str, int]) -> None:
    _set_paused(model_admin, request, rows, is_pause=True)


def _resume(model_admin: LiveAdmin, request: HttpRequest, rows: list[Queue], seen: Mapping[str, int]) -> None:
    _set_paused(model_admin, request, rows, is_pause=False)


def _purge(model_admin: LiveAdmin, request: HttpRequest, rows: list[Queue], seen: Mapping[str, int]) -> None:
    purged, left, count = [], [], 0
    try:
        for row in rows:
            try:
                removed = moves.purge_as_seen(row.place.client, row.name, seen[row.key])
            except QueueNotFound:
                continue
            if removed is None:
                left.append(row)
                continue
            purged.append(row)
            count += removed
            log(request, row, purged_text(removed))
    except RsmqError:  # the server went away in between; of the queue that it was at, the outcome is not known
        if purged:
            _tell_removed(model_admin, request, count, purged)
        raise
    _tell_removed(model_admin, request, count, purged)
    if left:
        text = _("Not changed, because messages were sent after this page was shown")
        _tell(model_admin, request, text, left, is_good=False)


def purged_text(removed: int) -> str:
    """Return the entry in the log of the admin."""
    return ngettext("Purged %(count)s message", "Purged %(count)s messages", removed) % {"count": as_number(removed)}


def _tell_removed(model_admin: LiveAdmin, request: HttpRequest, count: int, purged: Sequence[Queue]) -> None:
    text = ngettext("%(count)s message was removed", "%(count)s messages were removed", count)
    _tell(model_admin, request, text % {"count": as_number(count)}, purged)


def _tell(
    model_admin: LiveAdmin, request: HttpRequest, text: str, rows: Sequence[Queue], *, is_good: bool = True
) -> None:
    names = short_list([str(row) for row in rows])
    model_admin.tell(request, f"{text}: {names}" if names else f"{text}.", is_good=is_good and bool(rows))


OPERATIONS = by_name(
    Operation(
        "pause",
        "pause_queue",
        gettext_lazy("Pause…"),
        _pause,
        question=lambda n: ngettext("Pause %(count)s queue", "Pause %(count)s queues", n) % {"count": as_number(n)},
    ),
    Operation(
        "resume",
        "pause_queue",
        gettext_lazy("Resume…"),
        _resume,
        question=lambda n: ngettext("Resume %(count)s queue", "Resume %(count)s queues", n) % {"count": as_number(n)},
    ),
    Operation(
        "purge",
        "purge_queue",
        gettext_lazy("Purge…"),
        _purge,
        is_dangerous=True,
        question=lambda n: ngettext("Purge %(count)s queue", "Purge %(count)s queues", n) % {"count": as_number(n)},
    ),
)
ACTIONS = tuple(action_for(each, _ask, f"{each.name}_selected") for each in OPERATIONS.values())
