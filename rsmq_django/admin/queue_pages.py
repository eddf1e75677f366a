"""What can be done to a queue: send, enqueue, purge, pause, redrive, and its dead letters by what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.errors import NotConfirmed, RedisFailure, RsmqError
from ..core.queue import moves
from ..core.queue.pause import pause, resume
from ..models import Queue
from ..tasks.catalogue import known_tasks
from . import bulk_pages
from .components.operations import Operation
from .failures import DeadLetterGroup, FailureGroups, failure_groups
from .formats import as_number
from .forms import PurgeForm, RedriveForm, SendForm
from .logs import log
from .naming import question
from .operations import OPERATIONS
from .queue_actions import purged_text, whole_queue
from .recorded_calls import where
from .retry_page import retries_page
from .run_again import enqueue_from, tell_enqueued
from .site import LiveAdmin, explanation_of
from .task_forms import CallForm, WhenForm

Page = Callable[[LiveAdmin, HttpRequest, Queue], HttpResponse]


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A page of one queue, and the permission that it needs."""

    page: Page
    codename: str
    label: Any


def view_of(model_admin: LiveAdmin, name: str) -> Callable[..., HttpResponse]:
    """Return the view of a page: it checks the permission, then looks for the queue."""

    def view(request: HttpRequest, object_id: str) -> HttpResponse:
        own = VIEWS[name]
        return own.page(model_admin, request, model_admin.row_for(request, object_id, own.codename))

    return view


def links_for(model_admin: LiveAdmin, request: HttpRequest, queue: Queue) -> list[tuple[str, str]]:
    """Return the pages that a user may see, with their addresses."""
    names = ["send", *(["enqueue"] if queue.is_configured else []), "purge"]
    names += ["failures", "retries", "redrive"] if queue.holds_dead_letters else []
    views = {name: VIEWS[name] for name in names}
    return [
        (str(view.label), model_admin.address(f"queue_{name}", queue.key))
        for name, view in views.items()
        if model_admin.may(request, view.codename)
    ]


# -- Sending ----------------------------------------------------------------------------------------------------------


def send_page(model_admin: LiveAdmin, request: HttpRequest, queue: Queue) -> HttpResponse:
    """Send a message as it was typed."""
    form = SendForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        # Browsers send line ends as CRLF.
        body = form.cleaned_data["body"].replace("\r\n", "\n").encode("utf-8", "surrogatepass")
        message_id = ""
        try:
            message_id = queue.place.queue().send(body, delay_s=form.cleaned_data["delay_s"])
        except NotConfirmed as error:  # it was sent
            message_id = error.message_ids[0]
            model_admin.tell(request, explanation_of(error), is_good=False)
        except RedisFailure:
            raise
        except RsmqError as error:
            form.add_error("body", explanation_of(error))
        if message_id:
            log(request, queue, _("Sent message %(id)s of %(size)d bytes") % {"id": message_id, "size": len(body)})
            model_admin.tell(
                request, _("Message %(id)s was sent to queue %(queue)s.") % {"id": message_id, "queue": str(queue)}
            )
            return HttpResponseRedirect(model_admin.address("queue_change", queue.key))
    return _form_page(model_admin, request, queue, "send", forms=[form], button=_("Send"))


def enqueue_page(model_admin: LiveAdmin, request: HttpRequest, queue: Queue) -> HttpResponse:
    """Enqueue a task: choose one, then fill in its arguments."""
    tasks = known_tasks()
    path = request.GET.get("task", "")
    task = tasks.get(path)
    if task is None or not queue.is_configured:
        # The queue's own tasks first: another one would usually be a mistake.
        paths = sorted(tasks, key=lambda path: (tasks[path].queue_name != queue.name, path))
        context = {
            "title": _("Enqueue a task"),
            "queue": queue,
            "paths": paths if queue.is_configured else [],
            "about": _("Choose a task. Tasks of this queue are listed first."),
            "nothing": _("No task is available: none is declared, or the queue is not in the settings."),
            "trail": [(str(queue), model_admin.address("queue_change", queue.key))],
        }
        return model_admin.own_page(request, "components/choose_task.html", context)
    data = request.POST if request.method == "POST" else None
    form, when = CallForm(task, data), WhenForm(data)
    options = where(queue.name)
    task_id = enqueue_from(model_admin, request, form, when, task, options) if data is not None else None
    if task_id is not None:
        log(request, queue, _("Enqueued %(task)s as task %(id)s") % {"task": path, "id": task_id})
        tell_enqueued(model_admin, request, task_id)
        return HttpResponseRedirect(model_admin.address("queue_change", queue.key))
    title = _("Enqueue %(task)s") % {"task": path}
    return _form_page(model_admin, request, queue, "enqueue", forms=[form, when], button=_("Enqueue"), title=title)


# -- Removing ---------------------------------------------------------------------------------------------------------


