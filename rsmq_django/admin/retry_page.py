"""Retrying the dead letters of one failure: one as a probe, then the rest at a rate, with their outcomes.

The work is in Redis (`core/queue/retry_plans.py`): closing the page stops nothing that was sent, and any page shows how
far it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.queue.browse import StoredMessage, count, pick
from ..core.queue.retry_plans import (
    MAX_RATE,
    RetryPlan,
    begin,
    cancel,
    each_part,
    go_on,
    plans_of,
    read_plan,
    return_part,
    settle_part,
)
from ..core.stats.fingerprint import fingerprint_of
from ..live.places import QueueRef
from ..live.times import as_datetime
from ..models import Queue
from .bulk_pages import SLICE_S
from .failures import DeadLetterGroup, failure_groups
from .formats import as_duration, as_figure, as_number, visible
from .logs import log
from .site import LiveAdmin

#: How long one look at the page looks for messages that have ended.
LOOK_S = 0.15
CODENAME = "redrive_message"


class RateForm(forms.Form):
    """How fast dead letters are retried."""

    rate = forms.FloatField(
        label=gettext_lazy("Messages per second"),
        min_value=0.01,
        max_value=MAX_RATE,
        initial=10,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan as its page shows it."""

    plan: RetryPlan
    title: str
    state: str
    #: Its task, when it is a probe whose result may be seen.
    result_url: str = ""
    #: A message that failed again.
    failed_url: str = ""
    failed_error: str = ""

    @property
    def created_at(self) -> Any:
        """Return when it was made."""
        return as_datetime(self.plan.created_ms)

    @property
    def waiting(self) -> int:
        """Return how many messages are due and have not ended."""
        return self.plan.open - self.plan.later

    @property
    def left(self) -> str:
        """Return in what time the last message is due."""
        return as_duration(self.plan.left_s)

    @property
    def percent(self) -> int:
        """Return how many of a hundred messages have ended or came back."""
        return round(100 * (self.plan.ended + self.plan.returned) / max(1, self.plan.sent))

    @property
    def may_continue(self) -> bool:
        """Return whether a page can go on with sending: a plan of rsmqctl may have filters that it does not say."""
        return self.plan.state == "sending" and self.plan.failure != ""

    @property
    def may_be_cancelled(self) -> bool:
        """Return whether there is something to give back."""
        return self.plan.state == "sending" or self.plan.later > 0


def retries_page(model_admin: LiveAdmin, request: HttpRequest, queue: Queue) -> HttpResponse:
    """Show the retries of a dead-letter queue, or of one failure; POST begins, continues or cancels one."""
    failure = request.GET.get("failure", "")[:32]
    form = RateForm()
    if request.method == "POST":
        model_admin.demand(request, CODENAME)
        form = RateForm(request.POST) if "rate" in request.POST else form
        if not form.is_bound or form.is_valid():
            _act(model_admin, request, queue, failure, form)
            query = {"failure": failure} if failure else {}
            return HttpResponseRedirect(model_admin.address("queue_retries", queue.key, **query))
    group = failure_groups(queue.place).find(failure) if failure else None
    plans = [plan for plan in plans_of(queue.place.client, queue.name) if failure in ("", plan.failure)]
    shown = [_shown(model_admin, request, queue.place, plan) for plan in _settled(queue.place, plans)]
    context = {
        "title": _("Retries"),
        "queue": queue,
        "failure": failure,
        "group": group,
        "name": group.name if group is not None else next((_name(each.plan) for each in shown), ""),
        "plans": shown,
        "form": form,
        "may_retry": model_admin.may(request, CODENAME),
        "may_view_body": model_admin.may(request, "view_body"),
        "is_sending": any(each.may_continue for each in shown),
        "back": model_admin.address("queue_failures", queue.key),
    }
    return model_admin.own_page(request, "queue/retries.html", context)


def _name(plan: RetryPlan) -> str:
    return ", ".join(visible(part) for part in (plan.task, plan.error.rpartition(".")[2]) if part)


def _settled(place: QueueRef, plans: list[RetryPlan]) -> list[RetryPlan]:
    """Return the plans with the outcomes since the last look, as far as one look gets."""
    until_s, found = time.monotonic() + LOOK_S, list[RetryPlan]()
    for plan in plans:
        for _ended in each_part(settle_part, place.client, plan) if plan.open else ():
            if time.monotonic() > until_s:
                break
        found.append((read_plan(place.client, plan.id) or plan) if plan.open else plan)
    return found


