"""Operations on one or more messages: confirmed, checked for changes since the page was shown, and logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from ..core.errors import RsmqError
from ..core.queue.transfers import GONE, TAKEN, Tally
from ..live.places import QueueRef, message_place_of
from ..models import Message
from . import bulk_pages, message_list
from .components.operations import Operation
from .forms import ParametersForm
from .naming import answer, names_of, question
from .operations import as_seen, sentence_of
from .site import explanation_of

if TYPE_CHECKING:
    from .site import LiveAdmin


def operate_on_selected(
    model_admin: LiveAdmin, request: HttpRequest, operation: Operation, queryset: Any
) -> HttpResponse | None:
    """Do an operation to the selected rows, after asking for what it needs."""
    if request.POST.get("select_across") == "1":
        return _operate_on_all(model_admin, request, operation, queryset)
    keys = request.POST.getlist(ACTION_CHECKBOX_NAME)
    is_asked = "post" in request.POST
    form = ParametersForm(operation, request.POST if is_asked else None)
    if operation.has_question and not (is_asked and form.is_valid()):
        return ask(model_admin, request, operation, queryset, form)
    params = form.cleaned_data if operation.has_question else {}
    operate(model_admin, request, operation, queryset, keys, params)
    return None


def _operate_on_all(
    model_admin: LiveAdmin, request: HttpRequest, operation: Operation, queryset: Any
) -> HttpResponse | None:
    job = bulk_pages.job_of_selection(request, operation, queryset.selection)
    if job is None:
        text = _("Choose a queue first: “all messages” means all messages of one queue.")
        if bulk_pages.has_more(queryset.selection):
            text = _("Clear the filters by task, error, tag and age first, and go to the first page of the search.")
        model_admin.tell(request, text, is_good=False)
        return None
    return bulk_pages.ask(model_admin, request, job)


def ask(
    model_admin: LiveAdmin, request: HttpRequest, operation: Operation, queryset: Any, form: forms.Form | None
) -> HttpResponse:
    """Return the question before an operation, with the form for what it needs."""
    rows = list(queryset)
    # Of a page that only asks and acts there is one without its last part.
    back = request.get_full_path().removesuffix("operate/").removesuffix("delete/")
    if not rows:  # deleted, or in another state than that of the list
        tally = Tally()
        tally.leave(TAKEN, max(1, len(request.POST.getlist(ACTION_CHECKBOX_NAME))))
        model_admin.tell(request, answer(operation.title, "", sentence_of(tally)), is_good=False)
        return HttpResponseRedirect(back)
    keys = {row.key for row in rows}
    shown = request.POST.getlist("seen") or [f"{row.receive_count} {row.key}" for row in rows]
    seen = [("seen", value) for value in shown if value.partition(" ")[2] in keys]
    context = {
        "title": _("Are you sure?") if operation.is_dangerous else operation.title,
        "forms": [form if form is not None else ParametersForm(operation)] if operation.asks else [],
        "chosen": [(_name_of(row), row.key, ACTION_CHECKBOX_NAME, row.key) for row in rows],
        "back": back,
        "hidden": [*seen, ("action", operation.name), ("post", "yes")],
        "question": question(operation.name, len(rows), names_of(rows)),
        "is_dangerous": operation.is_dangerous,
    }
    return model_admin.own_page(request, "components/ask.html", context)


def _name_of(row: Message) -> Any:
    name = message_list.what(row)
    return "" if name == "-" else name


def operate(
    model_admin: LiveAdmin,
    request: HttpRequest,
    operation: Operation,
    rows: Any,
    keys: Sequence[str],
    params: dict[str, Any],
) -> None:
    """Do an operation to messages, as they were seen, log it for each, and show the outcome on the next page."""
    model_admin.demand(request, operation.codename)
    name, seen = names_of(rows), seen_counts(request, keys)  # read before the messages are gone
    ids: list[bytes] = []
    tally, by_place, failed = Tally(moved_ids=ids), by_queue(seen), False
    tally.leave(GONE, len(seen) - sum(map(len, by_place.values())))
    for place, receive_counts in by_place.items():
        before = len(ids)
        try:
            messages = as_seen(place, receive_counts, tally)
            operation.carry_out(place, messages, params, tally)
        except RsmqError as error:
            failed = True
            model_admin.tell(request, explanation_of(error), is_good=False)
        _log(request, operation, place, ids[before:], params)
    if failed and not tally.all:
        return  # the error says it all
    is_good = not failed and not tally.stayed.total()
    model_admin.tell(request, answer(operation.title, name, sentence_of(tally, len(seen))), is_good=is_good)


def _log(request: HttpRequest, operation: Operation, place: QueueRef, ids: list[bytes], params: dict[str, Any]) -> None:
    flag = DELETION if operation.name == "delete_selected" else CHANGE
    rows = [Message(key=place.message_key(message_id)) for message_id in ids]
    user: Any = request.user
    LogEntry.objects.log_actions(user.pk, rows, flag, change_message=str(operation.logged) % params)


def seen_counts(request: HttpRequest, keys: Sequence[str]) -> dict[str, int | None]:
    """Return the receive counts that the page has shown, by message key; None for unknown counts."""
    said: dict[str, int] = {}
    for value in request.POST.getlist("seen"):
        count, _space, key = value.partition(" ")
        if count.isascii() and count.isdigit():
            said[key] = int(count)
    return {key: said.get(key) for key in keys}


def by_queue(seen: dict[str, int | None]) -> dict[QueueRef, dict[bytes, int | None]]:
    """Group the shown messages by queue: message id -> receive count. Invalid keys are left out."""
    grouped: dict[QueueRef, dict[bytes, int | None]] = {}
    for key, receive_count in seen.items():
        found = message_place_of(key)
        if found is not None:
            grouped.setdefault(found[0], {})[found[1]] = receive_count
    return grouped
