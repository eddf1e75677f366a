"""`{% load rsmq %}{% rsmq_state %}`: the state of the installation as one line, for pages of an admin site."""

from __future__ import annotations

from typing import Any

from django import template

from ..admin.state_line import state_line

register = template.Library()


@register.inclusion_tag("admin/rsmq/_state.html", takes_context=True)
def rsmq_state(context: dict[str, Any], source: str = "") -> dict[str, Any]:
    """Return the context of the line; `source` is the address from which it is refreshed, "" for that of the page."""
    request = context["request"]
    return {"state": state_line(request), "source": source}