def _shown(model_admin: LiveAdmin, request: HttpRequest, place: QueueRef, plan: RetryPlan) -> ShownPlan:
    if plan.is_probe:
        title = _("Probe: one dead letter")
    else:
        title = _("Retry at %(rate)s per second") % {"rate": _shown_rate(plan.rate)}
    result_url = failed_url = failed_error = ""
    if plan.task_id and model_admin.may(request, "view_result"):
        result_url = model_admin.address("result_change", plan.task_id)
    if plan.failed_id:
        found = place.client.run(pick(place.client.namespace, place.name, [plan.failed_id], body_bytes=0)).messages
        failure = found[0].failure() if found else None
        failed_error = visible(failure.error) if failure is not None else ""
        failed_url = model_admin.address("message_change", place.message_key(plan.failed_id.encode())) if found else ""
    return ShownPlan(plan, title, _state_of(plan), result_url, failed_url, failed_error)


def _state_of(plan: RetryPlan) -> str:
    if plan.state == "sending":
        return _("being sent")
    if plan.state == "cancelled":
        return _("cancelled")
    return _("finished") if plan.is_finished else _("running")


# -- Doing ------------------------------------------------------------------------------------------------------------


def _act(model_admin: LiveAdmin, request: HttpRequest, queue: Queue, failure: str, form: RateForm) -> None:
    client, action = queue.place.client, request.POST.get("action", "")
    if action in ("probe", "start"):
        group = failure_groups(queue.place).find(failure)
        if group is None:
            model_admin.tell(request, _("This failure has no dead letters left."), is_good=False)
            return
        if action == "start" and _is_sending(queue, failure):  # two plans would send at twice the rate
            said = _("This page was already submitted. Check the remaining messages and start again.")
            model_admin.tell(request, said, is_good=False)
            return
        rate = form.cleaned_data["rate"] if form.is_bound else 1.0
        plan_id = _begun(queue, group, rate, limit=1 if action == "probe" else None)
        said = (
            _("Probed one dead letter: %(name)s")
            if action == "probe"
            else _("Retried at %(rate)s per second: %(name)s")
        )
        log(request, queue, said % {"name": group.name, "rate": _shown_rate(rate)})
        _send_on(queue, plan_id)
        return
    plan = next((each for each in plans_of(client, queue.name) if each.id == request.POST.get("plan")), None)
    if plan is None:
        model_admin.tell(request, _("This retry no longer exists."), is_good=False)
    elif action == "continue" and plan.failure:
        _send_on(queue, plan.id)
    elif action == "cancel":
        _cancel(model_admin, request, queue, plan)


def _is_sending(queue: Queue, failure: str) -> bool:
    plans = plans_of(queue.place.client, queue.name)
    return any(plan.state == "sending" and plan.failure == failure and not plan.is_probe for plan in plans)


def _shown_rate(per_second: float) -> str:
    return as_number(per_second) if per_second >= 1 else as_figure(per_second, "g")


def _begun(queue: Queue, group: DeadLetterGroup, rate: float, *, limit: int | None) -> str:
    client, failure = queue.place.client, group.failure
    return begin(
        client,
        queue.name,
        rate=rate,
        limit=limit,
        to_look_at=client.run(count(client.namespace, queue.name)).messages,
        failure=group.fingerprint,
        task=failure.task if failure is not None else "",
        error=failure.error if failure is not None else "",
    )


def fits(failure: str) -> Callable[[StoredMessage], bool]:
    """Return whether a dead letter has a fingerprint."""
    return lambda message: fingerprint_of(message.failure()) == failure


def _send_on(queue: Queue, plan_id: str) -> None:
    """Send what a plan still has to send, for as long as a request may take."""
    client, until_s = queue.place.client, time.monotonic() + SLICE_S
    plan = read_plan(client, plan_id)
    for _plan in go_on(client, plan_id, fits(plan.failure)) if plan is not None else ():
        if time.monotonic() > until_s:
            return


def _cancel(model_admin: LiveAdmin, request: HttpRequest, queue: Queue, plan: RetryPlan) -> None:
    client, until_s, returned = queue.place.client, time.monotonic() + SLICE_S, 0
    cancel(client, plan.id)
    try:
        for number in each_part(return_part, client, plan):
            returned += number
            if time.monotonic() > until_s:
                break
    finally:  # also when the server goes away in between
        said = ngettext(
            "Retry cancelled; %(count)d message is a dead letter again",
            "Retry cancelled; %(count)d messages are dead letters again",
            returned,
        ) % {"count": returned}
        log(request, queue, said)
        model_admin.tell(request, said)
