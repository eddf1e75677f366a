"""The state of the installation as one line of links: on the index of each admin site, and above the list of queues."""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from ..live import installation
from ..live.installation import KEEP_AT_MOST_S, Installation, current
from ..live.state_line import StatePart, parts_of
from .formats import as_duration, as_figure

INDEX_TEMPLATE = "admin/rsmq/index.html"
#: The value of the filter of the list of queues that shows those with a kind of trouble.
FILTERS = {
    "unserved": "unserved",
    "late": "stuck",
    "failing": "failing",
    "paused-backlog": "paused",
    "dead-letters": "dead",
}
#: Readings are at most that old unless Redis is slow; then their age is shown.
SHOW_AGE_AFTER_S = KEEP_AT_MOST_S + 5


@dataclass(frozen=True, slots=True)
class Link:
    """A part of the line, and the page that shows it; "" for none."""

    before: str
    text: str
    behind: str
    url: str
    is_bad: bool


def show_on_index(site: AdminSite) -> None:
    """Show the line on the index of an admin site, unless the site has a template of its own for it."""
    if site.index_template is None:
        site.index_template = INDEX_TEMPLATE


def state_line(request: HttpRequest, *, wait_s: float | None = None) -> dict[str, object] | None:
    """Return the context of `_state.html`; None for users who may see no part of it."""
    sees_queues, sees_workers = (request.user.has_perm(f"rsmq.view_{name}") for name in ("queue", "worker"))
    if not sees_queues and not sees_workers:
        return None
    state = getattr(request, "rsmq_state", None) or current(wait_s)
    if state is None:
        note = _(
            "Still loading: reading the state takes longer than %(seconds)s s. Reload the page in a moment; "
            "manage.py rsmq_doctor shows whether Redis is slow."
        )
        return {
            "links": [],
            "note": note % {"seconds": as_figure(installation.WAIT_S if wait_s is None else wait_s, "g")},
        }
    shown = [part for part in parts_of(state) if (sees_workers if part.about == "workers" else sees_queues)]
    return {"links": [_link(request, part) for part in shown], "note": _age(state)}


def _age(state: Installation) -> str:
    age_s = time.time() - state.read_at_s
    if age_s < SHOW_AGE_AFTER_S:
        return ""
    return _("Redis is slow: this was read %(duration)s ago.") % {"duration": as_duration(age_s, units=1)}


def _link(request: HttpRequest, part: StatePart) -> Link:
    is_bad = part.about in (*FILTERS, "unknown") and (part.about != "dead-letters" or bool(part.places))
    try:
        url = _address(request, part)
    except NoReverseMatch:  # the page is not registered on this site
        url = ""
    return Link(part.before, part.text, part.behind, url, is_bad)


def _address(request: HttpRequest, part: StatePart) -> str:
    if part.about == "unknown":
        return ""
    if part.about == "workers":
        return _reverse(request, "worker_changelist")
    if part.about == "ready":
        return _reverse(request, "queue_changelist")
    (only,) = part.places if len(part.places) == 1 else (None,)
    if part.about == "dead-letters" and only is not None and request.user.has_perm("rsmq.view_message"):
        return _reverse(request, "queue_failures", only.key)
    if part.about == "dead-letters" or only is None:
        return _reverse(request, "queue_changelist", trouble=FILTERS[part.about])
    return _reverse(request, "queue_change", only.key)


def _reverse(request: HttpRequest, page: str, *keys: str, **query: str) -> str:
    site_name = getattr(request, "current_app", None)
    url = reverse(f"admin:rsmq_{page}", args=[quote(key) for key in keys], current_app=site_name)
    return f"{url}?{urlencode(query)}" if query else url
