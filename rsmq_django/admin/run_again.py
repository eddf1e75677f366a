"""Sending the call of a task from a form, or again as it was: what the pages that do it share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ..core.errors import NotConfirmed, RedisFailure, RsmqError
from ..tasks.compat import InvalidTask
from ..tasks.task import Task
from .formats import visible
from .logs import log
from .recorded_calls import RecordedCall
from .site import LiveAdmin, explanation_of
from .task_forms import Args, CallForm, Kwargs, WhenForm

#: The field of the button that sends a call as it was.
UNCHANGED = "unchanged"

if TYPE_CHECKING:
    _Base = LiveAdmin
else:
    _Base = object


class RunsAgain(_Base):
    """Pages of one row from which the call of a task is sent again."""

    def recorded_call(self, key: str) -> RecordedCall | None:
        """Return the call of a row; None when there is none any more."""
        raise NotImplementedError

    def run_url(self) -> URLPattern:
        """Return the URL of the form; POST with UNCHANGED needs no form."""
        return self.own_url("<path:object_id>/run/", self.run_view, "run")

    def run_context(self, request: HttpRequest, key: str, task: str) -> dict[str, Any]:
        """Return what the template of the buttons needs; nothing without permission or task."""
        if not (self.may(request, "send_message") and task):
            return {}
        url = self.address(f"{self.opts.model_name}_run", key)
        return {"run_again": {"url": url, "may_edit": self.may(request, "view_body"), "unchanged": UNCHANGED}}

    def run_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Send the call of a row again, as it was or with the arguments of a form."""
        self.demand(request, "send_message")
        is_unchanged = request.method == "POST" and UNCHANGED in request.POST
        if not self.has_view_permission(request) or not (is_unchanged or self.may(request, "view_body")):
            raise PermissionDenied
        key = unquote(object_id)
        back = self.address(f"{self.opts.model_name}_change", key)
        call = self.recorded_call(key)
        task = call.task if call is not None else None
        if call is None or task is None:
            self.tell(request, _why_not(call), is_good=False)
            return HttpResponseRedirect(back)
        if is_unchanged:
            task_id = self._run_unchanged(request, task, call)
            said = _("Ran %(task)s again as task %(id)s")
            if task_id is None:
                return HttpResponseRedirect(back)
        else:
            data = request.POST if request.method == "POST" else None
            form = CallForm(task, data, args=call.envelope.args, kwargs=call.envelope.kwargs)
            when = WhenForm(data)
            task_id = enqueue_from(self, request, form, when, task, call.options())
            said = _("Edited and ran %(task)s as task %(id)s")
            if task_id is None:
                return self._form_page(request, task, form, when, back)
        log(request, self.model(pk=key), said % {"task": task.module_path, "id": task_id})
        tell_enqueued(self, request, task_id)
        return HttpResponseRedirect(back)

    def _run_unchanged(self, request: HttpRequest, task: Task[..., Any], call: RecordedCall) -> str | None:
        """Send a call as it was, and return its task id; None when it was refused, which the next page says."""
        try:
            return _sent(self, request, task.using(**call.options()), call.envelope.args, call.envelope.kwargs)
        except RedisFailure:
            raise
        except (RsmqError, InvalidTask, TypeError, ValueError) as error:
            self.tell(request, said_of(error), is_good=False)
            return None

    def _form_page(
        self, request: HttpRequest, task: Task[..., Any], form: CallForm, when: WhenForm, back: str
    ) -> HttpResponse:
        dropped = _("The task does not take these arguments of the earlier call any more: %(names)s.")
        context = {
            "title": _("Edit and run %(task)s") % {"task": task.module_path},
            "help": _("This sends a new call. The earlier call does not change. Unchanged arguments are sent again."),
            "note": dropped % {"names": ", ".join(map(visible, form.dropped))} if form.dropped else "",
            "forms": [form, when],
            "button": _("Run"),
            "back": back,
            "trail": [(capfirst(str(self.opts.verbose_name)), back)],
        }
        return self.own_page(request, "components/form.html", context)


def _sent(model_admin: LiveAdmin, request: HttpRequest, task: Task[..., Any], args: Args, kwargs: Kwargs) -> str:
    """Send a call and return its task id. The next page says if too few replicas have confirmed the call."""
    try:
        return str(task.enqueue(*args, **kwargs).id)
    except NotConfirmed as error:
        model_admin.tell(request, explanation_of(error), is_good=False)
        return error.task_ids[0]


def enqueue_from(
    model_admin: LiveAdmin,
    request: HttpRequest,
    form: CallForm,
    when: WhenForm,
    task: Task[..., Any],
    options: Mapping[str, Any],
) -> str | None:
    """Send the call of a form, and return its task id; None when the form has to be shown, with its errors."""
    if not (form.is_valid() and when.is_valid()):
        return None
    args, kwargs = form.arguments()
    delay_s = when.cleaned_data["delay_s"]
    run_after: Any = timedelta(seconds=delay_s) if delay_s else None
    try:
        return _sent(model_admin, request, task.using(**options, run_after=run_after), args, kwargs)
    except RedisFailure:
        raise
    except (RsmqError, InvalidTask, TypeError, ValueError) as error:
        form.add_error(None, said_of(error))
        return None


def said_of(error: Exception) -> str:
    """Return what a person is told of a call that was refused."""
    return explanation_of(error) if isinstance(error, RsmqError) else str(error)


def tell_enqueued(model_admin: LiveAdmin, request: HttpRequest, task_id: str) -> None:
    """Show the id of a call that was sent, as a link to its result."""
    link = task_id
    if model_admin.may(request, "view_result"):
        link = format_html('<a href="{}">{}</a>', model_admin.address("result_change", task_id), task_id)
    model_admin.tell(request, format_html(_("Task {id} was enqueued."), id=link))


def _why_not(call: RecordedCall | None) -> str:
    if call is None:
        return _("The call no longer exists, or its body cannot be read.")
    return _("The task %(task)s is not declared in this project.") % {"task": visible(call.envelope.task)}