def purge_page(model_admin: LiveAdmin, request: HttpRequest, queue: Queue) -> HttpResponse:
    """Remove all messages after the name was typed; messages newer than the page only if the user ticked that."""
    form = PurgeForm((queue.name, str(queue)), request.POST if request.method == "POST" else None)
    if form.is_valid():
        client, name = queue.place.client, queue.name
        removed: int | None
        if form.cleaned_data["also_newer"]:
            removed = moves.purge(client, name)
        else:
            removed = moves.purge_as_seen(client, name, form.cleaned_data["total_sent"])
        if removed is not None:
            log(request, queue, purged_text(removed))
            model_admin.tell(
                request,
                ngettext(
                    "%(count)s message was removed from queue %(queue)s.",
                    "%(count)s messages were removed from queue %(queue)s.",
                    removed,
                )
                % {"count": as_number(removed), "queue": str(queue)},
            )
            return HttpResponseRedirect(model_admin.address("queue_change", queue.key))
        form.add_error(
            None, _("Messages were sent after this page was shown. Nothing was removed. Check the queue and try again.")
        )
        queue.refresh_from_db()
    if form.is_bound:
        form.data = {**request.POST.dict(), "total_sent": str(queue.total_sent)}
    form.initial["total_sent"] = queue.total_sent
    about = ngettext(
        "This removes %(count)s message of the queue %(queue)s, even if it is delayed or in flight. "
        "The queue itself is kept. Type its name to confirm.",
        "This removes all %(count)s messages of the queue %(queue)s, including delayed messages "
        "and messages in flight. The queue itself is kept. Type its name to confirm.",
        queue.messages,
    ) % {"count": as_number(queue.messages), "queue": str(queue)}
    return _form_page(
        model_admin, request, queue, "purge", forms=[form], button=_("Purge"), about=about, is_dangerous=True
    )


# -- Pausing ----------------------------------------------------------------------------------------------------------


def pause_page(model_admin: LiveAdmin, request: HttpRequest, queue: Queue) -> HttpResponse:
    """Pause or resume a queue; POST only."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    is_pause, place = request.POST.get("action") == "pause", whole_queue(queue.place)
    changed = place.client.run((pause if is_pause else resume)(place.client.namespace, place.name))
    if changed:
        log(request, queue, _("Paused") if is_pause else _("Resumed"))
    text = _("Queue %(queue)s is paused.") if is_pause else _("Queue %(queue)s is resumed.")
    model_admin.tell(request, text % {"queue": place.label})
    return HttpResponseRedirect(model_admin.address("queue_change", queue.key))


# -- Dead letters -----------------------------------------------------------------------------------------------------


def redrive_page(model_admin: LiveAdmin, request: HttpRequest, queue: Queue) -> HttpResponse:
    """Choose which dead letters are sent again; the question and the work follow."""
    form = RedriveForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        choices = form.cleaned_data
        job = bulk_pages.new_job(
            request,
            OPERATIONS["redrive"],
            queue.key,
            task=choices["task"],
            error=choices["error"],
            limit=choices["limit"],
            params={"target": choices["target"]} if choices["target"] else {},
        )
        if job is not None:
            return bulk_pages.ask(model_admin, request, job)
    return _form_page(model_admin, request, queue, "redrive", forms=[form], button=_("Retry…"))


def failures_page(model_admin: LiveAdmin, request: HttpRequest, queue: Queue) -> HttpResponse:
    """Show dead letters by what went wrong; POST asks whether to redrive or delete all of one kind."""
    operation = OPERATIONS.get(request.POST.get("action", ""))
    groups = failure_groups(queue.place)
    if request.method == "POST" and operation is not None and operation.name in ("redrive", "delete_selected"):
        return _ask_about_failure(model_admin, request, queue, operation, groups)
    context = {
        "title": _("Dead letters by failure"),
        "queue": queue,
        "groups": groups,
        "operations": [
            OPERATIONS[name]
            for name in ("redrive", "delete_selected")
            if model_admin.may(request, OPERATIONS[name].codename)
        ],
        "may_view_body": model_admin.may(request, "view_body"),
    }
    return model_admin.own_page(request, "queue/failures.html", context)


def _ask_about_failure(
    model_admin: LiveAdmin, request: HttpRequest, queue: Queue, operation: Operation, groups: FailureGroups
) -> HttpResponse:
    model_admin.demand(request, operation.codename)
    fingerprint = request.POST.get("failure", "")[:32] or "-"
    group = groups.find(fingerprint)
    job = None
    if group is not None or not groups.is_complete:
        name = group.name if group else ""
        job = bulk_pages.new_job(request, operation, queue.key, failure=fingerprint, name=name)
    if job is None:
        model_admin.tell(request, _("This failure has no dead letters left."), is_good=False)
        return HttpResponseRedirect(model_admin.address("queue_failures", queue.key))
    text = _question_about(operation, group, may_view_body=model_admin.may(request, "view_body"))
    return bulk_pages.ask(model_admin, request, job, question=text)


def _question_about(operation: Operation, group: DeadLetterGroup | None, *, may_view_body: bool) -> str:
    """Return "Retry 84 dead letters: shop.tasks.pay, ConnectionError: api.example.com timed out after # ms"."""
    if group is None:
        return ""
    pattern = group.pattern if may_view_body else ""
    return question(operation.name, group.number, f"{group.name}: {pattern}" if pattern else group.name)


VIEWS: Mapping[str, QueuePage] = {
    "send": QueuePage(send_page, "send_message", gettext_lazy("Send a message")),
    "enqueue": QueuePage(enqueue_page, "send_message", gettext_lazy("Enqueue a task")),
    "purge": QueuePage(purge_page, "purge_queue", gettext_lazy("Purge")),
    "pause": QueuePage(pause_page, "pause_queue", gettext_lazy("Pause")),
    "failures": QueuePage(failures_page, "view_message", gettext_lazy("Failures")),
    "retries": QueuePage(retries_page, "view_message", gettext_lazy("Retries")),
    "redrive": QueuePage(redrive_page, "redrive_message", gettext_lazy("Retry")),
}


def _form_page(
    model_admin: LiveAdmin,
    request: HttpRequest,
    queue: Queue,
    name: str,
    **more: Any,
) -> HttpResponse:
    back = model_admin.address("queue_change", queue.key)
    context = {"title": str(VIEWS[name].label), "queue": queue, "back": back, "trail": [(str(queue), back)], **more}
    return model_admin.own_page(request, "components/form.html", context)
