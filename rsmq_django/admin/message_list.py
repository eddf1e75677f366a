"""The columns of the list of messages."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..models import Message
from ..tasks.envelope import Unreadable, decode
from .bodies import preview
from .formats import as_moment, as_number, as_size, breakable, one_line, visible
from .redaction import HIDDEN, redact, redacted_call, seal_of


@admin.display(description=gettext_lazy("message"))
def short_id(message: Message) -> str:
    """Return the beginning of the id, which is when it was sent, and its end: the row links from it."""
    shown_id = one_line(message.message_id, 40)
    if len(shown_id) > 18:
        shown_id = f"{shown_id[:10]}…{shown_id[-6:]}"
    return format_html('<span class="rsmq-mono" title="{}">{}</span>', visible(message.message_id), shown_id)


@admin.display(description=gettext_lazy("queue"))
def queue_name(message: Message) -> str:
    """Return the queue."""
    return one_line(message.place.label, 40)


@admin.display(description=gettext_lazy("task / error"))
def what(message: Message) -> str:
    """Return the task, and the error of a dead letter."""
    parts = [(breakable(one_line(part, 60)),) for part in (message.task, message.error) if part]
    return format_html_join(" · ", "{}", parts) or "-"


@admin.display(description=gettext_lazy("task / error"))
def what_and_body(message: Message) -> str:
    """Return the task with its arguments, and the error with its text, for users who may see bodies."""
    failure = message.stored.failure()
    text = one_line(redact(failure.message), 160) if failure else ""
    shown = format_html('{}<span class="rsmq-preview">{}</span>', what(message), arguments_of(message))
    return shown if not text else format_html('{}<span class="rsmq-preview rsmq-bad">{}</span>', shown, text)


def arguments_of(message: Message) -> str:
    """Return the arguments of a call without secrets, "order_id=7, count=2"; else the beginning of the body."""
    stored = message.stored
    try:
        call = redacted_call(decode(seal_of(stored.body, is_cut=_is_cut(message)).body, message_id=stored.id))
    except Unreadable:  # not a call, or only its beginning was read
        return preview(stored.body, message.task, size_bytes=message.size_bytes or 0)
    parts = [_argument(name, value) for name, value in (*call.args, *call.kwargs.items())]
    return one_line(", ".join(parts)) if parts else _("no arguments")


def _argument(name: str, value: Any) -> str:
    text = value if value == HIDDEN else json.dumps(value, ensure_ascii=False)
    return f"{name}={text}" if name else text


@admin.display(description=gettext_lazy("ready since / due"), ordering="visible_at")
def visible_from(message: Message) -> str:
    """Return when it can be received."""
    return as_moment(message.visible_at, message.now_ms)


@admin.display(description=gettext_lazy("deliveries"))
def received(message: Message) -> str:
    """Return how often it was received."""
    return as_number(message.receive_count)


@admin.display(description=gettext_lazy("size"))
def size(message: Message) -> str:
    """Return the size of the body."""
    return as_size(message.size_bytes)


def _is_cut(message: Message) -> bool:
    return len(message.stored.body) < (message.size_bytes or 0)
