"""The pages of a job: the question before it, and how far it got. Without JavaScript each click goes on with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.core.signing import BadSignature
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core.errors import RsmqError
from ..core.queue.browse import count
from ..live.conditions import Selection
from ..live.messages import DELAYED, IN_FLIGHT, READY
from ..models import Queue
from .bulk import BulkJob, claim, go_on
from .components.operations import Operation
from .formats import as_number
from .forms import ParametersForm
from .logs import log, user_id
from .operations import sentence_of

if TYPE_CHECKING:
    from .site import LiveAdmin

#: How long one request works. JavaScript sends the next request automatically; without it the operator clicks.
LIVE_SLICE_S, SLICE_S = 0.2, 2.0


def job_of_selection(request: HttpRequest, operation: Operation, selection: Selection) -> BulkJob | None:
    """Return the job for all that a list shows; None when that is more than one queue, or a filter of another kind."""
    queues, states = selection.values("queue"), selection.values("state")
    is_plain = selection.is_exact and set(selection.equal) <= {"queue", "state"} and not has_more(selection)
    if not is_plain or queues is None or len(queues) != 1 or (states is not None and len(states) != 1):
        return None
    return new_job(
        request,
        operation,
        next(iter(queues)),
        state=next(iter(states)) if states else "",
        words=selection.words,
        in_bodies=selection.searches_bodies,
    )


def has_more(selection: Selection) -> bool:
    """Return whether a list is narrowed by what a job does not know: it would be about more than the list shows."""
    return bool(selection.narrowing or selection.begin)


def new_job(request: HttpRequest, operation: Operation, queue: str, **choices: Any) -> BulkJob | None:
    """Return a job that has not begun; None when the queue does not exist."""
    job = BulkJob(operation=operation.name, queue=queue, user_id=user_id(request), asked_ms=0, to_look_at=0, **choices)
    try:
        place = job.place
    except BadSignature:
        return None
    counts = place.client.run(count(place.client.namespace, place.name))
    sizes = {READY: counts.ready, DELAYED: counts.hidden, IN_FLIGHT: counts.hidden}
    to_look_at = sizes.get(job.state, counts.messages)
    return replace(job, asked_ms=counts.now_ms, to_look_at=to_look_at)


def ask(
    model_admin: LiveAdmin, request: HttpRequest, job: BulkJob, form: Any = None, *, question: str = ""
) -> HttpResponse:
    """Return the question before a job; `question` says what it is about, where that is more than a queue."""
    model_admin.demand(request, job.what.codename)
    token, number = job.token(), job.to_look_at
    about = ngettext("This checks %(n)s message %(about)s.", "This checks %(n)s messages %(about)s.", number)
    context = {
        "title": _("Are you sure?"),
        "question": question,
        "about": about % {"n": as_number(number), "about": job.description()},
        "trail": [(job.place.label, model_admin.address("queue_change", job.queue))],
        "strong": job.what.title,
        "help": _("Messages that are sent, or delivered for the first time, from now on are not changed."),
        "url": model_admin.address("message_bulk"),
        "forms": [form if form is not None else ParametersForm(job.what)] if job.what.asks else [],
        "token": token,
        "hidden": [("token", token)],
        "is_dangerous": job.what.is_dangerous,
        "back": _where_from(model_admin, job),
    }
    return model_admin.own_page(request, "components/ask.html", context)


def _where_from(model_admin: LiveAdmin, job: BulkJob) -> str:
    """Return the address of the page where the job was chosen."""
    if job.failure:
        return model_admin.address("queue_failures", job.queue)
    return model_admin.address("message_changelist", queue=job.queue)


def carry_on(model_admin: LiveAdmin, request: HttpRequest) -> HttpResponse:
    """Do the next part of a job, and tell how far it got."""
    try:
        job = BulkJob.from_token(request.POST.get("token", ""))
    except (BadSignature, TypeError, KeyError):
        model_admin.tell(request, _("This page has expired or was changed. Start again."), is_good=False)
        return HttpResponseRedirect(model_admin.address("message_changelist"))
    model_admin.demand(request, job.what.codename)
    if job.user_id != user_id(request):
        raise PermissionDenied
    if job.log_entry is None:
        form = ParametersForm(job.what, request.POST)
        if not form.is_valid():
            return ask(model_admin, request, job, form)
        job = replace(job, params={**job.params, **form.cleaned_data})
    if not claim(job):
        model_admin.tell(
            request, _("This page was already submitted. Check the remaining messages and start again."), is_good=False
        )
        return HttpResponseRedirect(model_admin.address("message_changelist", queue=job.queue))
    if job.log_entry is None:
        job = _begun(request, job)
    job = replace(job, step=job.step + 1)
    try:
        for progress in go_on(job, LIVE_SLICE_S if "live" in request.POST else SLICE_S):
            job = progress
    except RsmqError:
        if job.tally.all:
            model_admin.tell(request, f"{job.title()}: {sentence_of(job.tally)}", is_good=False)
        raise
    finally:  # also when the server goes away in between
        LogEntry.objects.filter(pk=job.log_entry or 0).update(change_message=_logged(job))
    if job.is_finished:
        model_admin.tell(request, f"{job.title()}: {sentence_of(job.tally)}", is_good=not job.tally.stayed.total())
        return HttpResponseRedirect(_where_from(model_admin, job))
    context = {
        "title": job.title(),
        "job": job,
        "token": job.token(),
        "sentence": sentence_of(job.tally),
        "percent": round(100 * job.looked_at / max(1, job.to_look_at)),
        "back": _where_from(model_admin, job),
    }
    return model_admin.own_page(request, "message/progress.html", context)


def _begun(request: HttpRequest, job: BulkJob) -> BulkJob:
    """Write down who begins, before anything is done."""
    return replace(job, log_entry=log(request, Queue(key=job.queue), _logged(job)))


def _logged(job: BulkJob) -> str:
    outcome = sentence_of(job.tally) if job.looked_at or job.tally.all else _("started")
    return f"{str(job.what.logged) % job.params} ({job.description()}): {outcome}"
