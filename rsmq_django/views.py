"""Views for projects: the health of Redis, and how far one task is, for programs and for `{% task_progress %}`.

Under ASGI the one of the tag answers with server-sent events where the browser takes them, otherwise with one JSON
object. Addresses of a task are signed and expire: who has one sees the state, the numbers and the note of that task,
and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import NoReverseMatch, reverse
from django.utils.formats import number_format
from django.utils.translation import get_language, gettext, override
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .conf.settings import get_settings
from .core.errors import RsmqError
from .live.server_checks import check_servers
from .tasks.compat import TaskResult
from .tasks.progress import TaskState, astate_of, state_of
from .tasks.results import has_outbox

__all__ = ["health", "status_address", "status_of", "task_progress", "task_status"]

SALT = "rsmq_django.task_progress"
#: How often a stream reads the state, how often it says that it lives, and after how long the browser asks again.
LOOK_S, ALIVE_S, LONGEST_STREAM_S = 0.5, 15.0, 120.0
LONGEST_NOTE = 500
DAY_S = 86_400
#: Statuses after which nothing changes.
ENDS = ("SUCCESSFUL", "FAILED", "UNKNOWN")
EVENTS = "text/event-stream"
#: Nothing on the way may collect or compress events.
HEADERS = {"X-Accel-Buffering": "no", "Content-Encoding": "identity"}


#: The longest time for an answer about the health of Redis: shorter than the patience of load balancers.
HEALTH_WITHIN_S = 1.0


@login_not_required
@never_cache
@require_safe
def health(request: HttpRequest, connections: Sequence[str] | None = None) -> JsonResponse:
    """Answer whether Redis answers this process: 200 or 503, after a second at most, with JSON that has no secrets.

    `connections` are aliases of RSMQ["CONNECTIONS"], all by default; one without an answer makes it 503. However
    many requests there are, each server gets one PING a second from each process.
    """
    aliases = get_settings().connections if connections is None else connections
    answers = check_servers(list(aliases), within_s=HEALTH_WITHIN_S)
    is_well = all(answer == "ok" for answer in answers.values())
    content = {"status": "ok" if is_well else "unavailable", "connections": answers}
    return JsonResponse(content, status=200 if is_well else 503)


def address_of(task_id: str, *, expires_in_s: float, name: str = "task-progress") -> str:
    """Return a signed address of a task. Raises ImproperlyConfigured without the URLs."""
    signed = signing.dumps([task_id, int(time.time() + expires_in_s)], salt=SALT)
    try:
        return reverse(f"rsmq:{name}", args=[signed])
    except NoReverseMatch:
        raise ImproperlyConfigured(
            'a task needs an address; add path("tasks/", include("rsmq_django.urls")) to your urlpatterns'
        ) from None


def _read_address(signed: str) -> str | HttpResponse:
    """Return the id of the task of an address, or the response: 403 for a wrong one, 410 for an expired one."""
    try:
        task_id, expires_at = signing.loads(signed, salt=SALT)
    except signing.BadSignature:
        return HttpResponse(status=403)
    return HttpResponse(status=410) if time.time() >= expires_at else str(task_id)


def status_address(result: TaskResult[..., Any] | str, *, expires_in_s: float = DAY_S) -> str:
    """Return the signed address of the view task_status(): a path, valid for `expires_in_s` seconds, a day by default.

    `result` is the `TaskResult` or its id. Raises ImproperlyConfigured when the URLs do not include `rsmq_django.urls`.
    """
    return address_of(_id_of(result), expires_in_s=expires_in_s, name="task-status")


def status_of(result: TaskResult[..., Any] | str) -> dict[str, Any] | None:
    """Return how far a task is, as JSON can have it; None for an unknown id and after the result's time to live.

    `status` is READY, RUNNING, SUCCESSFUL or FAILED, `finished` whether that is its end, and `progress` the last
    report of the task with `done`, `total` (None: unknown) and `note`, or None. `result` is the `TaskResult` or its
    id; who may see it is the caller's decision. Raises the errors of Redis.
    """
    state = find_state(_id_of(result))
    if state is None:
        return None
    said = state.progress
    progress = None if said is None else {"done": said.done, "total": said.total, "note": said.note[:LONGEST_NOTE]}
    return {"status": state.status, "finished": state.status in ENDS, "progress": progress}


def _id_of(result: TaskResult[..., Any] | str) -> str:
    return result if isinstance(result, str) else result.id


@login_not_required
@never_cache
@require_safe
def task_status(request: HttpRequest, signed: str) -> HttpResponse:
    """Answer with status_of() as JSON; 403 for a wrong address, 410 for an expired one, 404 for no result."""
    task_id = _read_address(signed)
    if isinstance(task_id, HttpResponse):
        return task_id
    try:
        status = status_of(task_id)
    except RsmqError:
        return HttpResponse(status=503)
    return HttpResponse(status=404) if status is None else JsonResponse(status)


@login_not_required
@never_cache
@require_safe
def task_progress(request: HttpRequest, signed: str) -> HttpResponseBase:
    """Answer with the progress of a task: events or JSON; 403 for a wrong address, 410 for an expired one."""
    task_id = _read_address(signed)
    if isinstance(task_id, HttpResponse):
        return task_id
    if isinstance(request, ASGIRequest) and EVENTS in request.headers.get("Accept", ""):
        if request.method == "HEAD":
            return HttpResponse(content_type=EVENTS, headers=HEADERS)
        return StreamingHttpResponse(_events(task_id, get_language()), content_type=EVENTS, headers=HEADERS)
    try:
        return JsonResponse(shown(find_state(task_id)))
    except RsmqError:
        return HttpResponse(status=503)


def find_state(task_id: str) -> TaskState | None:
    """Return the state of a task, also of one in the outbox; None for an unknown one."""
    found = state_of(task_id) or _in_outbox(task_id)
    # Again, because a relay may have sent it to Redis between the two reads.
    return state_of(task_id) if found is None and has_outbox() else found


def shown(state: TaskState | None) -> dict[str, Any]:
    """Return what a page shows of a state: `value` of the bar from 0 to 1 (None: unknown), and texts."""
    status = "UNKNOWN" if state is None else state.status
    texts = {
        "READY": gettext("Waiting"),
        "RUNNING": gettext("Running"),
        "SUCCESSFUL": gettext("Done"),
        "FAILED": gettext("Failed"),
    }
    value, figures, progress = None, "", None if state is None else state.progress
    if progress is not None:
        figures = _text(progress.done)
        if progress.total is not None:
            words = {"done": figures, "total": _text(progress.total)}
            figures = gettext("%(done)s of %(total)s") % words
            value = min(1.0, max(0.0, progress.done / progress.total)) if progress.total > 0 else None
    if status != "RUNNING":
        value = 1.0 if status == "SUCCESSFUL" else value or 0.0
    return {
        "status": status,
        "text": texts.get(status) or gettext("No longer known"),
        "value": value,
        "figures": figures,
        "note": "" if progress is None else progress.note[:LONGEST_NOTE],
    }


def _text(number: float) -> str:
    return str(number_format(int(number) if number == int(number) else round(number, 2)))


async def _events(task_id: str, language: str | None) -> AsyncIterator[bytes]:
    """Yield an event at each change, until the task has ended or the browser has to ask again."""
    ends_at, said, said_at = time.monotonic() + LONGEST_STREAM_S, "", time.monotonic()
    while time.monotonic() < ends_at:
        try:
            state = await astate_of(task_id) or await sync_to_async(find_state)(task_id)
        except RsmqError:
            return  # the browser asks again, later each time
        with override(language):
            now = shown(state)
        if (text := json.dumps(now)) != said:
            said, said_at = text, time.monotonic()
            yield f"data: {text}\n\n".encode()
        elif time.monotonic() - said_at > ALIVE_S:  # so that servers on the way keep the connection
            said_at = time.monotonic()
            yield b": \n\n"
        if now["status"] in ENDS:
            return
        await asyncio.sleep(LOOK_S)


def _in_outbox(task_id: str) -> TaskState | None:
    if not has_outbox():
        return None
    from .outbox.writing import find_waiting

    row = find_waiting(task_id)
    return None if row is None else TaskState("FAILED" if row.refusal else "READY", None)
