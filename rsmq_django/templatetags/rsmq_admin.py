"""Template filters of the admin pages: numbers and times as `admin.formats` writes them, titles of list filters.

Django imports this library in projects without the admin, too, so no module of the admin is imported before a page.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

from django import template
from django.utils.html import conditional_escape, format_html, format_html_join, strip_tags
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst
from django.utils.translation import gettext

register = template.Library()

#: For texts that Django's admin has translated.
_djangos = gettext


@register.filter
def number(value: float | None) -> str:
    """Return a number with thousands separators, "-" for None."""
    from ..admin import formats

    return formats.as_number(value)


@register.filter
def breakable(path: str) -> SafeString:
    """Return a dotted path that a narrow column breaks between words."""
    from ..admin import formats

    return formats.breakable(path)


@register.filter
def moment(when: datetime | None) -> SafeString:
    """Return a time with seconds and zone, and how long ago it is; "-" for None."""
    from ..admin import formats

    return formats.as_moment(when)


@register.filter
def since(seconds: float | None, now_ms: float) -> SafeString:
    """Return how long something has lasted, which `live.js` keeps up to date; "-" for None."""
    from ..admin import formats

    return formats.since(seconds, now_ms)


@register.inclusion_tag("admin/rsmq/_live.html")
def live_bar() -> dict[str, Any]:
    """Return what the bar of a page that refreshes itself needs."""
    return {"now_ms": round(1000 * time.time())}


@register.simple_block_tag
def stacked(content: str) -> SafeString:
    """Return a table whose cells know the names of their columns, so that a narrow window shows each row as a list."""
    head, body_tag, body = content.partition("<tbody>")
    names = [
        strip_tags(name.partition('<div class="text">')[2] or name).strip().replace('"', "&quot;")
        for name in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", head, re.DOTALL)
    ]

    def label_cells(row: re.Match[str]) -> str:
        left = iter(names)
        return re.sub(r"<t[dh]\b", lambda cell: f'{cell[0]} data-label="{next(left, "")}"', row[0])

    body = re.sub(r"<tr\b.*?</tr>", label_cells, body, flags=re.DOTALL)
    # Everything in it was escaped by the template.
    return mark_safe(head + body_tag + body)  # noqa: S308


@register.simple_block_tag
def table(content: str, *columns: str, id: str = "") -> SafeString:  # noqa: A002 - the name of the attribute
    """Return rows under the names of their columns; with an id the rows refresh themselves."""
    names = format_html_join("", '<th scope="col">{}</th>', [(name,) for name in columns])
    live = format_html(' id="{}" data-rsmq-live', id) if id else ""
    head = format_html('<table class="rsmq-table rsmq-wide"><thead><tr>{}</tr></thead><tbody>', names)
    # The content was escaped by the template.
    rows = stacked(mark_safe(f"{head}{content}</tbody></table>"))  # noqa: S308
    return format_html('<div class="rsmq-scroll" tabindex="0"{}>{}</div>', live, rows)


@register.simple_block_tag
def panel(content: str, id: str, title: str) -> SafeString:  # noqa: A002 - the name of the attribute
    """Return a section with a title and space around its content."""
    return _section("module rsmq-panel", id, title, content)


@register.simple_block_tag
def rows(content: str, id: str, title: str) -> SafeString:  # noqa: A002 - the name of the attribute
    """Return a section with a title, whose table takes its whole width."""
    return _section("module", id, title, content)


def _section(css: str, html_id: str, title: str, content: str) -> SafeString:
    start = '<section class="{}" aria-labelledby="{}"><h2 id="{}">{}</h2>'
    # The content was escaped by the template.
    return format_html(start + "{}</section>", css, html_id, html_id, title, mark_safe(content))  # noqa: S308


@register.filter
def plain_title(content: SafeString, title: Any) -> SafeString:
    """Return the HTML of a list filter with its bare title in place of "By <title>".

    The filter's template is that of Django or of a theme, so its words are replaced instead of its markup.
    """
    # The text as Django's catalogue has it, spaces included.
    with_by = _djangos(" By %(filter_title)s ") % {"filter_title": conditional_escape(title)}
    # Both sides are escaped already.
    return mark_safe(content.replace(with_by.strip(), conditional_escape(capfirst(str(title)))))  # noqa: S308
