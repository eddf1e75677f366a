"""Queues that need attention: the filter of the list of queues, its order, and the words beside a name.

Which queues these are, `core/doctor/troubles.py` says, for all queues of the installation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from ..conf.settings import aliases_of, get_settings
from ..live.installation import Installation, current, read_installation
from ..live.places import QueueRef

TROUBLE_PARAMETER = "trouble"
#: The list of queues cannot do without, and has the time.
WAIT_S = 5.0

#: The value in the address, what it is called, and which kind of trouble is meant.
TROUBLES: Mapping[str, tuple[Any, str]] = {
    "unserved": (gettext_lazy("no worker"), "unserved"),
    "stuck": (gettext_lazy("backlog older than its target"), "late"),
    "failing": (gettext_lazy("failing"), "failing"),
    "dead": (gettext_lazy("with dead letters"), "dead-letters"),
    "paused": (gettext_lazy("paused with a backlog"), "paused-backlog"),
}
#: Problems shown next to the name of a queue; dead letters and paused queues are shown elsewhere.
BADGES = {
    "unserved": gettext_lazy("no worker"),
    "late": gettext_lazy("older than its target"),
    "failing": gettext_lazy("failing"),
}


class TroubleFilter(admin.SimpleListFilter):
    """Queues in one kind of trouble."""

    title = gettext_lazy("problem")
    parameter_name = TROUBLE_PARAMETER

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the kinds to choose from."""
        return [(value, label) for value, (label, _id) in TROUBLES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the queues that are meant."""
        kind = TROUBLES.get(self.value() or "")
        if kind is None:
            return queryset
        found = troubles_by_queue(state_of(request))
        return queryset.filter(pk__in=[place.key for place, ids in found.items() if kind[1] in ids])


def state_of(request: HttpRequest) -> Installation:
    """Return the state of the installation: the same for all parts of a page."""
    state: Installation | None = getattr(request, "rsmq_state", None)
    if state is None:
        state = request.rsmq_state = current(WAIT_S) or read_installation()  # type: ignore[attr-defined]
    return state


def troubles_by_queue(state: Installation) -> dict[QueueRef, list[str]]:
    """Return the kinds of trouble of each queue that has some, the worst first; a queue has its dead letters."""
    owners: dict[QueueRef, list[QueueRef]] = {}
    for queue in get_settings().queues.values():
        for alias in aliases_of(queue) if queue.dead_letter is not None else ():
            assert queue.dead_letter is not None
            owners.setdefault(QueueRef(alias, queue.dead_letter), []).append(QueueRef(alias, queue.name))
    found: dict[QueueRef, list[str]] = {}
    for place, trouble in state.troubles:
        for each in owners.get(place, [place]) if trouble.id == "dead-letters" else [place]:
            found.setdefault(each, []).append(trouble.id)
    return found


def trouble_links(request: HttpRequest) -> list[tuple[Any, str, bool]]:
    """Return the choices above the list: label, query string, whether it is shown now."""
    links = []
    for value, label in (("", gettext_lazy("all queues")), *((value, each[0]) for value, each in TROUBLES.items())):
        query = request.GET.copy()
        for name in (TROUBLE_PARAMETER, "p"):
            query.pop(name, None)
        if value:
            query[TROUBLE_PARAMETER] = value
        links.append((label, f"?{query.urlencode()}", value == request.GET.get(TROUBLE_PARAMETER, "")))
    return links
