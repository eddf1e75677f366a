"""`{% load rsmq %}`: `{% task_progress result %}` for pages of a project, `{% rsmq_state %}` for those of an admin."""

from __future__ import annotations

from typing import Any

from django import template
from django.core.exceptions import ImproperlyConfigured

from ..core.errors import RsmqError
from ..tasks.compat import TaskResult
from ..tasks.progress import TaskState
from ..tasks.sending import is_in_transaction
from ..views import DAY_S, address_of, find_state, shown

register = template.Library()


@register.inclusion_tag("admin/rsmq/_state.html", takes_context=True)
def rsmq_state(context: dict[str, Any], source: str = "") -> dict[str, Any]:
    """Return the context of the line; `source` is the address from which it is refreshed, "" for that of the page."""
    from ..admin.state_line import state_line  # projects without the admin load this library, too

    return {"state": state_line(context["request"]), "source": source}


@register.inclusion_tag("rsmq/task_progress.html", takes_context=True)
def task_progress(context: Any, result: Any, label: str = "", expires_in_s: float = DAY_S) -> dict[str, Any]:
    """Show bar and state of a task, which follow it in the browser.

    `result` is the `TaskResult` or its id, `label` what the bar is about for people who do not see it. The signed
    address that the browser asks is valid for `expires_in_s` seconds, a day by default.
    Raises ImproperlyConfigured when the project's URLs do not include `rsmq_django.urls`.
    """
    is_first = not context.render_context.get(task_progress)
    context.render_context[task_progress] = True
    task_id = result.id if isinstance(result, TaskResult) else result
    if not isinstance(task_id, str) or not task_id:
        raise ImproperlyConfigured(f"{{% task_progress %}} was given {result!r}; it needs a TaskResult or its id")
    return {
        "source": address_of(task_id, expires_in_s=expires_in_s),
        "label": label,
        "now": shown(_state_now(task_id)),
        "is_first": is_first,
        "nonce": _nonce(context) if is_first else "",
    }


def _nonce(context: Any) -> str:
    nonce = context.get("csp_nonce")  # Django's is made by str(), and false before
    return str(getattr(context.get("request"), "csp_nonce", "") if nonce is None else nonce)


def _state_now(task_id: str) -> TaskState | None:
    try:
        state = find_state(task_id)
    except RsmqError:  # the page is shown, and its script asks again
        return TaskState("READY", None)
    if state is None and is_in_transaction():
        return TaskState("READY", None)  # sent at the commit
    return state
