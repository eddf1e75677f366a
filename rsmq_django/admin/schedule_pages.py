"""Adding, changing and deleting schedules at run time. Those of the code are changed where they are declared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext as _

from .. import schedules
from ..conf.schedules import Schedule as Definition
from ..core.errors import RedisFailure, RsmqError
from ..models import Schedule
from ..tasks.catalogue import known_tasks
from ..tasks.compat import InvalidTask
from .cron_words import words_of
from .formats import visible
from .logs import log
from .schedule_forms import ScheduleForm
from .site import LiveAdmin, explanation_of
from .task_forms import CallForm

#: What schedules.add() and its like raise for what cannot be done.
REFUSALS = (RsmqError, ImproperlyConfigured, InvalidTask, TypeError, ValueError)


def add_page(model_admin: LiveAdmin, request: HttpRequest) -> HttpResponse:
    """Choose a task, then say when and with which arguments it runs."""
    model_admin.demand(request, "add_schedule")
    tasks = known_tasks()
    task = tasks.get(request.GET.get("task", ""))
    back = model_admin.address("schedule_changelist")
    if task is None:
        about, nothing = _("Choose the task that the schedule runs."), _("No task is declared.")
        context = {"title": _("Add schedule"), "paths": sorted(tasks), "about": about, "nothing": nothing}
        return model_admin.own_page(request, "components/choose_task.html", context)
    data = request.POST if request.method == "POST" else None
    form, call = ScheduleForm(data), CallForm(task, data)
    if data is not None and form.is_valid() and call.is_valid():
        args, kwargs = call.arguments()
        name = form.cleaned_data["name"]
        if _carried_out(form, lambda: schedules.add(name, task, args=args, kwargs=kwargs or None, **form.options())):
            return _answer(model_admin, request, name, _("Added"), _("Schedule %(name)s was added: %(when)s."))
    return _form_page(model_admin, request, task.module_path, [form, call], title=_("Add schedule"), back=back)


def edit_page(model_admin: LiveAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Change when a schedule runs, and with which arguments; its task stays."""
    row = model_admin.row_for(request, object_id, "change_schedule", "view_body")
    back = model_admin.address("schedule_change", row.pk)
    entry: Definition | None = row.entry.schedule
    task = known_tasks().get(entry.task) if entry is not None else None
    if row.is_declared or entry is None or task is None:
        return _refused(model_admin, request, row)
    data = request.POST if request.method == "POST" else None
    seen = _digest(entry)
    form = ScheduleForm(data, schedule=entry, seen=seen)
    call = CallForm(task, data, args=entry.args, kwargs=entry.kwargs or {})
    if data is not None and form.is_valid() and call.is_valid():
        args, kwargs = call.arguments()
        options = form.options() | {"args": args, "kwargs": kwargs or None}
        if form.cleaned_data["seen"] != seen:
            form.add_error(None, _("The schedule was changed by another user. Open it again."))
        elif _carried_out(form, lambda: schedules.change_seen(row.name, entry, options)):
            names = [*form.changed_data, *(["arguments"] if call.changed_data else [])]
            logged = _("Changed: %(fields)s") % {"fields": ", ".join(names) or "-"}
            return _answer(model_admin, request, row.name, logged, _("Schedule %(name)s was changed: %(when)s."))
    title = _("Change schedule %(name)s") % {"name": visible(row.name)}
    return _form_page(
        model_admin, request, task.module_path, [form, call], title=title, back=back, trail=[(row.name, back)]
    )


def delete_page(model_admin: LiveAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Ask, then remove a schedule that was added at run time."""
    row = model_admin.row_for(request, object_id, "delete_schedule")
    if row.is_declared:
        return _refused(model_admin, request, row)
    back = model_admin.address("schedule_change", row.pk)
    shown = _digest(row.entry.schedule) if row.entry.schedule else "-"
    has_changed = request.POST.get("seen", shown) != shown
    if has_changed:
        model_admin.tell(request, _("The schedule was changed by another user. Open it again."), is_good=False)
    if has_changed or not request.POST.get("post"):
        when = words_of(row.entry.schedule.timetable) if row.entry.schedule else "-"
        question = _("Delete schedule %(name)s: %(task)s, %(when)s")
        words = {"name": visible(row.name), "task": row.task or "-", "when": when}
        context = {
            "title": _("Are you sure?"),
            "question": question % words,
            "help": _("Calls that the schedule has already sent are not deleted."),
            "hidden": [("post", "yes"), ("seen", shown)],
            "is_dangerous": True,
            "back": back,
            "trail": [(row.name, back)],
        }
        return model_admin.own_page(request, "components/ask.html", context)
    try:
        schedules.remove(row.entry.name)
    except RedisFailure:
        raise
    except RsmqError as error:
        model_admin.tell(request, visible(explanation_of(error)), is_good=False)
        return HttpResponseRedirect(back)
    log(request, row, _("Deleted"))
    model_admin.tell(request, _("Schedule %(name)s was deleted.") % {"name": visible(row.name)})
    return HttpResponseRedirect(model_admin.address("schedule_changelist"))


def _digest(entry: Definition) -> str:
    return hashlib.sha256(entry.as_json().encode()).hexdigest()[:16]


def _carried_out(form: ScheduleForm, act: Callable[[], object]) -> bool:
    """Do it and return True; or say on the form why it cannot be done."""
    try:
        act()
    except RedisFailure:
        raise
    except REFUSALS as error:
        text = explanation_of(error) if isinstance(error, RsmqError) else str(error)
        form.add_error(None, visible(text))
        return False
    return True


def _answer(model_admin: LiveAdmin, request: HttpRequest, name: str, logged: str, text: str) -> HttpResponse:
    entry = schedules.get(name)
    log(request, Schedule(name=name), logged)
    when = words_of(entry.schedule.timetable) if entry.schedule else "-"
    model_admin.tell(request, text % {"name": visible(name), "when": when})
    return HttpResponseRedirect(model_admin.address("schedule_change", name))


def _refused(model_admin: LiveAdmin, request: HttpRequest, row: Schedule) -> HttpResponse:
    text = _("Schedule %(name)s is declared in the code, or its task is not known here: change it there.")
    model_admin.tell(request, text % {"name": visible(row.name)}, is_good=False)
    return HttpResponseRedirect(model_admin.address("schedule_change", row.pk))


def _form_page(model_admin: LiveAdmin, request: HttpRequest, task: str, forms: list[Any], **words: Any) -> HttpResponse:
    about = format_html('{}: <span class="rsmq-mono">{}</span>', _("Task"), task)
    context = {"about": about, "forms": forms, "button": _("Save"), **words}
    return model_admin.own_page(request, "components/form.html", context)
